"""How the service says no: gRPC codes, and details for a program to switch on.

The reasons are a closed list, ErrorReason in error.proto. What each comes as stands in
RULES, and every refusal is made here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from muster.structs import struct
from scheduler.core import Code, Rejected
from scheduler.engine.feed import Closed, FellBehind
from scheduler.engine.history import TooManyPasses
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.eventlog.store import (
    Compacted,
    Deposed,
    NotRead,
    NotWritten,
    StoreError,
    Unreachable,
)
from scheduler.files.errors import InputError
from scheduler.v1 import error_pb2
from scheduler.wire.lists.filters import BadFilter
from scheduler.wire.lists.paging import BadOrder, BadToken
from scheduler.wire.specs import wire_path

DOMAIN = "muster"
PREFIX = "ERROR_REASON_"

Reason: TypeAlias = "error_pb2.ErrorReason.ValueType"

log = logging.getLogger("muster.service")


@struct(frozen=True, slots=True)
class ErrorRule:
    """How errors of one reason are answered. gRPC code of a reason. `retry_s`: the same call may
    succeed so much later."""

    code: grpc.StatusCode
    retry_s: float | None = None


_Status = grpc.StatusCode

RULES: Final[dict[Reason, ErrorRule]] = {
    error_pb2.ERROR_REASON_INVALID: ErrorRule(_Status.INVALID_ARGUMENT),
    error_pb2.ERROR_REASON_NOT_FOUND: ErrorRule(_Status.NOT_FOUND),
    error_pb2.ERROR_REASON_ALREADY_EXISTS: ErrorRule(_Status.ALREADY_EXISTS),
    error_pb2.ERROR_REASON_WRONG_STATE: ErrorRule(_Status.FAILED_PRECONDITION),
    error_pb2.ERROR_REASON_INFEASIBLE: ErrorRule(_Status.FAILED_PRECONDITION),
    error_pb2.ERROR_REASON_CONFLICT: ErrorRule(_Status.ABORTED, 0.1),
    error_pb2.ERROR_REASON_WATCH_BEHIND: ErrorRule(_Status.ABORTED, 0.1),
    error_pb2.ERROR_REASON_COMPACTED: ErrorRule(_Status.OUT_OF_RANGE),
    error_pb2.ERROR_REASON_STARTING: ErrorRule(_Status.UNAVAILABLE, 1),
    error_pb2.ERROR_REASON_STOPPING: ErrorRule(_Status.UNAVAILABLE, 1),
    error_pb2.ERROR_REASON_STORE_FAILED: ErrorRule(_Status.UNAVAILABLE, 1),
    error_pb2.ERROR_REASON_NOT_WRITTEN: ErrorRule(_Status.UNAVAILABLE, 1),
    error_pb2.ERROR_REASON_INTERNAL: ErrorRule(_Status.INTERNAL),
    error_pb2.ERROR_REASON_UNAUTHENTICATED: ErrorRule(_Status.UNAUTHENTICATED),
    error_pb2.ERROR_REASON_PERMISSION_DENIED: ErrorRule(_Status.PERMISSION_DENIED),
    error_pb2.ERROR_REASON_EXHAUSTED: ErrorRule(_Status.RESOURCE_EXHAUSTED, 1),
    error_pb2.ERROR_REASON_ETAG_MISMATCH: ErrorRule(_Status.ABORTED),
    error_pb2.ERROR_REASON_NOT_LEADER: ErrorRule(_Status.UNAVAILABLE, 0.1),
    error_pb2.ERROR_REASON_NOT_CAUGHT_UP: ErrorRule(_Status.UNAVAILABLE, 0.1),
}

_REASONS: Final[dict[Code, Reason]] = {
    Code.INVALID: error_pb2.ERROR_REASON_INVALID,
    Code.NOT_FOUND: error_pb2.ERROR_REASON_NOT_FOUND,
    Code.ALREADY_EXISTS: error_pb2.ERROR_REASON_ALREADY_EXISTS,
    Code.PRECONDITION: error_pb2.ERROR_REASON_WRONG_STATE,
    Code.INFEASIBLE: error_pb2.ERROR_REASON_INFEASIBLE,
    Code.EXHAUSTED: error_pb2.ERROR_REASON_EXHAUSTED,
    Code.STALE: error_pb2.ERROR_REASON_ETAG_MISMATCH,
    Code.DENIED: error_pb2.ERROR_REASON_PERMISSION_DENIED,
}


def word(reason: Reason) -> str:
    """Return the reason as ErrorInfo has it."""
    return error_pb2.ErrorReason.Name(reason).removeprefix(PREFIX)


class ApiError(Exception):
    """A call that ends in an error, with one sentence that says why.

    `violations`: (path in the request, what is wrong). `resource`: kind and name of what was not
    found. `metadata`: of ErrorInfo.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        violations: Iterable[tuple[str, str]] = (),
        resource: tuple[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.violations = tuple(violations)
        self.resource = resource
        self.metadata = dict(metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """As pickle makes it again, on its way out of another process."""
        made_of = (self.reason, self.message, self.violations, self.resource, self.metadata)
        return type(self), made_of

    @property
    def code(self) -> grpc.StatusCode:
        return RULES[self.reason].code

    def status(self) -> Status:
        """Return the error as google.rpc.Status."""
        status = Status(code=self.code.value[0], message=self.message)
        info = ErrorInfo(reason=word(self.reason), domain=DOMAIN, metadata=self.metadata)
        status.details.add().Pack(info)
        if self.violations:
            fields = [
                BadRequest.FieldViolation(field=field, description=text)
                for field, text in self.violations
            ]
            status.details.add().Pack(BadRequest(field_violations=fields))
        if self.resource:
            kind, name = self.resource
            resource = ResourceInfo(
                resource_type=kind, resource_name=name, description=self.message
            )
            status.details.add().Pack(resource)
        if (retry_s := RULES[self.reason].retry_s) is not None:
            retry = RetryInfo()
            retry.retry_delay.FromMilliseconds(round(retry_s * 1_000))
            status.details.add().Pack(retry)
        return status


def rejected(answer: Rejected, prefix: str = "") -> ApiError:
    """Convert a rejection by admit. `prefix`: where the command's fields lie in the request."""
    violations = [
        (v.field if v.field == "request_id" else prefix + wire_path(v.field), v.message)
        for v in answer.violations
    ]
    return ApiError(_REASONS[answer.code], answer.message, violations, answer.missing)


def undecodable(reason: str) -> ApiError:
    """Make the error of bytes that are no request. `reason`: as protobuf has it."""
    message = f"the message is not what this method takes: {reason}"
    return ApiError(error_pb2.ERROR_REASON_INVALID, message)


def invalid(field: str, message: str) -> ApiError:
    """Make the error of a request with one field at fault."""
    text = f"{field}: {message}"
    return ApiError(error_pb2.ERROR_REASON_INVALID, text, [(field, message)])


def invalid_input(error: InputError, prefix: str) -> ApiError:
    """Make the error of a specification, with all its faults."""
    problems = [(prefix + field, message) for field, message in error.problems]
    return ApiError(error_pb2.ERROR_REASON_INVALID, str(error), problems)


def not_found(kind: str, name: str) -> ApiError:
    """Make the error of a thing that does not exist. `kind`: job, host and so on."""
    message = f"no {kind} {name!r}"
    return ApiError(error_pb2.ERROR_REASON_NOT_FOUND, message, resource=(kind, name))


# Errors of which there is no more to say than a sentence.
infeasible = partial(ApiError, error_pb2.ERROR_REASON_INFEASIBLE)
wrong_state = partial(ApiError, error_pb2.ERROR_REASON_WRONG_STATE)
compacted = partial(ApiError, error_pb2.ERROR_REASON_COMPACTED)
conflict = partial(ApiError, error_pb2.ERROR_REASON_CONFLICT)
unauthenticated = partial(ApiError, error_pb2.ERROR_REASON_UNAUTHENTICATED)
denied = partial(ApiError, error_pb2.ERROR_REASON_PERMISSION_DENIED)
exhausted = partial(ApiError, error_pb2.ERROR_REASON_EXHAUSTED)
starting = partial(ApiError, error_pb2.ERROR_REASON_STARTING)
not_caught_up = partial(ApiError, error_pb2.ERROR_REASON_NOT_CAUGHT_UP)


def not_leader(address: str) -> ApiError:
    """Make the error of a server that does not lead. `address`: of the leader, "" when none is
    known."""
    message = f"another server leads: {address}" if address else "no server leads just now"
    metadata = {"leader": address} if address else {}
    return ApiError(error_pb2.ERROR_REASON_NOT_LEADER, message, metadata=metadata)


_STOPPING = ApiError(error_pb2.ERROR_REASON_STOPPING, "the server is stopping")
_BEHIND = ApiError(
    error_pb2.ERROR_REASON_WATCH_BEHIND,
    "the watch fell behind; resume from the last version you saw",
)
_STORE_FAILED = ApiError(
    error_pb2.ERROR_REASON_STORE_FAILED, "the store failed; the change may or may not be stored"
)
_INTERNAL = ApiError(error_pb2.ERROR_REASON_INTERNAL, "internal error of the server; see its log")


class error_boundary:
    """Return a context that ends the call with the right code, whatever is raised inside. What gRPC
    raises passes: the call has ended by then, or its caller is gone. Cost: 0.5 us."""

    __slots__ = ("_context",)

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, grpc.aio.BaseError):
            await self._context.abort_with_status(rpc_status.to_status(_refused(error).status()))


def _refused(error: Exception) -> ApiError:
    """The refusal that an exception ends a call with; a bug goes to the log."""
    match error:
        case ApiError():
            return error
        case BadToken():
            return invalid("page_token", str(error))
        case BadOrder():
            return invalid("order_by", str(error))
        case BadFilter():
            return invalid("filter", str(error))
        case WriterStopped() | Closed():
            return _STOPPING
        case NotLeading():
            return not_leader(error.leader)
        case Deposed():
            return not_leader("")
        case FellBehind():
            return _BEHIND
        case TooManyPasses():
            return exhausted(str(error))
        case Compacted():
            return compacted(str(error))
        case NotWritten():
            return ApiError(error_pb2.ERROR_REASON_NOT_WRITTEN, f"nothing was changed: {error}")
        case NotRead():
            log.error("the store failed: %s", error)
            return ApiError(error_pb2.ERROR_REASON_STORE_FAILED, f"nothing was changed: {error}")
        case Unreachable():  # said once by the replica, not for every call
            return _STORE_FAILED
        case StoreError():
            log.error("the store failed: %s", error)
            return _STORE_FAILED
    log.error("a call failed", exc_info=error)
    return _INTERNAL
