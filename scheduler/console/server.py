"""The console with all that it imports, which takes a third of a second in its thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from scheduler.access.authenticate import Authenticator
from scheduler.console.app import application
from scheduler.console.calls import Calls
from scheduler.console.connect import ConnectService
from scheduler.console.live import LiveMaps, LiveStream
from scheduler.console.login import LoginOfServer
from scheduler.console.past import PastOfServer, timeline_response
from scheduler.console.thread import BACKLOG, STOP_S, Beside
from scheduler.service.backend import Backend
from scheduler.service.rpc.service import SERVICE

_KEEP_ALIVE_S = 75


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the business of the server whose console this is."""
        yield


class ConsoleServer:
    """Answers with `app` on an event loop of its own. `ending`: set when streams are to end."""

    def __init__(self, app: ASGIApp, ending: threading.Event) -> None:
        self._app = app
        self._ending = ending
        self._server: _Server | None = None
        self._is_stopping = False

    def run(self, listening: socket.socket, context: ssl.SSLContext | None, beside: Beside) -> None:
        """Serve until `stop`."""
        config = uvicorn.Config(
            self._app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(STOP_S),
        )
        config.load()
        config.ssl = context
        self._server = _Server(config)
        self._server.should_exit = self._is_stopping

        async def serve() -> None:
            assert self._server is not None
            async with beside():
                await self._server.serve([listening])

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._is_stopping = True
        self._ending.set()
        if self._server is not None:
            self._server.should_exit = True


def console_server(
    backend: Backend,
    calls: Calls,
    auth: Authenticator | None,
    most_bytes: int,
    store: str,
    *,
    is_local: bool,
) -> ConsoleServer:
    """Make the console of a server. `auth`: who may sign in. `most_bytes`: of a request. `store`:
    the URL of its log. `is_local`: as for `application`."""
    ending = threading.Event()
    services = [ConnectService(SERVICE, calls, most_bytes)]
    live = LiveStream(calls, LiveMaps(lambda: backend.state, ending))
    past = PastOfServer(calls, store)
    routes = [
        Route("/live", live.answer, methods=["GET"]),
        Route("/timeline", past.answer, methods=["GET"]),
        Route("/login", LoginOfServer(auth).answer, methods=["GET", "POST"]),
    ]
    return ConsoleServer(application(services, routes, is_local), ending)


def log_server(content: bytes) -> ConsoleServer:
    """Make a console that shows a log alone, on loopback: the page *Time*. `content`: its
    timeline."""
    ending = threading.Event()

    async def no_server(_: Request) -> Response:
        return Response("{}", media_type="application/json")  # a status without a server

    async def answer(_: Request) -> Response:
        return timeline_response(content)

    routes = [
        Route("/timeline", answer, methods=["GET"]),
        Route(f"/{SERVICE.full_name}/GetStatus", no_server, methods=["POST"]),
    ]
    return ConsoleServer(application([], routes, is_local=True), ending)
