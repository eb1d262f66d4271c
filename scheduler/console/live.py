"""GET /live: the map of the cluster, step by step, to whoever looks.

    Authorization: Bearer TOKEN
    ?key=KEY&after_version=N   go on where a broken stream ended; without, or when that is too
                               long ago, the first frame is a snapshot

The answer is a stream of frames (cluster_map.py), each behind its length as u32; a length of 0 says
that the server is there. The state of the cluster is an immutable value, so the console compares
two of them on its own loop, ten times a second at most and only while somebody looks: no commit
waits for it. What is made for one reader is sent to all that may see the same.

A reader that is slow misses deltas and gets a snapshot instead; one that takes nothing for half a
minute is cut off.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
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
_KEPT: Final = 600  # deltas for those that resume
_KEPT_BYTES: Final = 4 << 20
_MOST_BEHIND: Final = 20  # deltas after which a snapshot is the shorter way
_ALIVE: Final = bytes(4)


@dataclass(eq=False)
class _Shared:
    """A map with its newest deltas, for all who look at it. Delta n leads to `versions[n]`, and
    has the number `first` + n."""

    map: ClusterMap
    readers: int = 0
    first: int = 0
    versions: deque[int] = field(default_factory=deque)
    deltas: deque[bytes] = field(default_factory=deque)
    bytes_kept: int = 0
    snapshot: bytes | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return self.first + len(self.deltas)

    def update(self, state: State) -> None:
        if state.version == self.map.version:
            return
        delta = self.map.update(state)
        self.snapshot = None
        if delta is None:
            self.first = self.end
            self.versions.clear()
            self.deltas.clear()
            self.bytes_kept = 0
        else:
            self.versions.append(state.version)
            self.deltas.append(_measured(delta))
            self.bytes_kept += len(self.deltas[-1])
            while len(self.deltas) > _KEPT or self.bytes_kept > _KEPT_BYTES:
                self.bytes_kept -= len(self.deltas.popleft())
                self.versions.popleft()
                self.first += 1
        self.moved.set()
        self.moved = asyncio.Event()

    def full_snapshot(self) -> bytes:
        if self.snapshot is None:
            self.snapshot = _measured(self.map.snapshot())
        return self.snapshot

    def place_after(self, key: str, version: int) -> int:
        """The number of the first delta after a version; -1: a snapshot is needed."""
        if key == self.map.key and version == self.map.version:
            return self.end
        if key == self.map.key and version in self.versions:
            return self.first + self.versions.index(version) + 1
        return -1


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

    async def frames(
        self, tenant: str, key: str, after_version: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield frames for a caller of this tenant, "" for all: first a snapshot, unless `key` and
        `after_version` name a map that it has, then deltas."""
        state = self._state()
        if state is None:
            return
        shared = self._shared.get(tenant)
        if shared is None:
            shared = self._shared[tenant] = _Shared(ClusterMap(tenant, self._columns, state))
        shared.readers += 1
        try:
            shared.update(state)
            if self._stepping is None:
                self._stepping = asyncio.create_task(self._run())
            place, map_key = shared.place_after(key, after_version), key
            while self._stepping is not None and not self._ending.is_set():
                moved = shared.moved
                is_lost = map_key != shared.map.key or place < shared.first
                if is_lost or shared.end - place > _MOST_BEHIND:
                    map_key, place = shared.map.key, shared.end
                    yield shared.full_snapshot()
                elif place < shared.end:
                    pending = list(shared.deltas)[place - shared.first :]
                    place = shared.end
                    yield b"".join(pending)
                else:
                    try:
                        async with asyncio.timeout(_ALIVE_S):
                            await moved.wait()
                    except TimeoutError:
                        yield _ALIVE
        finally:
            shared.readers -= 1

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
                shared.moved.set()
        finally:
            self._stepping = None


class LiveStream:
    """Answers GET /live with the map, for as long as the caller may see it."""

    def __init__(self, calls: Calls, maps: LiveMaps) -> None:
        self._calls = calls
        self._maps = maps

    async def answer(self, request: Request) -> Response:
        after = request.query_params.get("after_version", "")
        if after and not (after.isdecimal() and after.isascii() and len(after) < 20):
            return Response("after_version must be a version of the log\n", 400)
        context = CallContext(metadata_of(request.headers), peer_of(request))
        session = self._calls.stream(HOLD, Empty(), context)
        try:
            who = read((await anext(session)).value)
        except CallFailed as error:
            return failed(error, context.plain_trailer)
        key = request.query_params.get("key", "")
        frames = self._maps.frames(who.tenant, key, int(after or -1))
        return _Streaming(session, who, frames)


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
