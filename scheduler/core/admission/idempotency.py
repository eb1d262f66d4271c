"""A request that was answered before does nothing a second time, whatever has happened since."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeVar, assert_never

import msgspec

from muster.structs import replace, struct
from scheduler.core.model.commands import (
    CancelJob,
    ChangeFabric,
    EndJob,
    HoldJob,
    JobCommand,
    MoveHost,
    MoveLink,
    ReleaseJob,
    RemoveWindow,
    ReportHost,
    ReportLink,
    RequeueJob,
    SetWindow,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.events import RequestAnswered
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.rejected import Rejected, invalid
from scheduler.core.model.requests import CompletedRequest, parse_request_id
from scheduler.core.model.state import State

RequestCommand = (
    ChangeFabric
    | SubmitJob
    | UpdateJob
    | HoldJob
    | ReleaseJob
    | RequeueJob
    | CancelJob
    | EndJob
    | MoveHost
    | ReportHost
    | ReportLink
    | MoveLink
    | SetWindow
    | RemoveWindow
)
SomeCommand = TypeVar("SomeCommand", bound=RequestCommand)


@struct(frozen=True, slots=True)
class Earlier:
    """Answer that an earlier command with the same request id got."""

    answer: tuple[()] | Rejected


def identified(command: SomeCommand) -> SomeCommand:
    """Return the command with a digest of what it asks for in its request id; an id that came from
    a caller has a digest of the whole request already."""
    identifier = parse_request_id(command.request_id)
    if identifier.digest:
        return command
    bare = replace(command, request_id="")
    if isinstance(bare, SubmitJob):
        bare = replace(bare, uid="", long_ended=())  # found anew each time
    elif isinstance(bare, UpdateJob):
        bare = replace(bare, long_ended=())
    elif isinstance(bare, RequeueJob):
        bare = replace(bare, new_uid="")
    body = msgspec.json.encode(bare, order="deterministic")
    digest = blake2b(type(command).__name__.encode() + body, digest_size=8).hexdigest()
    return replace(command, request_id=identifier._replace(digest=digest).text)


def earlier(state: State, request_id: str) -> Earlier | None:
    """Return the answer to a request that was answered before; None for a new request."""
    done = state.request(request_id)
    if done is None:
        return None
    identifier = parse_request_id(request_id)
    if done.digest == identifier.digest:
        return Earlier(())
    message = f"{identifier.id!r} was used for another request: {done.action}"
    return Earlier(invalid("request_id", message))


def answered(state: State, command: RequestCommand, now_ns: int) -> RequestAnswered:
    """Return the record of a request that changes nothing."""
    uid = ""
    if isinstance(command, JobCommand):
        job = state.find(command.name, command.uid)
        uid = job.uid if job is not None else ""
    return RequestAnswered(now_ns, command.request_id, _words(command), uid)


def repeated(state: State, request_id: str) -> CompletedRequest | None:
    """Return the earlier request with this id that asked for the same; None: there was none."""
    done = state.request(request_id)
    is_same = done is not None and done.digest == parse_request_id(request_id).digest
    return done if is_same else None


def _words(command: RequestCommand) -> str:
    """Return what `command` asks for, as a verb and its object."""
    match command:
        case ChangeFabric():
            return "change the fabric"
        case SubmitJob():
            return f"submit {command.spec.name}"
        case UpdateJob():
            return f"update {command.name}"
        case HoldJob():
            return f"hold {command.name}"
        case ReleaseJob():
            return f"release {command.name}"
        case RequeueJob():
            return f"requeue {command.name}"
        case CancelJob():
            return f"{JobState.CANCELLED} {command.name}"
        case EndJob():
            return f"{command.outcome} {command.name}"
        case MoveHost():
            return f"{command.move} {command.host}"
        case ReportHost():
            return f"{command.signal} {command.host}"
        case ReportLink():
            return f"report link {command.link}"
        case MoveLink():
            return f"{command.move} link {command.link}"
        case SetWindow():
            return f"set window {command.window.name}"
        case RemoveWindow():
            return f"remove window {command.name}"
    assert_never(command)
