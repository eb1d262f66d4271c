"""Why a command changes nothing: a value, for a refusal is an expected answer."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct


class Code(StrEnum):
    """Why a command was refused, for a caller who switches on it."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PRECONDITION = "precondition"
    INFEASIBLE = "infeasible"
    STALE = "stale"
    EXHAUSTED = "exhausted"
    DENIED = "denied"


@struct(frozen=True, slots=True)
class Violation:
    """`field` is a dotted path into the command."""

    field: str
    message: str


@struct(frozen=True, slots=True)
class Rejected:
    """A command that changes nothing. `missing`: kind and name of what was not found."""

    code: Code
    message: str
    violations: tuple[Violation, ...] = ()
    missing: tuple[str, str] | None = None


def invalid(field: str, message: str) -> Rejected:
    return Rejected(Code.INVALID, f"{field}: {message}", (Violation(field, message),))


def no_job(name: str, uid: str = "") -> Rejected:
    which = f" with uid {uid!r}" if uid else ""
    return Rejected(Code.NOT_FOUND, f"no job {name!r}{which}", missing=("job", name))


def no_host(name: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"no host {name!r} in this fabric", missing=("host", name))


def no_link(name: str) -> Rejected:
    message = f"no domain {name!r} in this fabric has an uplink"
    return Rejected(Code.NOT_FOUND, message, missing=("link", name))


def no_window(name: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"no window {name!r}", missing=("window", name))
