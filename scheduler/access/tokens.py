"""Tokens: what people and programs prove who they are with, and agents the name of their host.

A bearer token is `muster_ID_SECRET`, of which the server keeps the id and a hash.
The secret is 256 random bits, so one round of SHA-256 hides it for good: there is
nothing to guess. A slow hash (scrypt) protects what people choose; here it would only
make every call dear, and let strangers burn the time of the server with made-up tokens.

The join token of an agent without a certificate is `join:HOST:MAC`, the MAC an HMAC-SHA256 of the
name under a secret that servers share. So each host has its own, which is of no use to another, and
no server keeps a list. The secret file has one secret a line: tokens are made with the first and
taken from any, so that a secret is changed by a new first line, and by leaving out the old one once
all hosts have new tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from muster.structs import struct

_FORM = re.compile(r"muster_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


@struct(frozen=True, slots=True)
class Minted:
    """A new token: `text` for its owner alone, `id` and `sha256` for the auth file."""

    text: str
    id: str
    sha256: str


def mint() -> Minted:
    """Make a random token that nobody can guess."""
    id_ = secrets.token_hex(4)
    text = f"muster_{id_}_{secrets.token_urlsafe(32)}"
    return Minted(text, id_, digest(text))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def id_of(text: str) -> str | None:
    """Return the id that a token claims; None when it has not the form of a token."""
    match = _FORM.fullmatch(text)
    return match[1] if match else None


def matches(text: str, sha256: str) -> bool:
    """Return whether `text` has this hash, in a time that does not depend on where they differ."""
    return hmac.compare_digest(digest(text), sha256)


LEAST_CHARACTERS = 32


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def join_token(secret: str, host: str) -> str:
    return f"join:{host}:{_mac(secret, host)}"


SERVER_URI = "urn:muster:server"  # in a certificate whose bearer may pass on calls of others
HOST_URI = "urn:muster:host:"  # before the name of a host, in the certificate of its agent


def certified_host(alternatives: Iterable[str]) -> str | None:
    """Return the host that a certificate with these alternative names identifies; None for a
    certificate of no host, such as a caller's."""
    uris = (name for name in alternatives if name.startswith(HOST_URI))
    return next((uri.removeprefix(HOST_URI) for uri in uris), None)


def host_of(token: str, known: tuple[str, ...]) -> str | None:
    """Return the host whose join token was made with one of these secrets; None where none of them
    made it."""
    kind, _, rest = token.partition(":")
    host, _, mac = rest.rpartition(":")
    if kind != "join" or not host:
        return None
    matches = [hmac.compare_digest(_mac(secret, host), mac) for secret in known]
    return host if any(matches) else None


def _mac(secret: str, host: str) -> str:
    return hmac.new(secret.encode(), f"muster join {host}".encode(), hashlib.sha256).hexdigest()
