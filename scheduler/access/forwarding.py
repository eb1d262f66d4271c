"""Changes that reach a server which does not lead, put to the one that does, for callers who ask.

    muster-forward: 1       in a request, of a client that does not reach the leader itself
    muster-caller-bin       in the call to the leader: the names of the caller's certificate
    muster-peer             likewise: where the caller is, for the leader's log

The leader authenticates the caller, as if it had called there: by its token, which is passed on, or
by the names of its certificate, which it takes from the bearer of a server's certificate alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from scheduler.access.authenticate import CALLER, PEER, Context, certificate_names, peer_of
from scheduler.access.certificates import read_certificate
from scheduler.access.methods import METHODS
from scheduler.access.tls import TlsFiles, channel_credentials
from scheduler.access.tokens import SERVER_URI
from scheduler.files.errors import InputError
from scheduler.service.errors import ApiError, error_boundary
from scheduler.service.interceptors import Handler, WrappingInterceptor, wrapped
from scheduler.v1 import error_pb2, service_pb2_grpc

FORWARD = "muster-forward"
PATIENCE_S = 10.0  # for the answer of the leader, at most
_PASSED_ON = frozenset({"authorization", "muster-min-version"})
# A leader that is there but does not answer is noticed as soon as clients notice it.
_OPTIONS = (
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
)


class Forwarding(WrappingInterceptor):
    """Passes calls that change something on to the server that leads. `leader`: the address of the
    server that leads; "" where it is this one, or is not known."""

    def __init__(self, files: TlsFiles | None, leader: Callable[[], str]) -> None:
        super().__init__()
        self._files = files
        self._leader = leader
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def wrap(self, method: str, handler: Handler) -> Handler:
        rule = METHODS.get(method)
        if rule is None or not rule.is_change:
            return handler
        name = method.rpartition("/")[2]
        return wrapped(handler, lambda inner: self._around(name, inner))

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        for closing in self._closing:
            closing.cancel()

    def _around(self, name: str, inner: Any) -> Any:
        async def call(request: Any, context: Context) -> Any:
            given = context.invocation_metadata() or ()
            leader = self._leader() if any(key == FORWARD for key, _ in given) else ""
            if not leader or not isinstance(request, Message) or not self._may_vouch(given):
                return await inner(request, context)
            async with error_boundary(context):
                return await self._put(name, leader, request, context)

        return call

    def _may_vouch(self, given: Iterable[tuple[str, Any]]) -> bool:
        """Whether the leader will take this server's word for who calls, where it needs it."""
        if self._files is None or any(key == "authorization" for key, _ in given):
            return True
        path = Path(self._files.certificate)
        try:
            return _is_of_server(path, path.stat().st_mtime_ns)
        except (OSError, InputError):  # it is being replaced
            return False

    async def _put(self, name: str, leader: str, request: Message, context: Context) -> Any:
        """Return the leader's answer, or end the call as it did. Raises: ApiError."""
        names = certificate_names(context)
        shown = json.dumps([names.sans, names.common_name]).encode()
        passed = [pair for pair in context.invocation_metadata() or () if pair[0] in _PASSED_ON]
        left_s = context.time_remaining()
        call = getattr(service_pb2_grpc.SchedulerServiceStub(self._to(leader)), name)(
            request,
            metadata=(*passed, (CALLER, shown), (PEER, peer_of(context))),
            timeout=PATIENCE_S if left_s is None else min(left_s, PATIENCE_S),
        )
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            status = rpc_status.from_call(error)
            if status is None:
                self._address = ""  # the next call connects anew, with certificates of then
                raise _unanswered(leader, error) from None
            await context.abort_with_status(rpc_status.to_status(status))
        context.set_trailing_metadata(tuple(await call.trailing_metadata()))
        return answer

    def _to(self, leader: str) -> grpc.aio.Channel:
        """Return a channel to the leader. One to an earlier leader is closed beside this, once its
        calls are over: nobody waits for that."""
        if self._channel is None or leader != self._address:
            before, credentials = self._channel, channel_credentials(self._files)
            self._address = leader
            self._channel = (
                grpc.aio.secure_channel(leader, credentials, _OPTIONS)
                if credentials
                else grpc.aio.insecure_channel(leader, _OPTIONS)
            )
            if before is not None:
                closing = asyncio.create_task(before.close(PATIENCE_S))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        return self._channel


@lru_cache(maxsize=1)
def _is_of_server(path: Path, _changed_ns: int) -> bool:
    """Whether the certificate is one that vouches for callers; read anew when it has changed."""
    return SERVER_URI in read_certificate(path).names


def _unanswered(leader: str, error: grpc.aio.AioRpcError) -> ApiError:
    """The leader may have made the change, and its answer be lost."""
    message = (
        f"{leader} leads and did not answer this server ({error.details()});"
        " the change may or may not be made"
    )
    return ApiError(error_pb2.ERROR_REASON_STORE_FAILED, message)
