"""How the service says no: gRPC codes, and details for a program to switch on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from scheduler.core import Code, Rejected
from scheduler.feed import Closed, FellBehind
from scheduler.problems import InputError
from scheduler.store import StoreError
from scheduler.writer import Stopped

DOMAIN = "muster"

log = logging.getLogger("muster.service")

_CODES = {
    Code.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Code.INFEASIBLE: grpc.StatusCode.FAILED_PRECONDITION,
}


class Refused(Exception):
    """A call that ends in an error: its code, a sentence, and the fields at fault."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        violations: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.violations = tuple(violations)

    def status(self) -> Status:
        """The same as google.rpc.Status."""
        status = Status(code=self.code.value[0], message=self.message)
        status.details.add().Pack(ErrorInfo(reason=self.reason, domain=DOMAIN))
        if self.violations:
            fields = [
                BadRequest.FieldViolation(field=field, description=text)
                for field, text in self.violations
            ]
            status.details.add().Pack(BadRequest(field_violations=fields))
        return status


def rejected(answer: Rejected, prefix: str = "") -> Refused:
    """What admit refused. `prefix`: where the command's fields lie in the request."""
    violations = [
        (v.field if v.field == "request_id" else prefix + v.field, v.message)
        for v in answer.violations
    ]
    return Refused(_CODES[answer.code], answer.code.value, answer.message, violations)


def invalid(field: str, message: str) -> Refused:
    """One field of a request at fault."""
    text = f"{field}: {message}"
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, Code.INVALID.value, text, [(field, message)])


def invalid_input(error: InputError, prefix: str) -> Refused:
    """Everything at fault in a specification."""
    found = [(prefix + field, message) for field, message in error.problems]
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, Code.INVALID.value, str(error), found)


def not_found(message: str) -> Refused:
    return Refused(grpc.StatusCode.NOT_FOUND, Code.NOT_FOUND.value, message)


def conflict(message: str) -> Refused:
    return Refused(grpc.StatusCode.ABORTED, "conflict", message)


def unavailable(message: str) -> Refused:
    return Refused(grpc.StatusCode.UNAVAILABLE, "unavailable", message)


@asynccontextmanager
async def refusals(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """End the call with the right code, whatever expected thing is raised inside."""
    try:
        yield
    except Refused as refused:
        await _abort(context, refused)
    except (Stopped, Closed):
        await _abort(context, unavailable("the server is stopping"))
    except FellBehind:
        message = "the watch fell behind; resume from the last version you saw"
        await _abort(context, conflict(message))
    except StoreError as error:
        log.error("the store failed: %s", error)
        await _abort(context, unavailable("the store failed; whether it was written is not known"))


async def _abort(context: grpc.aio.ServicerContext[Any, Any], refused: Refused) -> None:
    await context.abort_with_status(rpc_status.to_status(refused.status()))
