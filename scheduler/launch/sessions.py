"""The server's end of its gateway: which hosts have an agent, and words to and from them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from scheduler.launch.frames import Frame, FrameKind, read_frame
from scheduler.launch.gateway import GatewayOptions
from scheduler.v1 import agent_pb2

_ALIVE_S = 1.0
_AGAIN_S = 0.5
_START_S = 30.0
_TURN_S = 0.002  # of the event loop

log = logging.getLogger("muster.launch")


class CannotServeAgents(Exception):
    """Their address is taken, or is none."""


class AgentSessions:
    """`connected`: hosts whose agents are there. What happens goes to the `on_`
    callables; they run on the event loop's thread."""

    def __init__(self, options: GatewayOptions) -> None:
        self.connected: set[str] = set()
        self.address = ""
        self.on_hello: Callable[[str, agent_pb2.Hello], None] = lambda *_: None
        self.on_word: Callable[[str, agent_pb2.SessionRequest], None] = lambda *_: None
        self.on_broken: Callable[[str], None] = lambda _: None
        self.on_lost: Callable[[str], None] = lambda _: None
        self._options = options
        self._stand: Frame = Frame(FrameKind.FOLLOW, "", b'{"leader": ""}')
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Begin to listen; where. Raises: CannotServeAgents."""
        await self._begin()
        self._task = asyncio.create_task(self._run())
        return self.address

    @property
    def process_id(self) -> int | None:
        """The process id of the gateway."""
        return self._process.pid if self._process is not None else None

    async def _begin(self) -> None:
        own_end, child_end = socket.socketpair()
        with child_end:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "scheduler.launch.gateway", str(child_end.fileno())),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(child_end.fileno(),),
            )
        assert self._process.stdin is not None
        self._process.stdin.write(self._options.encoded().encode())
        self._process.stdin.close()
        self._reader, self._writer = await asyncio.open_connection(sock=own_end)
        try:
            async with asyncio.timeout(_START_S):
                frame = await read_frame(self._reader)
        except (asyncio.IncompleteReadError, TimeoutError):
            raise CannotServeAgents("the process that serves agents has not started") from None
        if frame.kind is not FrameKind.READY:
            raise CannotServeAgents(frame.body.decode())
        self.address = frame.body.decode()
        # A port that was chosen stays, for agents know it.
        self._options = replace(self._options, listen=self.address)
        self._tell(self._stand)

    async def _run(self) -> None:
        """Listen to the gateway; start another one where it ends."""
        alive = asyncio.create_task(self._say_alive())
        try:
            while True:
                assert self._reader is not None
                try:
                    await self._hear_all(self._reader)
                except (asyncio.IncompleteReadError, ConnectionError):
                    log.error("the process that serves agents has ended; starting another one")
                for host in sorted(self.connected):
                    self._broke(host)
                if self._writer is not None:
                    self._writer.close()
                with suppress(CannotServeAgents, OSError):
                    await self._begin()
                await asyncio.sleep(_AGAIN_S)
        finally:
            alive.cancel()

    async def _hear_all(self, reader: asyncio.StreamReader) -> None:
        """Until it ends. What has come is read without a pause: now and then others have a turn, so
        that the words of two thousand hosts hold up no commit."""
        turn_s = time.monotonic()
        while True:
            self._hear(await read_frame(reader))
            if time.monotonic() - turn_s > _TURN_S:
                await asyncio.sleep(0)
                turn_s = time.monotonic()

    async def _say_alive(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_S)
            self._tell(Frame(FrameKind.ALIVE))

    def lead(self, epoch: int, ttl_s: float) -> None:
        """Serve agents from here on."""
        self._stand = Frame(
            FrameKind.LEAD, "", json.dumps({"epoch": epoch, "ttl_s": ttl_s}).encode()
        )
        self._tell(self._stand)

    def follow(self, leader: str) -> None:
        """Turn them away."""
        self._stand = Frame(FrameKind.FOLLOW, "", json.dumps({"leader": leader}).encode())
        self._tell(self._stand)
        self.connected.clear()

    def send(self, host: str, message: agent_pb2.SessionResponse) -> None:
        """To a host that is not there nothing is sent until it is."""
        if host in self.connected:
            self._tell(Frame(FrameKind.SEND, host, message.SerializeToString()))

    def drop(self, host: str, reason: str) -> None:
        self.connected.discard(host)
        self._tell(Frame(FrameKind.DROP, host, reason.encode()))

    def _tell(self, frame: Frame) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame.encoded())

    def _hear(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.HELLO:
                self.connected.add(frame.host)
                message = agent_pb2.SessionRequest.FromString(frame.body)
                self.on_hello(frame.host, message.hello)
            case FrameKind.SAID:
                self.on_word(frame.host, agent_pb2.SessionRequest.FromString(frame.body))
            case FrameKind.BROKEN:
                self._broke(frame.host)
            case FrameKind.LOST:
                self.connected.discard(frame.host)
                self.on_lost(frame.host)

    def _broke(self, host: str) -> None:
        self.connected.discard(host)
        self.on_broken(host)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(5):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
