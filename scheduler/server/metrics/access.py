"""Who may read /metrics: callers who may look at everything, and on loopback anybody, but no
names of tenants and jobs.

The auth file decides, as for calls: a token or client certificate of a viewer of all tenants, or of
anybody above; beyond loopback over the server's own certificate.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import grpc

from muster.structs import struct
from scheduler.access import tls
from scheduler.access.addresses import is_loopback
from scheduler.access.authenticate import Authenticator, CallerNames, bearer
from scheduler.access.listener import Access, check_exposure
from scheduler.access.reloading import Reloading
from scheduler.service.errors import ApiError

_STATUS = {
    grpc.StatusCode.PERMISSION_DENIED: "403 Forbidden",
    grpc.StatusCode.UNAVAILABLE: "503 Service Unavailable",
}

log = logging.getLogger("muster.access")


@struct(frozen=True, slots=True)
class MetricsAuth:
    """Who may read metrics. `tls` None: without encryption. `auth` None: readers are not asked who
    they are. `is_local`: readers without credentials see metrics that name nobody. Use from any
    thread."""

    tls: Reloading[ssl.SSLContext] | None = None
    auth: Authenticator | None = None
    is_local: bool = False

    def refusal(
        self, authorization: str | None, names: CallerNames | None = None
    ) -> tuple[str, str] | None:
        """Return HTTP status and sentence of a refusal, by the header that the reader shows, else
        the verified certificate with these names; None where they may read."""
        if self.auth is None:
            return None
        token = bearer(authorization) if authorization is not None else None
        try:
            caller = self.auth.caller(token, names or CallerNames(), "scrapes")
        except ApiError as error:
            return _STATUS.get(error.code, "401 Unauthorized"), error.message
        if caller.tenant:
            message = f"{caller.name} belongs to tenant {caller.tenant}; metrics are of all of them"
            return "403 Forbidden", message
        return None


def certificate_names(shown: Mapping[str, Any] | None) -> CallerNames:
    """Return the names in a client certificate as Python's ssl has it; none without one."""
    names = shown or {}
    subject = dict(chain.from_iterable(names.get("subject", ())))
    sans = tuple(name for _, name in names.get("subjectAltName", ()))
    return CallerNames(sans, subject.get("commonName", ""))


def metrics_auth(host: str, port: int, access: Access, clock: Callable[[], int]) -> MetricsAuth:
    """Return how /metrics is to be served.

    Raises: CannotListen when users of other machines could read it unidentified or on the network,
    unless the operator insists on that; InputError.
    """
    files, path = access.tls, access.auth_file
    if is_loopback(host):
        return MetricsAuth(None, Authenticator(path, clock) if path else None, is_local=True)
    check_exposure(host, f"{host}:{port} for metrics", "anybody may read the metrics", access)
    return MetricsAuth(
        Reloading(files.paths, lambda: tls.context(files)) if files else None,
        Authenticator(path, clock) if path else None,
    )
