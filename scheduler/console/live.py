"""GET /live: the map of the cluster, step by step, to whoever looks.

    Authorization: Bearer TOKEN

The answer is a stream of frames (cluster_map.py), each behind its length as u32, first a snapshot;
a length of 0 says that the server is there. The state of the cluster is an immutable value, so the
console compares two of them on its own loop, ten times a second at most and only while somebody
looks: no commit waits for it. What is made for one reader is sent to all that may see the same.

A reader that is slow misses deltas and gets a snapshot instead; one that takes nothing for half a
minute is cut off.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.empty_pb2 import Empty
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scheduler.console.calls import CallContext, CallFailed, Calls
from scheduler.console.cluster_map import ClusterMap, HostColumns
from scheduler.console.connect import failed, metadata_of, peer_of
from scheduler.console.session import HOLD, read, written
from scheduler.core import State
from scheduler.identity import Caller

STEP_S: Final = 0.1
_ALIVE_S: Final = 10.0  # after so long without a change a reader is told that all is well
_TAKEN_S: Final = 30.0  # within which a reader takes what it is sent
_MOST_BEHIND: Final = 20  # deltas after which a snapshot is the shorter way
_ALIVE: Final = bytes(4)


@dataclass(eq=False)
class _Shared:
    """A map, and of each of its readers the frames on their way; None: a snapshot is due."""

    map: ClusterMap
    readers: set[asyncio.Queue[bytes | None]] = field(default_factory=set)
    snapshot: bytes | None = None

    def update(self, state: State) -> None:
        if state.version == self.map.version:
            return
        delta = self.map.update(state)
        self.snapshot = None
        for reader in self.readers:
            reader.put_nowait(None if delta is None else _measured(delta))

    def full_snapshot(self) -> bytes:
        if self.snapshot is None:
            self.snapshot = _measured(self.map.snapshot())
        return self.snapshot


def _measured(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "little") + frame


class LiveMaps:
    """The maps of all readers of the console, on its event loop.

    `state`: the newest one. `ending`: set when streams are to end.
    """

    def __init__(self, state: Callable[[], State | None], ending: threading.Event) -> None:
        self._state = state
        self._ending = ending
        self._columns = HostColumns()
        self._shared: dict[str, _Shared] = {}
        self._stepping: asyncio.Task[None] | None = None

    async def frames(self, tenant: str) -> AsyncGenerator[bytes, None]:
        """Yield frames for a caller of this tenant, "" for all: first a snapshot, then deltas."""
        state = self._state()
        if state is None:
            return
        shared = self._shared.get(tenant)
        if shared is None:
            shared = self._shared[tenant] = _Shared(ClusterMap(tenant, self._columns, state))
        reader: asyncio.Queue[bytes | None] = asyncio.Queue()
        shared.update(state)
        reader.put_nowait(None)
        shared.readers.add(reader)
        try:
            if self._stepping is None:
                self._stepping = asyncio.create_task(self._run())
            while self._stepping is not None and not self._ending.is_set():
                try:
                    async with asyncio.timeout(_ALIVE_S):
                        frame = await reader.get()
                except TimeoutError:
                    frame = _ALIVE
                if frame is None or reader.qsize() >= _MOST_BEHIND:
                    while not reader.empty():
                        reader.get_nowait()
                    frame = shared.full_snapshot()
                yield frame
        finally:
            shared.readers.discard(reader)

    async def _run(self) -> None:
        """While anybody looks, and until the end."""
        loop = asyncio.get_running_loop()
        try:
            while not self._ending.is_set():
                watched = [each for each in self._shared.values() if each.readers]
                if not watched:
                    return
                begin_s = loop.time()
                state = self._state()
                for shared in watched:
                    if state is not None:
                        shared.update(state)
                await asyncio.sleep(max(STEP_S - (loop.time() - begin_s), STEP_S / 4))
            for shared in self._shared.values():
                for reader in shared.readers:
                    reader.put_nowait(_ALIVE)
        finally:
            self._stepping = None


class LiveStream:
    """Answers GET /live with the map, for as long as the caller may see it."""

    def __init__(self, calls: Calls, maps: LiveMaps) -> None:
        self._calls = calls
        self._maps = maps

    async def answer(self, request: Request) -> Response:
        context = CallContext(metadata_of(request.headers), peer_of(request))
        session = self._calls.stream(HOLD, Empty(), context)
        try:
            who = read((await anext(session)).value)
        except CallFailed as error:
            return failed(error, context.plain_trailer)
        return _Streaming(session, who, self._maps.frames(who.tenant))


class _Streaming(Response):
    """Frames, until the reader goes or the session ends, as when its caller may see others."""

    def __init__(
        self, session: AsyncGenerator[Any, None], who: Caller, frames: AsyncGenerator[bytes, None]
    ) -> None:
        super().__init__(
            media_type="application/octet-stream", headers={"muster-caller": written(who)}
        )
        del self.headers["content-length"]
        self._session = session
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write() -> None:
            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(head)
            async with aclosing(self._frames) as frames:
                async for frame in frames:
                    async with asyncio.timeout(_TAKEN_S):
                        await send({"type": "http.response.body", "body": frame, "more_body": True})

        async def hold() -> None:
            async for _ in self._session:
                pass

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.create_task(each()) for each in (write, hold, listen)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await self._session.aclose()
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, CallFailed | OSError):
                raise end  # TimeoutError is an OSError
        with suppress(Exception):  # whatever the connection says to a body that has an end
            async with asyncio.timeout(1):
                await send({"type": "http.response.body", "body": b""})
