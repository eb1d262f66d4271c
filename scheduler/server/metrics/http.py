"""/metrics as a web application, and who may read it: callers who may look at everything, and on
loopback anybody, but no names of tenants and jobs.

The auth file decides, as for calls: a token of a viewer of all tenants, or of anybody above. Beyond
loopback it is shown over the server's own certificate.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import grpc
from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from scheduler.access.authenticate import Authenticator, CallerNames, bearer
from scheduler.console.http_server import HttpServer
from scheduler.observe.catalogue import NAMING
from scheduler.service.errors import ApiError

_STATUS = {grpc.StatusCode.PERMISSION_DENIED: 403, grpc.StatusCode.UNAVAILABLE: 503}

log = logging.getLogger("muster.access")


class MetricsApp:
    """Answers scrapes of a registry. `auth` None: readers are not asked who they are. `is_local`:
    readers without a token see metrics that name nobody."""

    def __init__(
        self, registry: CollectorRegistry, auth: Authenticator | None, *, is_local: bool
    ) -> None:
        self._auth = auth
        self._is_local = is_local
        self._everything = make_asgi_app(registry)
        self._nameless = make_asgi_app(_Nameless(registry))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authorization = Headers(scope=scope).get("authorization")
        app = self._everything
        if refusal := self.refusal(authorization):
            app = self._nameless
            if authorization is not None or not self._is_local:
                status, message = refusal
                log.warning("refused /metrics to %s: %s", scope["client"][0], message)
                headers = {"www-authenticate": 'Bearer realm="muster"'} if status == 401 else None
                app = PlainTextResponse(f"{message}\n", status, headers)
        await app(scope, receive, send)

    def refusal(self, authorization: str | None) -> tuple[int, str] | None:
        """Return HTTP status and sentence of a refusal, by the header that the reader shows; None
        where they may read everything."""
        if self._auth is None:
            return None
        if authorization is None:
            return (
                401,
                "this server must know who scrapes: give the token of a viewer of all tenants",
            )
        try:
            caller = self._auth.caller(bearer(authorization), CallerNames(), "scrapes")
        except ApiError as error:
            return _STATUS.get(error.code, 401), error.message
        if caller.tenant:
            message = f"{caller.name} belongs to tenant {caller.tenant}; metrics are of all of them"
            return 403, message
        return None


class _Nameless(CollectorRegistry):
    """Collect the series of a registry, without those that name tenants or jobs."""

    def __init__(self, registry: Collector) -> None:
        super().__init__()
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if NAMING.isdisjoint(s.labels)]
            yield metric


def metrics_server(
    registry: CollectorRegistry, auth: Authenticator | None, *, is_local: bool
) -> HttpServer:
    """Make the server of /metrics. `auth`, `is_local`: as for MetricsApp."""
    return HttpServer(MetricsApp(registry, auth, is_local=is_local), threading.Event())
