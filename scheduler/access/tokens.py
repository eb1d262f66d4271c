"""Bearer tokens: `muster_ID_SECRET`, of which the server keeps the id and a hash.

The secret is 256 random bits, so one round of SHA-256 hides it for good: there is
nothing to guess. A slow hash (scrypt) protects what people choose; here it would only
make every call dear, and let strangers burn the server's time with made-up tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_FORM = re.compile(r"muster_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token: `text` for its owner alone, `id` and `sha256` for the auth file."""

    text: str
    id: str
    sha256: str


def mint() -> Minted:
    """A token that nobody has or can guess."""
    id_ = secrets.token_hex(4)
    text = f"muster_{id_}_{secrets.token_urlsafe(32)}"
    return Minted(text, id_, digest(text))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def id_of(text: str) -> str | None:
    """Which token this claims to be; None when it has not the form of one."""
    match = _FORM.fullmatch(text)
    return match[1] if match else None


def matches(text: str, sha256: str) -> bool:
    """Whether `text` has this hash, in a time that tells nothing of it."""
    return hmac.compare_digest(digest(text), sha256)
