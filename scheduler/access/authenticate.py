"""Who makes a call: by its bearer token, else by its client certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from scheduler.access.authfile import AuthFile
from scheduler.access.reloading import Reloading
from scheduler.identity import ANYBODY, Caller
from scheduler.service.errors import unauthenticated

Context = grpc.aio.ServicerContext[Any, Any]
Identify = Callable[[Context], Caller]

_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class CallerNames:
    """Alternative names and common name of a client certificate."""

    sans: tuple[str, ...] = ()
    common_name: str = ""


def anybody(_: Context) -> Caller:
    """Nobody is asked: every caller may do everything."""
    return ANYBODY


def by_file(file: Reloading[AuthFile], clock: Callable[[], int]) -> Identify:
    """Whom the auth file knows. `clock`: nanoseconds since 1970."""

    def identify(context: Context) -> Caller:
        text = _token(context)
        if text is not None:
            entry = file.current().by_token(text, clock())
            if entry is None:  # a certificate must not make up for a revoked token
                raise unauthenticated("the token is not known, was revoked or has expired")
            return entry
        names = _certificate(context)
        entry = file.current().by_certificate(names.sans, names.common_name)
        if entry is None:
            raise unauthenticated(unknown(names, "calls"))
        return entry

    return identify


def unknown(names: CallerNames, does: str) -> str:
    """Why a certificate with these names, or none, lets nobody in."""
    if not names.sans and not names.common_name:
        return f"this server asks who {does}: give a token or a client certificate"
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
    """The token of an authorization header; "" for credentials of another kind."""
    is_bearer = text[: len(_BEARER)].lower() == _BEARER
    return text[len(_BEARER) :].strip() if is_bearer else ""


def _certificate(context: Context) -> CallerNames:
    """Those of a certificate that the handshake has verified."""
    shown = context.auth_context()
    sans = tuple(_text(name) for name in shown.get("x509_subject_alternative_name", ()))
    return CallerNames(sans, next((_text(name) for name in shown.get("x509_common_name", ())), ""))


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
