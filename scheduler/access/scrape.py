"""Who may read /metrics: on loopback whoever is there, beyond it those who may look at everything.

Metrics name every tenant. So beyond this machine the auth file decides, as for calls: a
token of a viewer of all tenants, or of anybody above, over the server's own certificate.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.access import tls
from scheduler.access.authfile import AuthFile, load_auth
from scheduler.access.door import Access, check_exposure
from scheduler.access.identity import bearer
from scheduler.access.loopback import is_loopback
from scheduler.access.watched import Watched

log = logging.getLogger("muster.access")


@dataclass(frozen=True, slots=True)
class Turnstile:
    """`tls` None: in the clear. `auth` None: nobody is asked. Use from any thread."""

    tls: Watched[ssl.SSLContext] | None = None
    auth: Watched[AuthFile] | None = None
    clock: Callable[[], int] = lambda: 0

    def refusal(self, authorization: str | None) -> tuple[str, str] | None:
        """HTTP status and sentence for who shows this header; None: they may read."""
        if self.auth is None:
            return None
        token = bearer(authorization) if authorization is not None else None
        if token is None:
            return "401 Unauthorized", "this server asks who scrapes: give a bearer token"
        found = self.auth.current().by_token(token, self.clock())
        if found is None:
            return "401 Unauthorized", "the token is not known, was revoked or has expired"
        if found.tenant:
            message = f"{found.name} belongs to tenant {found.tenant}; metrics are of all of them"
            return "403 Forbidden", message
        return None


def turnstile(host: str, port: int, access: Access, clock: Callable[[], int]) -> Turnstile:
    """How /metrics is to be served there.

    Raises: CannotListen when others than this machine's could read it unasked or on the way,
    unless that is what the operator insists on; InputError.
    """
    if is_loopback(host):
        return Turnstile()
    check_exposure(host, f"{host}:{port} for metrics", "anybody may read the metrics", access)
    files, path = access.tls, access.auth_file
    return Turnstile(
        Watched(files.paths, lambda: tls.context(files)) if files else None,
        Watched((path,), lambda: load_auth(path)) if path else None,
        clock,
    )
