"""The HTTP server of a thread: uvicorn on an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

STOP_S = 5.0  # for answers under way, at the end
PATIENCE_S = 30.0  # for whoever has connected to say what they want
_KEEP_ALIVE_S = 75

Beside = Callable[[], AbstractAsyncContextManager[None]]


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process, of which this is one thread."""
        yield


class _Protocol(H11Protocol):
    """Closes connections that bring no request: anybody may open them, and each takes a file."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._impatience = self.loop.call_later(PATIENCE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None:
            self._impatience.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._impatience.cancel()
        super().connection_lost(exc)


class HttpServer:
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
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
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
