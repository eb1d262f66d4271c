"""Calls of the gRPC service from inside its process, through the interceptors of the port.

A console has an event loop of its own; handlers run on the server's loop, as those of calls over
gRPC do, each call in a task of its own: interceptors and handlers cannot tell the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status

from muster.structs import struct
from scheduler.service.interceptors import Continuation, Handler, Undecodable

AHEAD = 64  # messages of a stream on their way to its reader
_DETAILS = "grpc-status-details-bin"

Result = TypeVar("Result")


class CallFailed(Exception):
    """A call that ended in an error. `details`: as google.rpc.Status has them."""

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = Status.FromString(details).details if details else ()


class CallContext:
    """The part of grpc.aio.ServicerContext that interceptors and handlers use.

    `metadata`: of the request, keys in small letters. `peer`: who is connected, for the log.
    """

    def __init__(self, metadata: Iterable[tuple[str, str | bytes]], peer: str) -> None:
        self.initial: tuple[tuple[str, str | bytes], ...] = ()
        self.trailer: tuple[tuple[str, str | bytes], ...] = ()
        self._metadata = tuple(metadata)
        self._peer = peer
        self._code: grpc.StatusCode | None = None
        self._message = ""

    def invocation_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return nothing: a token says who calls here, no certificate."""
        return {}

    def time_remaining(self) -> float | None:
        """Return None: whoever carries out the call ends it when its time is over."""
        return None

    async def send_initial_metadata(self, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        self.initial = tuple(metadata)

    def set_trailing_metadata(self, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        self.trailer = tuple(metadata)

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def details(self) -> str:
        """Return why the call was aborted."""
        return self._message

    async def abort_with_status(self, status: Any) -> None:
        """Abort the call with this status. Raises: AbortError, always."""
        self._code, self._message = status.code, status.details
        self.trailer = (*self.trailer, *(status.trailing_metadata or ()))
        raise grpc.aio.AbortError

    def failure(self) -> CallFailed:
        """The status with which the call was aborted, if it was."""
        details = next((value for key, value in self.trailer if key == _DETAILS), b"")
        content = details if isinstance(details, bytes) else details.encode()
        return CallFailed(self._code or grpc.StatusCode.UNKNOWN, self._message, content)

    @property
    def plain_trailer(self) -> tuple[tuple[str, str | bytes], ...]:
        return tuple(pair for pair in self.trailer if pair[0] != _DETAILS)


@struct(frozen=True, slots=True)
class _CallDetails:
    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


class _Handlers:
    """Collect handlers by method; generated code registers them here."""

    def __init__(self) -> None:
        self.by_method: dict[str, Handler] = {}

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        self.by_method.update({f"/{service}/{name}": each for name, each in handlers.items()})

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore handlers that are registered already."""


class Calls:
    """Carries out calls of the console through the same interceptors and handlers as gRPC.

    Its methods may be called on any event loop but `loop`, on which the handlers run.
    """

    def __init__(
        self,
        register: Callable[[Any], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        registry = _Handlers()
        register(registry)
        self._plain = registry.by_method
        self._interceptors = tuple(interceptors)
        self._loop = loop
        self._wrapped: dict[str, Handler] = {}

    def is_stream(self, method: str) -> bool:
        """Whether the method answers with a stream."""
        return self._plain[method].unary_stream is not None

    async def unary(
        self,
        method: str,
        request: Message | Undecodable,
        context: CallContext,
        timeout_s: float | None = None,
    ) -> Message:
        """Return the answer of /SERVICE/METHOD. Raises: CallFailed."""

        async def call() -> Message:
            handler = await self._handler(method)
            answer: Message = await handler.unary_unary(request, context)
            return answer

        return await self._begin(_ending(call(), context, timeout_s))

    async def stream(
        self,
        method: str,
        request: Message | Undecodable,
        context: CallContext,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the answers of /SERVICE/METHOD. A reader that is slow holds the handler up, as one
        over gRPC does. Raises: CallFailed."""
        reader, room = asyncio.get_running_loop(), asyncio.Semaphore(AHEAD)
        answers: asyncio.Queue[Any] = asyncio.Queue()

        async def call() -> None:
            handler = await self._handler(method)
            async for answer in handler.unary_stream(request, context):
                await room.acquire()
                reader.call_soon_threadsafe(answers.put_nowait, answer)

        running = self._begin(_ending(call(), context, timeout_s))
        running.add_done_callback(lambda _: answers.put_nowait(None))
        try:
            while (answer := await answers.get()) is not None:
                self._loop.call_soon_threadsafe(room.release)
                yield answer
            await running
        finally:
            if not running.done():
                running.cancel()
                with suppress(asyncio.CancelledError, CallFailed):
                    await running

    def _begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _handler(self, method: str) -> Any:
        """With the interceptors around it, which look at nothing but the method."""
        if method not in self._wrapped:
            made = await self._continuation(0)(_CallDetails(method))  # type: ignore[arg-type]
            assert made is not None
            self._wrapped[method] = made
        return self._wrapped[method]

    def _continuation(self, at: int) -> Continuation:
        async def innermost(details: grpc.HandlerCallDetails) -> Handler | None:
            return self._plain[details.method]

        async def next_one(details: grpc.HandlerCallDetails) -> Handler | None:
            interceptor = self._interceptors[at]
            return await interceptor.intercept_service(self._continuation(at + 1), details)

        return innermost if at == len(self._interceptors) else next_one


async def _ending(
    work: Coroutine[Any, Any, Result], context: CallContext, timeout_s: float | None
) -> Result:
    """The result. Raises: CallFailed however else it ends, unless it is cancelled."""
    try:
        async with asyncio.timeout(timeout_s) as deadline:
            return await work
    except grpc.aio.AbortError:
        raise context.failure() from None
    except TimeoutError:
        if not deadline.expired():
            raise
        message = f"not answered within {timeout_s:g} s"
        raise CallFailed(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
