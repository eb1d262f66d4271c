"""Whose an ID token is: signature, issuer, audience and times (OpenID Connect Core 1.0, 3.1.3.7),
then the rules of the auth file.

Signatures that were found good are remembered, for a stream asks again with each message; times,
issuer, audience and rules are looked at each time, and a signature again when its key has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jwt

from scheduler.access.oidc.issuer import ALGORITHMS, Issuer, SigningKey
from scheduler.access.oidc.section import Claims, OidcKeys
from scheduler.core.model.job import SECOND_NS
from scheduler.files.errors import one_line, short
from scheduler.identity import Caller
from scheduler.service.errors import ApiError, denied, unauthenticated
from scheduler.v1 import error_pb2

LEEWAY_S = 30.0  # by which the issuer's clock may differ
LONGEST = 16_384
_LATEST_S = 10.0**12
_OTHER_KINDS = ("Bearer", "Refresh", "Offline", "Logout")  # claim `typ` of Keycloak's other tokens


class IdTokens:
    """Checks ID tokens of the issuer that the auth file names. `section`: of the auth file, as it
    is now. `clock`: nanoseconds since 1970. Use from any thread; nothing here waits for the issuer
    but `await_caller`."""

    def __init__(self, section: Callable[[], OidcKeys | None], clock: Callable[[], int]) -> None:
        self._section = section
        self._clock = clock
        self._issuer: Issuer | None = None
        self._lock = threading.Lock()

    def section(self) -> OidcKeys | None:
        return self._section()

    def issuer(self, section: OidcKeys) -> Issuer:
        """The issuer that the section names."""
        with self._lock:
            known = self._issuer
            if known is None or (known.url, known.ca) != (section.issuer, section.ca):
                known = self._issuer = Issuer(section.issuer, section.ca)
            return known

    def begin(self) -> None:
        """Fetch the keys, so that they are there when the first token comes."""
        if section := self._section():
            self.issuer(section).begin()

    def caller(self, text: str, nonce: str | None = None) -> Caller:
        """Return the caller of an ID token. `nonce`: the value that the token must have been made
        for. Raises: ApiError."""
        section = self._section()
        if section is None:
            raise unauthenticated(
                "this server takes no ID tokens: its auth file has no oidc section"
            )
        claims = self._verified(section, text)
        _check_claims(section, claims, self._clock() / SECOND_NS)
        if nonce is not None and not _is_same(claims.get("nonce"), nonce):
            raise unauthenticated("the ID token is not of this sign-in: its nonce is another")
        name = section.name(claims)
        if name is None:
            wanted = section.user or "email or sub"
            raise denied(f"the ID token names no user: its claim {wanted} is missing or no name")
        caller = section.caller(name, claims)
        if caller is None:
            raise denied(f"{name} has no role: no rule of the auth file matches the ID token")
        return caller

    def await_caller(self, text: str, nonce: str, timeout_s: float) -> Caller:
        """Wait for the issuer's keys; return the token's caller. Blocks. Raises: ApiError."""
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                return self.caller(text, nonce)
            except ApiError as error:
                left_s = end_s - time.monotonic()
                section = self._section()
                if error.reason != error_pb2.ERROR_REASON_STARTING or left_s <= 0 or not section:
                    raise
                self.issuer(section).wait(left_s)

    def _verified(self, section: OidcKeys, text: str) -> Claims:
        """The claims of a token with a good signature. Raises: ApiError."""
        algorithm, kid = _header(text)
        return _opened(text, self.issuer(section).key(algorithm, kid), algorithm)


def _header(text: str) -> tuple[str, str | None]:
    """Algorithm and key, as the token says. Raises: ApiError."""
    if len(text) > LONGEST:
        raise unauthenticated(f"the ID token is longer than {LONGEST:,} characters")
    try:
        header = jwt.get_unverified_header(text)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise unauthenticated("the token is not an ID token: its header cannot be read") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        taken = " and ".join(ALGORITHMS)
        said = one_line(short(algorithm))
        raise unauthenticated(f"ID tokens are taken that {taken} sign, not {said}")
    if str(header.get("typ", "JWT")).upper() != "JWT" or "crit" in header:
        raise unauthenticated("the token is not an ID token: its header is of another kind")
    return algorithm, kid


@lru_cache(maxsize=4_096)
def _opened(text: str, key: SigningKey, algorithm: str) -> Claims:
    """Return the claims that this key has signed. Raises: ApiError for another signature, which is
    not remembered."""
    options: Any = {f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss")}
    try:
        return jwt.decode(text, key.key, algorithms=[algorithm], options=options)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise unauthenticated("the signature of the ID token is wrong") from None


def _check_claims(section: OidcKeys, claims: Claims, now_s: float) -> None:
    """Raises: ApiError."""
    if claims.get("iss") != section.issuer:
        raise unauthenticated(f"the ID token is of another issuer than {section.issuer}")
    _check_audience(section.client_id, claims)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise unauthenticated("the ID token has no subject")
    if claims.get("typ") in _OTHER_KINDS or "events" in claims:
        raise unauthenticated("the token is not an ID token but one of another kind")
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    begins = _time(claims, "nbf") if "nbf" in claims else issued
    if now_s >= expires + LEEWAY_S:
        raise unauthenticated("the ID token has expired: sign in again")
    if now_s < max(begins, issued) - LEEWAY_S:
        raise unauthenticated("the ID token is not valid yet: do the clocks differ?")


def _check_audience(client_id: str, claims: Claims) -> None:
    """Raises: ApiError. Where there are several, it must have been made for us (azp)."""
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    party = claims.get("azp", client_id if len(audiences) == 1 else None)
    if client_id not in audiences or party != client_id:
        raise unauthenticated(f"the ID token is for another client than {client_id}")


def _time(claims: Claims, name: str) -> float:
    """Raises: ApiError unless it is seconds since 1970."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unauthenticated(f"the ID token has no {name}")
    if not 0 <= value < _LATEST_S:  # infinite, no number, or too large for one
        raise unauthenticated(f"the ID token has no {name} that is a time")
    return value


def _is_same(said: Any, nonce: str) -> bool:
    return isinstance(said, str) and said == nonce
