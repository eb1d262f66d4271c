"""The server's end of its gateway: which hosts have an agent, and words to and from them."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

import msgspec
from google.protobuf.message import DecodeError

from muster.structs import replace
from scheduler.launch.streams.frames import Frame, FrameKind, read_frame
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.observe.supervision import Heartbeats, Tasks
from scheduler.v1 import agent_pb2

_ALIVE_S = 1.0
_MOST_UNREADABLE = 1_000  # reports of ranks that one message of their agent counts
_AGAIN_S = 0.5
_START_S = 30.0
_TURN_S = 0.002  # of the event loop
SILENT_S = 10.0  # without a frame of the gateway, after which another one is started

log = logging.getLogger("muster.launch")


class CannotServeAgents(Exception):
    """The address for agents is taken, or is none."""


class AgentListener(Protocol):
    """Receives messages of agents while a server leads, on the event loop's thread."""

    def on_hello(self, host: str, hello: agent_pb2.Hello) -> None:
        """Take the introduction of a host's agent."""

    def on_word(self, host: str, message: agent_pb2.SessionRequest) -> None:
        """Take any other message of a host's agent."""

    def on_broken(self, host: str) -> None:
        """Note that the stream of a host has ended, although its lease has not."""

    def on_silent(self, hosts: Collection[str]) -> None:
        """Note that these hosts are silent for longer than a beat, and that some of them are about
        to be lost."""

    def on_lost(self, host: str) -> None:
        """Note that a host was silent for a lease."""


