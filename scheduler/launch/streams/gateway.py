"""The process that holds the streams of all agents, so that none of them delays a commit.

It lets agents in, gives them leases, hears their beats and says which hosts are lost; all else it
passes on to the server and back. It is a child of the server and ends with it. Python's gRPC wakes
every event loop of a process for each message of any: streams in a thread beside the writer's
would cost it a turn for each beat, which a process of its own does not.

Two rules keep hosts from being lost by mistake. A gateway whose own loop stood still starts the
clocks of all hosts anew; so does one that begins to lead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import msgspec
import uvloop

from muster.structs import struct
from scheduler.access import tls
from scheduler.access.tls import TlsFiles
from scheduler.access.tokens import HOST_URI, certified_host, host_of
from scheduler.files.errors import InputError
from scheduler.launch.streams.frames import Frame, FrameKind, read_frame
from scheduler.v1 import agent_pb2

SERVICE = "scheduler.v1.AgentService"
SILENCE_S = 5.0  # of the server, after which it does not lead any more as far as agents go
_BEAT = agent_pb2.SessionRequest(beat=agent_pb2.Beat()).SerializeToString()
_SWEEPS = 10  # a lease
_BEAT_SHARE = 1 / 3  # of a lease: the time between two beats
_OVERDUE = 0.5  # of a lease: a beat is missing by then
_ALIVE_S = 1.0  # between two sweeps at most, for each tells the server that this process lives
_HELLO_S = 10.0  # for which a stream may stay without its first word
_BEARER = "bearer "
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_concurrent_streams", 100_000),
)

log = logging.getLogger("muster.gateway")

Context = Any  # grpc.aio.ServicerContext of bytes, whose stubs do not know EOF


@struct(frozen=True, slots=True)
class GatewayOptions:
    """`listen`: HOST:PORT. `join_secret_file`, `join_secrets`: what join tokens are made with, read
    again when the file changes. `is_insecure`: believe an agent that proves nothing."""

    listen: str
    tls: TlsFiles | None = None
    join_secret_file: str = ""
    join_secrets: tuple[str, ...] = ()
    is_insecure: bool = False

    def secrets(self) -> tuple[str, ...]:
        """The secrets in the file as it is now, and the given ones."""
        if not self.join_secret_file:
            return self.join_secrets
        with open(self.join_secret_file, encoding="ascii") as file:
            return (*file.read().split(), *self.join_secrets)


@dataclass(slots=True, eq=False)
class AgentStream:
    """The stream of one host. `lease_s`: when the next lease has to be sent."""

    host: str
    context: Context
    heard_s: float
    lease_s: float
    waiting: deque[bytes] = field(default_factory=deque)
    sending: asyncio.Task[None] | None = None
    end: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "another stream is open for this host"

    def send(self, body: bytes) -> None:
        self.waiting.append(body)
        if self.sending is None or self.sending.done():
            self.sending = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        try:
            while self.waiting:
                await self.context.write(self.waiting.popleft())
        except (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError):
            self.waiting.clear()  # its reader learns it as well


class Gateway:
    """Talks to all agents in a process of its own, for the server. `tell`: to the server. `clock`:
    seconds."""

    def __init__(
        self,
        options: GatewayOptions,
        tell: Callable[[Frame], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._tell = tell
        self._clock = clock
        self._streams: dict[str, AgentStream] = {}
        self._broken_s: dict[str, float] = {}  # hosts whose stream has ended, since when
        self._epoch: int | None = None  # while the server leads
        self._ttl_s = 10.0
        self._keeps_ranks = False
        self._leader = ""
        self._alive_s = clock()

    # --- words of the server -----------------------------------------------------------

    def hear(self, frame: Frame) -> None:
        """Carry out one message of the server."""
        self._alive_s = self._clock()
        match frame.kind:
            case FrameKind.SEND:
                if stream := self._streams.get(frame.host):
                    stream.send(frame.body)
            case FrameKind.LEAD:
                message = json.loads(frame.body)
                self._epoch, self._ttl_s = message["epoch"], message["ttl_s"]
                self._keeps_ranks = message["keeps_ranks"]
                self._broken_s.clear()
            case FrameKind.FOLLOW:
                self._leader = json.loads(frame.body)["leader"]
                self._resign()
            case FrameKind.DROP:
                self._drop(frame.host, frame.body.decode())
                self._broken_s[frame.host] = self._clock()

    def _resign(self) -> None:
        self._epoch = None
        self._broken_s.clear()
        for host in list(self._streams):
            self._drop(host, self._not_leading())

    def _not_leading(self) -> str:
        return f"this server does not lead{f', {self._leader} does' if self._leader else ''}"

    def _drop(self, host: str, reason: str) -> None:
        if stream := self._streams.pop(host, None):
            stream.reason = reason
            stream.end.set()

    # --- clocks --------------------------------------------------------------------------

    async def watch(self) -> None:
        """Report lost hosts and renew leases, for ever."""
        before_s = self._clock()
        while True:
            pause_s = min(self._ttl_s / _SWEEPS, _ALIVE_S)
            await asyncio.sleep(pause_s)
            now_s = self._clock()
            stalled_s = now_s - before_s - pause_s
            before_s = now_s
            if stalled_s > self._ttl_s / 3:
                log.warning("stood still for %.1f s: all hosts have a new lease", stalled_s)
                self._excuse(now_s)
            if self._epoch is not None and now_s - self._alive_s > SILENCE_S:
                log.warning("no message came from the server for %.0f s", SILENCE_S)
                self._resign()
            self.sweep(now_s)
            self._tell(Frame(FrameKind.ALIVE))

    def _excuse(self, now_s: float) -> None:
        self._alive_s = now_s
        for stream in self._streams.values():
            stream.heard_s = now_s
        self._broken_s = dict.fromkeys(self._broken_s, now_s)

    def sweep(self, now_s: float) -> None:
        """Look at all hosts once. Cost: 0.2 us a host, and 100 us for each lease sent."""
        if self._epoch is None:
            return
        silent_s = {h: now_s - stream.heard_s for h, stream in self._streams.items()}
        for host, stream in self._streams.items():
            if silent_s[host] <= self._ttl_s and now_s >= stream.lease_s:
                self._lease(stream, now_s)
        silent_s |= {h: now_s - since_s for h, since_s in self._broken_s.items()}
        lost = [host for host, s in silent_s.items() if s > self._ttl_s]
        if not lost or self._awaits_others(silent_s):
            return
        self._tell(Frame(FrameKind.SILENT, "", json.dumps(self._overdue(silent_s)).encode()))
        for host in lost:
            self._drop(host, "no message came from this host for a lease")
            self._broken_s.pop(host, None)
            self._tell(Frame(FrameKind.LOST, host))

    def _awaits_others(self, silent_s: Mapping[str, float]) -> bool:
        """Whether hosts may be lost within a beat that fell silent together with the first: a gang
        on several of them is to begin anew once."""
        beat_s = self._ttl_s * _BEAT_SHARE
        if max(silent_s.values()) > self._ttl_s + beat_s:
            return False
        return any(self._ttl_s - beat_s < s <= self._ttl_s for s in silent_s.values())

    def _overdue(self, silent_s: Mapping[str, float]) -> list[str]:
        """Return the hosts of which a beat is overdue, lost ones included: who was cut off together
        with the first that is lost has missed one by then, and who was not has not."""
        return [host for host, s in silent_s.items() if s > self._ttl_s * _OVERDUE]

    def _lease(self, stream: AgentStream, now_s: float) -> None:
        stream.lease_s = now_s + self._ttl_s
        lease = agent_pb2.Lease(epoch=self._epoch or 0)
        lease.ttl.FromMilliseconds(round(self._ttl_s * 1_000))
        lease.keeps_ranks = self._keeps_ranks
        stream.send(agent_pb2.SessionResponse(lease=lease).SerializeToString())

    # --- streams of agents -----------------------------------------------------------------

    async def session(self, _: Any, context: Context) -> None:
        """Serve one stream of AgentService.Session, in bytes as they are sent."""
        if self._epoch is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._not_leading())
        async with asyncio.timeout(_HELLO_S):
            body = await context.read()
        if body is grpc.aio.EOF:
            return
        host, is_proved = await self._admitted(body, context)
        if not is_proved:
            body = _without_place(body)
        now_s = self._clock()
        stream = AgentStream(host, context, now_s, 0.0)
        self._drop(host, stream.reason)
        self._streams[host] = stream
        self._broken_s.pop(host, None)
        self._lease(stream, now_s)
        self._tell(Frame(FrameKind.HELLO, host, body))
        ending = asyncio.create_task(stream.end.wait())
        reading = asyncio.create_task(self._read(stream))
        try:
            await asyncio.wait({ending, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            reading.cancel()
            if self._streams.get(host) is stream:
                del self._streams[host]
                self._broken_s[host] = self._clock()
                self._tell(Frame(FrameKind.BROKEN, host))
        if stream.end.is_set():
            if stream.sending is not None:  # a call takes one word after the other
                await asyncio.wait({stream.sending}, timeout=_HELLO_S)
            await context.abort(grpc.StatusCode.ABORTED, stream.reason)

    async def _read(self, stream: AgentStream) -> None:
        try:
            while (body := await stream.context.read()) is not grpc.aio.EOF:
                stream.heard_s = self._clock()
                if body != _BEAT and self._streams.get(stream.host) is stream:
                    self._tell(Frame(FrameKind.SAID, stream.host, body))
        except (grpc.aio.AbortError, grpc.RpcError, asyncio.InvalidStateError):
            return  # the connection broke

    async def _admitted(self, body: bytes, context: Context) -> tuple[str, bool]:
        """The host that the agent speaks for, and whether it proves that. Aborts the call for one
        that has to and does not."""
        try:
            message = agent_pb2.SessionRequest.FromString(body)
        except Exception:  # protobuf's DecodeError has no stable home
            message = agent_pb2.SessionRequest()
        if message.WhichOneof("message") != "hello" or not message.hello.host:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "the first message must be a hello"
            )
        proved = self._proved(context)
        if proved is None and not self._options.is_insecure:
            reason = _unproved(context, message.hello.host)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
        if proved is not None and proved != message.hello.host:
            reason = f"this agent may speak for {proved}, not for {message.hello.host}"
            log.warning("refused: %s", reason)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        return str(message.hello.host), proved is not None

    def _proved(self, context: Context) -> str | None:
        """Return the host of the join token, else of the certificate; None: neither is good."""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
                token = text[len(_BEARER) :] if text.lower().startswith(_BEARER) else ""
                return host_of(token.strip(), self._options.secrets())
        return certified_host(_names(context, "x509_subject_alternative_name"))


def _without_place(body: bytes) -> bytes:
    """The hello of an agent that proves nothing: its host joins no fabric."""
    message = agent_pb2.SessionRequest.FromString(body)
    message.hello.ClearField("place")
    return message.SerializeToString()


def _names(context: Context, kind: str) -> list[str]:
    """Return names of a client certificate that the handshake has verified."""
    shown: Mapping[str, Any] = context.auth_context() or {}
    return [bytes(name).decode("utf-8", "replace") for name in shown.get(kind, ())]


def _unproved(context: Context, host: str) -> str:
    """Return why an agent is not let in, and what to do."""
    named = _names(context, "x509_common_name")
    if not named:
        return "an agent shows a client certificate or a join token of its host"
    new = f"`muster certs new {host} --host --replace` makes one (URI {HOST_URI}{host})"
    return f"the certificate of {named[0]} is not that of a host: {new}; or give a join token"


async def serve(options: GatewayOptions, link: socket.socket) -> None:
    """Serve agents until the server at the other end of `link` has gone."""
    reader, writer = await asyncio.open_connection(sock=link)

    def tell(frame: Frame) -> None:
        if not writer.is_closing():  # else the server has gone
            writer.write(frame.encoded())

    gateway = Gateway(options, tell)
    server = grpc.aio.server(options=_OPTIONS)
    handler: Any = grpc.stream_stream_rpc_method_handler(gateway.session)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(SERVICE, {"Session": handler})]
    )
    try:
        if options.tls:
            shown = tls.credentials(options.tls, tls.reloading(options.tls))
            port = server.add_secure_port(options.listen, shown)
        else:
            port = server.add_insecure_port(options.listen)
        await server.start()
    except (InputError, OSError, RuntimeError) as error:
        text = f"cannot listen for agents on {options.listen}: {error}"
        writer.write(Frame(FrameKind.FAILED, "", text.encode()).encoded())
        await writer.drain()
        return
    address = f"{options.listen.rpartition(':')[0]}:{port}"
    writer.write(Frame(FrameKind.READY, "", address.encode()).encoded())

    async def hear() -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                gateway.hear(await read_frame(reader))

    # Where either ends, the process does, and the server starts another one.
    working = [asyncio.create_task(each) for each in (hear(), gateway.watch())]
    try:
        done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled() and (failure := task.exception()):
                log.error("the process that serves agents ends", exc_info=failure)
    finally:
        for task in working:
            task.cancel()
        gateway.hear(Frame(FrameKind.FOLLOW, "", b'{"leader": ""}'))
        await server.stop(0.2)
        writer.close()


def main() -> None:
    """Run a gateway: `python -m scheduler.launch.streams.gateway FD`, options on stdin, the server
    at FD."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server says when it is over
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    options = msgspec.json.decode(sys.stdin.read(), type=GatewayOptions)
    uvloop.run(serve(options, socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
