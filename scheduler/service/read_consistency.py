"""How old an answer may be, and how old it is: metadata of every call (docs/replicas.md).

With `muster-read: latest` a read asks the store where the log ends and waits until it is there, as
a leader does too, for it may have lost the lead without knowing. Source: ReadIndex in
Ongaro, "Consensus: Bridging Theory and Practice" (2014), section 6.4, with the database
in place of the majority.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from scheduler.engine.replica import Replica
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import Unreachable
from scheduler.service.errors import invalid, not_caught_up
from scheduler.service.interceptors import Handler, WrappingInterceptor, wrapped

MIN_VERSION, READ, LATEST = "muster-min-version", "muster-read", "latest"
VERSION, ROLE, AGE_MS = "muster-version", "muster-role", "muster-age-ms"
PATIENCE_S = 5.0
_ASKS = frozenset({MIN_VERSION, READ})

Context = grpc.aio.ServicerContext[Any, Any]


class ReadConsistency(WrappingInterceptor):
    """Makes reads wait until the state is as new as the caller asks. `service`: full name of the
    one it is for."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._prefix = f"/{service}/"
        self._writer: Writer | None = None
        self._replica: Replica | None = None

    def attach(self, writer: Writer, replica: Replica | None) -> None:
        """Begin to answer. `replica` None: no other server has the store open."""
        self._writer, self._replica = writer, replica

    def wrap(self, method: str, handler: Handler) -> Handler:
        if not method.startswith(self._prefix):
            return handler
        is_stream = (handler.unary_stream or handler.stream_stream) is not None
        return wrapped(handler, self._stream if is_stream else self._unary)

    def _unary(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> Any:
            if wanted := self._consistency_terms(context):
                await self._wait(wanted)
            known_s = self._confirmed_s()
            try:
                return await behaviour(request, context)
            finally:
                context.set_trailing_metadata(self._trailer(known_s))

        return answer

    def _stream(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request: Any, context: Context) -> Any:
            if wanted := self._consistency_terms(context):
                await self._wait(wanted)
            try:
                async for message in behaviour(request, context):
                    yield message
            finally:
                context.set_trailing_metadata(self._trailer(self._confirmed_s()))

        return answer

    def _consistency_terms(self, context: Context) -> dict[str, str]:
        """Return the caller's terms for the age of the answer: most give none."""
        if self._writer is None:
            return {}
        metadata = context.invocation_metadata() or ()
        return {key: str(value) for key, value in metadata if key in _ASKS}

    async def _wait(self, wanted: Mapping[str, str]) -> None:
        """Raises: ApiError."""
        assert self._writer is not None
        least = wanted.get(MIN_VERSION, "0")
        if not least.isdecimal() or len(least) > 18:
            raise invalid(MIN_VERSION, "must be a version")
        if (read := wanted.get(READ, LATEST)) != LATEST:
            raise invalid(READ, f"must be {LATEST}, not {read!r}")
        version = int(least)
        try:
            async with asyncio.timeout(PATIENCE_S):
                if wanted.get(READ) == LATEST and self._replica is not None:
                    version = max(version, await self._replica.newest_version())
                await self._writer.wait_for_version(version)
        except (TimeoutError, Unreachable):
            newest = self._writer.state.version
            lacks = f"not yet at {version}"
            if version <= newest:
                lacks = "and the store does not say whether there is a newer one"
            raise not_caught_up(f"this server is at version {newest}, {lacks}") from None

    def _confirmed_s(self) -> float:
        """Up to when the state of now is known to lack nothing, on the event loop's clock."""
        return self._replica.confirmed_s if self._replica is not None else 0.0

    def _trailer(self, known_s: float) -> tuple[tuple[str, str], ...]:
        """`known_s`: of the state that the call began with: its answer may show no later one."""
        if self._writer is None:
            return ()
        version = (VERSION, str(self._writer.state.version))
        if self._replica is None:
            return (version, (ROLE, "leader"))
        role = "leader" if self._writer.is_leading else "follower"
        age_ms = (asyncio.get_running_loop().time() - known_s) * 1000
        return (version, (ROLE, role), (AGE_MS, str(math.ceil(age_ms))))