class AgentSessions:
    """Streams of agents, through the gateway process. `connected`: hosts whose agents are there."""

    def __init__(self, options: GatewayOptions, beats: Heartbeats) -> None:
        self.connected: set[str] = set()
        self.address = ""
        self._listener: AgentListener | None = None  # while the server leads
        self._options = options
        self._stand: Frame = Frame(FrameKind.FOLLOW, "", b'{"leader": ""}')
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._heard_s = 0.0  # when the gateway said something last
        self._is_closing = False
        self._beats = beats
        self._tasks = Tasks(beats)

    async def start(self) -> str:
        """Begin to listen, and return where. Raises: CannotServeAgents."""
        await self._begin()
        self._tasks.keep("agents", self._run)
        self._tasks.keep("alive", self._say_alive)
        return self.address

    @property
    def process_id(self) -> int | None:
        """The process id of the gateway."""
        return self._process.pid if self._process is not None else None

    async def _begin(self) -> None:
        own_end, child_end = socket.socketpair()
        with child_end:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "scheduler.launch.streams.gateway",
                str(child_end.fileno()),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(child_end.fileno(),),
            )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(self._options))
        self._process.stdin.close()
        self._reader, self._writer = await asyncio.open_connection(sock=own_end)
        try:
            async with asyncio.timeout(_START_S):
                frame = await read_frame(self._reader)
        except (asyncio.IncompleteReadError, TimeoutError):
            self._end_gateway()
            raise CannotServeAgents("the process that serves agents has not started") from None
        if frame.kind is not FrameKind.READY:
            self._end_gateway()
            raise CannotServeAgents(frame.body.decode())
        self._heard_s = time.monotonic()
        self.address = frame.body.decode()
        # A port that was chosen stays, for agents know it.
        self._options = replace(self._options, listen=self.address)
        self._tell(self._stand)

    async def _run(self) -> None:
        """Listen to the gateway; start another one where it ends."""
        while True:
            if self._reader is None:
                with suppress(CannotServeAgents, OSError):
                    await self._begin()
            try:
                if self._reader is not None:
                    await self._hear_all(self._reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                log.error("the process that serves agents has ended; starting another one")
            finally:  # a frame may have been read in part: what follows it means nothing
                self._end_gateway()
            for host in sorted(self.connected):
                self._on_disconnect(host)
            await asyncio.sleep(_AGAIN_S)

    def _end_gateway(self) -> None:
        if self._is_closing:  # it ends by itself, and says so to its agents
            return
        self._reader = None
        if self._writer is not None:
            self._writer.close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _hear_all(self, reader: asyncio.StreamReader) -> None:
        """Until it ends. What has come is read without a pause: now and then others have a turn, so
        that the words of two thousand hosts hold up no commit."""
        turn_s = time.monotonic()
        while True:
            frame = await read_frame(reader)
            self._heard_s = time.monotonic()
            self._beats.beat("agents", SILENT_S)
            try:
                self._hear(frame)
            except Exception as error:
                self._refuse(frame.host, error)
            if time.monotonic() - turn_s > _TURN_S:
                await asyncio.sleep(0)
                turn_s = time.monotonic()

    def _refuse(self, host: str, error: Exception) -> None:
        """End the session of one host, whose message can be neither read nor followed."""
        self._beats.refused["agents",] += 1
        if isinstance(error, DecodeError):
            log.error("the agent of %s sent what is no message; its session ends", host)
        else:
            log.error("a message of %s failed; its session ends", host, exc_info=error)
        self.drop(host, "its message cannot be read")
        try:
            self._on_disconnect(host)
        except Exception:
            log.exception("the end of the session of %s failed", host)

    async def _say_alive(self) -> None:
        """Tell the gateway that the server is there, and end one that says nothing any more."""
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(_ALIVE_S)
            self._tell(Frame(FrameKind.ALIVE))
            now_s = time.monotonic()
            if now_s - began_s > 2 * _ALIVE_S:  # this loop stood still, and has yet to read
                self._heard_s = now_s
            if self._reader is not None and now_s - self._heard_s > SILENT_S:
                log.error("the process that serves agents is silent for %g s", SILENT_S)
                self._end_gateway()

    def lead(
        self, epoch: int, ttl_s: float, listener: AgentListener, *, keeps_ranks: bool = True
    ) -> None:
        """Serve agents from here on, and pass their messages to `listener`. `keeps_ranks`: whether
        their ranks run on when they hear nothing any more."""
        self._listener = listener
        stand = {"epoch": epoch, "ttl_s": ttl_s, "keeps_ranks": keeps_ranks}
        self._stand = Frame(FrameKind.LEAD, "", json.dumps(stand).encode())
        self._tell(self._stand)

    def follow(self, leader: str) -> None:
        """Turn agents away, for this server does not lead."""
        self._listener = None
        self._stand = Frame(FrameKind.FOLLOW, "", json.dumps({"leader": leader}).encode())
        self._tell(self._stand)
        self.connected.clear()

    def send(self, host: str, message: agent_pb2.SessionResponse) -> None:
        """Send a message to a host; drop it while the host is not connected."""
        if host in self.connected:
            self._tell(Frame(FrameKind.SEND, host, message.SerializeToString()))

    def drop(self, host: str, reason: str) -> None:
        self.connected.discard(host)
        self._tell(Frame(FrameKind.DROP, host, reason.encode()))

    def _tell(self, frame: Frame) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame.encoded())

    def _hear(self, frame: Frame) -> None:
        listener = self._listener
        if listener is None:
            return
        match frame.kind:
            case FrameKind.HELLO:
                self.connected.add(frame.host)
                message = agent_pb2.SessionRequest.FromString(frame.body)
                listener.on_hello(frame.host, message.hello)
            case FrameKind.SAID:
                word = agent_pb2.SessionRequest.FromString(frame.body)
                if (count := word.progress.unreadable) > 0:
                    self._beats.refused["ranks",] += min(count, _MOST_UNREADABLE)
                listener.on_word(frame.host, word)
            case FrameKind.BROKEN:
                self._on_disconnect(frame.host)
            case FrameKind.SILENT:
                listener.on_silent(json.loads(frame.body))
            case FrameKind.LOST:
                self.connected.discard(frame.host)
                listener.on_lost(frame.host)

    def _on_disconnect(self, host: str) -> None:
        self.connected.discard(host)
        if self._listener is not None:
            self._listener.on_broken(host)

    async def close(self) -> None:
        self._is_closing = True
        await self._tasks.close()
        self._beats.rest("agents")
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(5):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
