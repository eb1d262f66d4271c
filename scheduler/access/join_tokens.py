"""Join tokens: what an agent without a certificate proves the name of its host with.

A token is `join:HOST:MAC`, the MAC an HMAC-SHA256 of the name under a secret that servers share.
So each host has its own, which is of no use to another, and no server keeps a list. The secret
file has one secret a line: tokens are made with the first and taken from any, so that a secret is
changed by a new first line, and by leaving out the old one once all hosts have new tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

LEAST_CHARACTERS = 32


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def join_token(secret: str, host: str) -> str:
    return f"join:{host}:{_mac(secret, host)}"


def host_of(token: str, known: tuple[str, ...]) -> str | None:
    """The host for which one of these secrets made the token; None: none of them did."""
    kind, _, rest = token.partition(":")
    host, _, mac = rest.rpartition(":")
    if kind != "join" or not host:
        return None
    matches = [hmac.compare_digest(_mac(secret, host), mac) for secret in known]
    return host if any(matches) else None


def _mac(secret: str, host: str) -> str:
    return hmac.new(secret.encode(), f"muster join {host}".encode(), hashlib.sha256).hexdigest()
