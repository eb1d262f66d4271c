"""A port for HTTP, of the console or of metrics, and the thread with the event loop that answers.

The port is taken before the server says that it is ready, so that whoever wants it elsewhere
knows.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from muster.structs import struct
from scheduler.access import tls
from scheduler.access.addresses import is_loopback
from scheduler.access.listener import Access, CannotListen, check_exposure
from scheduler.access.reloading import LOOK_EVERY_S, Reloading
from scheduler.access.tls import TlsFiles
from scheduler.observe.supervision import FIRST_PAUSE_S, MOST_PAUSE_S, Heartbeats, Tasks

if TYPE_CHECKING:
    import ssl

    from scheduler.console.http_server import HttpServer


BACKLOG = 128
SILENT_S = 15.0  # without a beat, after which the thread does not work

log = logging.getLogger("muster.http")


@struct(frozen=True, slots=True)
class HttpEndpoint:
    """Where an HTTP server listens. `tls` None: in the clear. `may_move`: to a free port, when
    another server has this one. `purpose`: what it serves, for messages."""

    host: str
    port: int
    tls: TlsFiles | None = None
    may_move: bool = False
    purpose: str = "the console"


class HttpThread:
    """Serves what `make` returns until `close`. `name`: of the part of the server. `unasked`: what
    anybody could do whom nobody asks who they are."""

    def __init__(
        self, name: str, endpoint: HttpEndpoint, access: Access, unasked: str, beats: Heartbeats
    ) -> None:
        """Takes the port. Raises: CannotListen, InputError for certificates that will not do."""
        self._name = name
        self._endpoint = endpoint
        self._beats = beats
        self._context: ssl.SSLContext | None = None
        self._certificates: Reloading[None] | None = None
        where = f"{endpoint.host}:{endpoint.port} for {endpoint.purpose}"
        own = Access(endpoint.tls, access.auth_file, is_insecure=access.is_insecure)
        check_exposure(endpoint.host, where, unasked, own)
        if endpoint.tls is not None:
            self._secure(endpoint.tls)
        self._socket = bound(endpoint)
        self._thread: threading.Thread | None = None
        self._server: HttpServer | None = None
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """The address, without a path."""
        scheme = "https" if self._context else "http"
        host = f"[{self._endpoint.host.strip('[]')}]" if ":" in self._endpoint.host else ""
        return f"{scheme}://{host or self._endpoint.host}:{self._socket.getsockname()[1]}"

    @property
    def is_local(self) -> bool:
        return is_loopback(self._endpoint.host)

    def start(self, make: Callable[[], HttpServer]) -> None:
        """Let the thread call `make`, which may import much, and serve its result."""
        self._thread = threading.Thread(
            target=self._run, args=(make,), name=f"muster-{self._name}", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """End streams, let other answers finish, and free the port."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
            self._socket.close()  # nobody comes any more; the server has one of its own
        if self._thread is not None:
            from scheduler.console.http_server import STOP_S

            await asyncio.to_thread(self._thread.join, STOP_S + 1)
        self._socket.close()

    def look(self) -> None:
        """Read changed certificates now."""
        if self._certificates is not None:
            self._certificates.look()

    def _run(self, make: Callable[[], HttpServer]) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            self._beats.beat(self._name, SILENT_S)
            try:
                server, listening = make(), self._socket.dup()  # it closes what it has
                self._server = server
                if self._stopping.is_set():
                    server.stop()
                server.run(listening, self._context, self._background_tasks)
            except (Exception, SystemExit, asyncio.CancelledError):
                log.exception("%s has ended; it begins again in %g s", self._name, pause_s)
            self._server = None
            if not self._stopping.is_set():
                self._beats.restarts[self._name,] += 1
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
        """Do on the thread's loop what is to be done while it serves."""
        async with Tasks(self._beats) as tasks:
            tasks.keep(f"{self._name}-beat", self._renew)
            yield

    async def _renew(self) -> None:
        """Until it is cancelled: say that the loop is alive, and have new connections shown the
        certificate that the files have."""
        while True:
            self._beats.beat(self._name, SILENT_S)
            await asyncio.sleep(LOOK_EVERY_S)
            if self._certificates is not None:
                await asyncio.to_thread(self._certificates.look)


def bound(endpoint: HttpEndpoint) -> socket.socket:
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
    where = f"{endpoint.host}:{endpoint.port} for {endpoint.purpose}"
    raise CannotListen(f"cannot listen on {where}: is another server there?")
