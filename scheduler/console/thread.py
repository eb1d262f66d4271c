"""The port of the console, and the thread with the event loop that answers there.

The port is taken before the server says that it is ready, so that whoever wants it elsewhere
knows.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from muster.structs import struct
from scheduler.access import tls
from scheduler.access.addresses import is_loopback
from scheduler.access.listener import Access, CannotListen, check_exposure
from scheduler.access.reloading import LOOK_EVERY_S, Reloading
from scheduler.access.tls import TlsFiles
from scheduler.observe.supervision import FIRST_PAUSE_S, MOST_PAUSE_S, Heartbeats, Tasks

if TYPE_CHECKING:
    import ssl


BACKLOG = 128
STOP_S = 5.0  # for answers under way, at the end
SILENT_S = 15.0  # without a beat, after which the console does not work

Beside = Callable[[], AbstractAsyncContextManager[None]]


class HttpServer(Protocol):
    """The server that the thread runs; console/server.py has it, which takes long to import."""

    def run(self, listening: socket.socket, context: ssl.SSLContext | None, beside: Beside) -> None:
        """Serve until `stop`, inside of `beside`."""

    def stop(self) -> None:
        """End `run`, from any thread."""


log = logging.getLogger("muster.console")


@struct(frozen=True, slots=True)
class ConsoleEndpoint:
    """Where the console listens. `tls` None: in the clear. `may_move`: to a free port, when
    another server has this one."""

    host: str
    port: int
    tls: TlsFiles | None = None
    may_move: bool = False


class ConsoleThread:
    """Serves what `make` returns until `close`."""

    def __init__(self, endpoint: ConsoleEndpoint, access: Access, beats: Heartbeats) -> None:
        """Takes the port. Raises: CannotListen, InputError for certificates that will not do."""
        self._endpoint = endpoint
        self._beats = beats
        self._context: ssl.SSLContext | None = None
        self._certificates: Reloading[None] | None = None
        where = f"{endpoint.host}:{endpoint.port} for the console"
        own = Access(endpoint.tls, access.auth_file, is_insecure=access.is_insecure)
        check_exposure(endpoint.host, where, "anybody may do anything", own)
        if endpoint.tls is not None:
            self._secure(endpoint.tls)
        self._socket = bound(endpoint)
        self._thread: threading.Thread | None = None
        self._server: HttpServer | None = None
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """Address for a browser."""
        scheme = "https" if self._context else "http"
        host = f"[{self._endpoint.host.strip('[]')}]" if ":" in self._endpoint.host else ""
        return f"{scheme}://{host or self._endpoint.host}:{self._socket.getsockname()[1]}"

    @property
    def is_local(self) -> bool:
        return is_loopback(self._endpoint.host)

    def start(self, make: Callable[[], HttpServer]) -> None:
        """Let the thread of the console call `make`, which imports much, and serve its result."""
        self._thread = threading.Thread(
            target=self._run, args=(make,), name="muster-console", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """End streams, let other answers finish, and free the port."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._socket.close()  # nobody comes any more; the server has one of its own
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S + 1)
        self._socket.close()

    def look(self) -> None:
        """Read changed certificates now."""
        if self._certificates is not None:
            self._certificates.look()

    def _run(self, make: Callable[[], HttpServer]) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            self._beats.beat("console", SILENT_S)
            try:
                server, listening = make(), self._socket.dup()  # it closes what it has
                self._server = server
                if self._stopping.is_set():
                    server.stop()
                server.run(listening, self._context, self._background_tasks)
            except (Exception, SystemExit, asyncio.CancelledError):
                log.exception("the console has ended; it begins again in %g s", pause_s)
            self._server = None
            if not self._stopping.is_set():
                self._beats.restarts["console",] += 1
                self._stopping.wait(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _secure(self, files: TlsFiles) -> None:
        """Raises: InputError."""
        context = self._context = tls.context(files)

        def read() -> None:
            tls.context(files)  # what is wrong is said before anything is replaced
            context.load_cert_chain(files.certificate, files.key)

        self._certificates = Reloading(files.paths, read)

    @asynccontextmanager
    async def _background_tasks(self) -> AsyncIterator[None]:
        """Do on the console's loop what is to be done while it serves."""
        async with Tasks(self._beats) as tasks:
            tasks.keep("console-beat", self._renew)
            yield

    async def _renew(self) -> None:
        """Until it is cancelled: say that the loop is alive, and have new connections shown the
        certificate that the files have."""
        while True:
            self._beats.beat("console", SILENT_S)
            await asyncio.sleep(LOOK_EVERY_S)
            if self._certificates is not None:
                await asyncio.to_thread(self._certificates.look)


def bound(endpoint: ConsoleEndpoint) -> socket.socket:
    """Return a socket that listens. Raises: CannotListen."""
    host = endpoint.host.strip("[]")
    ports = (endpoint.port, 0) if endpoint.may_move else (endpoint.port,)
    for port in ports:
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(BACKLOG)
            made.setblocking(False)
        except OSError:
            made.close()
            continue
        return made
    where = f"{endpoint.host}:{endpoint.port}"
    raise CannotListen(f"cannot listen on {where} for the console: is another server there?")
