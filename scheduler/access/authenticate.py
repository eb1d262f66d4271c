"""Who makes a call: by its bearer token, an ID token among them, else by its client certificate."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import grpc

from muster.structs import struct
from scheduler.access.auth_file.reading import AuthFile, load_auth
from scheduler.access.oidc.section import OidcKeys, is_id_token
from scheduler.access.reloading import Reloading
from scheduler.access.tokens import SERVER_URI, certified_host
from scheduler.identity import ANYBODY, Caller
from scheduler.service.errors import unauthenticated

if TYPE_CHECKING:
    from scheduler.access.oidc.id_tokens import IdTokens

Context = grpc.aio.ServicerContext[Any, Any]
Identify = Callable[[Context], Caller]

CALLER = "muster-caller-bin"  # names of a certificate, of whoever shows that of a server
PEER = "muster-peer"  # where the caller is, by the word of the same
_BEARER = "bearer "


@struct(frozen=True, slots=True)
class CallerNames:
    """Alternative names and common name of a client certificate."""

    sans: tuple[str, ...] = ()
    common_name: str = ""


def anybody(_: Context) -> Caller:
    """Return the caller of a server that asks nobody who they are, who may do everything."""
    return ANYBODY


class Authenticator:
    """The callers whom the auth file knows. `clock`: nanoseconds since 1970. Use from any thread.

    Raises: InputError when the file cannot be read."""

    def __init__(self, path: str, clock: Callable[[], int]) -> None:
        self._file = Reloading((path,), lambda: load_auth(path))
        self._clock = clock

    @cached_property
    def id_tokens(self) -> IdTokens:
        """The reader of ID tokens, loaded when it is first used, for few servers take ID tokens."""
        from scheduler.access.oidc.id_tokens import IdTokens

        return IdTokens(self.section, self._clock)

    def section(self) -> OidcKeys | None:
        """Return the `oidc` section as the file has it now; None: no ID tokens count."""
        return self._file.current().oidc

    def begin(self) -> None:
        """Fetch the issuer's keys, if there is one, so that they are there when a token comes."""
        if self.section() is not None:
            self.id_tokens.begin()

    def identify(self, context: Context) -> Caller:
        """Return who makes the call. Raises: ApiError."""
        text = _token(context)
        return self.caller(text, CallerNames() if text is not None else _names(context), "calls")

    def caller(self, token: str | None, names: CallerNames, does: str) -> Caller:
        """Return the caller of the token if there is one, else of the certificate. A valid
        certificate does not make up for a bad token. `does`: what the caller does, for the message.
        Raises: ApiError."""
        file = self._file.current()
        if token is not None:
            return self._by_token(file, token)
        if (host := certified_host(names.sans)) is not None:
            words = f"this certificate is for the agent of host {host}, and lets nobody else in"
            raise unauthenticated(f"{words}: give a token or a certificate of a caller")
        caller = file.by_certificate(names.sans, names.common_name)
        if caller is None:
            raise unauthenticated(unknown(names, does))
        return caller

    def _by_token(self, file: AuthFile, token: str) -> Caller:
        """Raises: ApiError."""
        if file.oidc is not None and is_id_token(token):
            return self.id_tokens.caller(token)
        caller = file.by_token(token, self._clock())
        if caller is None:
            raise unauthenticated("the token is not known, was revoked or has expired")
        return caller

    def look(self) -> None:
        """Read a changed auth file now."""
        self._file.look()
        self.begin()


def unknown(names: CallerNames, does: str) -> str:
    """Say why a certificate with these names, or no certificate, admits nobody."""
    if not names.sans and not names.common_name:
        return f"this server must know who {does}: give a token or a client certificate"
    named = [f"san {san}" for san in names.sans]
    named += [f"common_name {names.common_name}"] if names.common_name else []
    return f"the auth file does not know this certificate ({', '.join(named)})"


def _token(context: Context) -> str | None:
    """The bearer token; "" for credentials of another kind, None without any."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            return bearer(value.decode("ascii", "replace") if isinstance(value, bytes) else value)
    return None


def bearer(text: str) -> str:
    """Return the token of an authorization header; "" for credentials of another kind."""
    is_bearer = text[: len(_BEARER)].lower() == _BEARER
    return text[len(_BEARER) :].strip() if is_bearer else ""


def _names(context: Context) -> CallerNames:
    """Return the names of the caller's certificate, or of that which another server has verified,
    where that passes the call on. Raises: ApiError."""
    shown = certificate_names(context)
    passed = [value for key, value in context.invocation_metadata() or () if key == CALLER]
    if not passed and SERVER_URI not in shown.sans:
        return shown
    try:
        sans, common_name = json.loads(passed[0])
        names = CallerNames(tuple(map(str, sans)), str(common_name))
    except (IndexError, ValueError, TypeError, RecursionError):
        raise unauthenticated("this certificate is a server's, and lets no caller in") from None
    if SERVER_URI not in shown.sans or SERVER_URI in names.sans:
        raise unauthenticated(f"calls of others are passed on by a certificate with {SERVER_URI}")
    return names


def certificate_names(context: Context) -> CallerNames:
    """Return the names of a certificate that the handshake has verified."""
    shown = context.auth_context()
    sans = tuple(_text(name) for name in shown.get("x509_subject_alternative_name", ()))
    return CallerNames(sans, next((_text(name) for name in shown.get("x509_common_name", ())), ""))


def peer_of(context: Context) -> str:
    """Return where the call comes from, for the log: also through which server, where one passes it
    on and shows its certificate."""
    through = context.peer()
    for key, value in context.invocation_metadata() or ():
        if key == PEER and SERVER_URI in certificate_names(context).sans:
            return f"{_text(value)} through {through}"
    return through


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
