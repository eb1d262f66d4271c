"""The small HTTP server before /metrics. Each request has a thread, and its handshake too:
a scraper that says nothing holds up nobody else."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from scheduler.observe.catalogue import NAMING
from scheduler.server.metrics.access import MetricsAuth, certificate_names

_NAMES = "muster.certificate"  # in a request's environment
PATIENCE_S = 10.0  # for a scraper to say what it wants

log = logging.getLogger("muster.access")


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S  # of the socket

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""

    def get_environ(self) -> dict[str, Any]:
        environ = super().get_environ()
        if isinstance(self.connection, ssl.SSLSocket):
            environ[_NAMES] = certificate_names(self.connection.getpeercert())
        return environ


class _Server(ThreadingWSGIServer):
    turnstile = MetricsAuth()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a request in its own thread, with TLS where it is configured."""
        if self.turnstile.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(PATIENCE_S)
        context = self.turnstile.tls.current()
        with context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def shutdown_request(self, request: Any) -> None:
        if request.fileno() >= 0:  # else TLS has taken it over, and closed it
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log callers that hang up or do not speak TLS, without a traceback."""
        log.info("a scraper at %s was not answered", client_address[0], exc_info=True)


@contextmanager
def served(
    host: str, port: int, registry: CollectorRegistry, turnstile: MetricsAuth
) -> Iterator[int]:
    """Return a context in which /metrics is served, with the port. Raises: OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    kind = type("_Here", (_Server,), {"address_family": family, "turnstile": turnstile})
    app = _guarded(make_wsgi_app(registry), make_wsgi_app(_Nameless(registry)), turnstile)
    server: WSGIServer = make_server(str(address[0]), port, app, kind, handler_class=_Handler)
    thread = Thread(target=server.serve_forever, name="muster-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Nameless(CollectorRegistry):
    """Collect the series of a registry, without those that name tenants or jobs."""

    def __init__(self, registry: Collector) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if NAMING.isdisjoint(s.labels)]
            yield metric


def _guarded(app: Any, nameless: Any, turnstile: MetricsAuth) -> Any:
    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        authorization = environ.get("HTTP_AUTHORIZATION")
        refusal = turnstile.refusal(authorization, environ.get(_NAMES))
        if refusal is None:
            return app(environ, start_response)
        if turnstile.is_local and authorization is None:
            return nameless(environ, start_response)
        status, message = refusal
        log.warning("refused /metrics to %s: %s", environ.get("REMOTE_ADDR", "?"), message)
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if status.startswith("401"):
            headers.append(("WWW-Authenticate", 'Bearer realm="muster"'))
        start_response(status, headers)
        return [f"{message}\n".encode()]

    return answer
