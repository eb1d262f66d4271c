"""The console with all that it imports, which takes a third of a second in its thread."""

from __future__ import annotations

import threading

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from scheduler.access.authenticate import Authenticator
from scheduler.console.app import application
from scheduler.console.calls import Calls
from scheduler.console.connect import ConnectService
from scheduler.console.http_server import HttpServer
from scheduler.console.live import LiveMaps, LiveStream
from scheduler.console.login import LoginOfServer
from scheduler.console.past import PastOfServer, timeline_response
from scheduler.service.backend import Backend
from scheduler.service.rpc.service import SERVICE


def console_server(
    backend: Backend,
    calls: Calls,
    auth: Authenticator | None,
    most_bytes: int,
    store: str,
    *,
    is_local: bool,
) -> HttpServer:
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
    return HttpServer(application(services, routes, is_local), ending)


def log_server(content: bytes) -> HttpServer:
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
    return HttpServer(application([], routes, is_local=True), ending)
