"""What an issuer says of itself, and the keys that sign its tokens.

Both are fetched in a thread, so that nobody waits for an issuer: neither the server's event loop
nor a caller with a token of another kind. They are used for five minutes, then fetched again when
a token comes; a key that is not there is looked for at once, but every ten seconds at most.
While the issuer does not answer, keys stay good for a day.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import jwt

from scheduler.access.oidc.http import IssuerFailed, ask
from scheduler.access.oidc.section import is_private
from scheduler.service.errors import starting, unauthenticated

RS256, ES256 = "RS256", "ES256"
ALGORITHMS: Final = (RS256, ES256)
DISCOVERY: Final = "/.well-known/openid-configuration"
FRESH_S = 300.0
KEPT_S = 86_400.0
PAUSE_S = 10.0  # from one fetch to the next
_LEAST_RSA_BITS = 2_048
_MOST_KEYS = 100

log = logging.getLogger("muster.access")


@dataclass(frozen=True, slots=True)  # its keys stay out of its repr
class IssuerMetadata:
    """Discovery document of an issuer, and its keys by algorithm and id."""

    authorization_endpoint: str
    token_endpoint: str
    auth_methods: tuple[str, ...]
    keys: dict[tuple[str, str | None], SigningKey] = field(repr=False)

    def key(self, algorithm: str, kid: str | None) -> SigningKey | None:
        """Return the key that signed a token. A token that names no key needs an issuer with a
        single key."""
        if kid is not None:
            return self.keys.get((algorithm, kid))
        fitting = [key for (alg, _), key in self.keys.items() if alg == algorithm]
        return fitting[0] if len(fitting) == 1 else None


@dataclass(frozen=True, slots=True)  # its key stays out of its repr
class SigningKey:
    """A public key of the issuer. `jwk`: as the issuer writes it, by which keys are compared."""

    jwk: tuple[tuple[str, str], ...]
    key: jwt.PyJWK = field(compare=False, repr=False)


class Issuer:
    """The metadata and keys of an issuer, fetched in threads. Use from any thread."""

    def __init__(self, url: str, ca: str | None = None) -> None:
        self.url = url
        self.ca = ca
        self._metadata: IssuerMetadata | None = None
        self._problem = ""
        self._fetched_s = self._begun_s = float("-inf")
        self._fetching: threading.Event | None = None  # set at its end
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Begin to fetch what is unknown or out of date, and return whether a fetch is under
        way."""
        with self._lock:
            return self._fetching is not None or (not self._is_fresh() and self._fetch())

    def metadata(self) -> IssuerMetadata | None:
        """Newest known metadata; None: not known yet, and `problem` says why."""
        self.begin()
        with self._lock:
            return self._metadata

    @property
    def problem(self) -> str:
        """Why the last fetch failed; "" when it did not, or none has ended."""
        return self._problem

    def key(self, algorithm: str, kid: str | None) -> SigningKey:
        """Return the key that signed a token. Raises: ApiError: starting while keys are being
        fetched, else unauthenticated."""
        with self._lock:
            known = self._metadata if time.monotonic() - self._fetched_s < KEPT_S else None
            matching = known.key(algorithm, kid) if known else None
            is_coming = self._fetching is not None
            if not is_coming and (matching is None or not self._is_fresh()):
                is_coming = self._fetch()
            problem = self._problem
        if matching is not None:
            return matching
        if is_coming:
            raise starting(f"the keys of {self.url} are being fetched: try again")
        if known is None:
            raise unauthenticated(f"the keys of {self.url} are not known: {problem}")
        raise unauthenticated(f"the ID token is signed by a key that {self.url} does not have")

    def wait(self, timeout_s: float) -> None:
        """Wait until fetches under way have ended. Blocks."""
        with self._lock:
            fetching = self._fetching
        if fetching is not None:
            fetching.wait(timeout_s)

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._fetched_s < FRESH_S

    def _fetch(self) -> bool:
        """Begin, unless the last time is too short ago; whether it begins."""
        if time.monotonic() - self._begun_s < PAUSE_S:
            return False
        self._begun_s = time.monotonic()
        self._fetching = threading.Event()
        threading.Thread(target=self._run, name="muster-oidc", daemon=True).start()
        return True

    def _run(self) -> None:
        made, problem = None, "its answer cannot be read"
        try:
            made, problem = fetched(self.url, self.ca), ""
        except IssuerFailed as error:
            problem = str(error)
        except Exception:
            log.exception("reading what %s says of itself failed", self.url)
        with self._lock:
            is_news = problem != self._problem
            self._problem = problem
            if made is not None:
                self._metadata, self._fetched_s = made, time.monotonic()
            ended, self._fetching = self._fetching, None
        if is_news and problem:
            log.warning("the OpenID Connect issuer %s: %s", self.url, problem)
        elif is_news:
            log.warning("the OpenID Connect issuer %s answers again", self.url)
        if ended is not None:
            ended.set()


def fetched(url: str, ca: str | None) -> IssuerMetadata:
    """Fetch the issuer's discovery document and keys. Raises: IssuerFailed."""
    said = ask(url.rstrip("/") + DISCOVERY, ca)
    if said.get("issuer") != url:
        other = str(said.get("issuer"))[:200]
        raise IssuerFailed(f"it calls itself {other!r}: the auth file must say exactly that")
    authorize, token, jwks = (
        _address(said, key) for key in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    )
    methods = said.get("token_endpoint_auth_methods_supported")
    listed = tuple(map(str, methods)) if isinstance(methods, list) else ()
    keys = dict(_keys(ask(jwks, ca)))
    if not keys:
        raise IssuerFailed(f"it has no key for {' or '.join(ALGORITHMS)}")
    return IssuerMetadata(authorize, token, listed, keys)


def _address(said: dict[str, Any], key: str) -> str:
    """Raises: IssuerFailed."""
    value = said.get(key)
    if not isinstance(value, str) or not is_private(value):
        raise IssuerFailed(f"its {key} is not an https:// address")
    return value


def _keys(said: dict[str, Any]) -> Iterator[tuple[tuple[str, str | None], SigningKey]]:
    """The keys that may sign. Others are passed over: of other algorithms, for encryption,
    short."""
    listed = said.get("keys")
    for jwk in (listed if isinstance(listed, list) else [])[:_MOST_KEYS]:
        if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
            continue
        algorithm = _algorithm(jwk)
        if algorithm is None or jwk.get("alg", algorithm) != algorithm:
            continue
        try:
            key = jwt.PyJWK(jwk, algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if algorithm == RS256 and key.key.key_size < _LEAST_RSA_BITS:
            continue
        kid = jwk.get("kid")
        stamp = tuple(sorted((str(name), str(value)) for name, value in jwk.items()))
        yield (algorithm, kid if isinstance(kid, str) else None), SigningKey(stamp, key)


def _algorithm(jwk: dict[str, Any]) -> str | None:
    """By the kind of key alone, never by what a token says."""
    if jwk.get("kty") == "RSA":
        return RS256
    return ES256 if (jwk.get("kty"), jwk.get("crv")) == ("EC", "P-256") else None
