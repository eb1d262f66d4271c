"""A request that was answered before does nothing a second time, whatever has happened since."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeVar

import msgspec

from muster.structs import replace, struct
from scheduler.core.model.commands import (
    JobCommand,
    RequestCommand,
    RequeueJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.events import RequestAnswered
from scheduler.core.model.rejected import Rejected, invalid
from scheduler.core.model.requests import CompletedRequest, action_of, parse_request_id
from scheduler.core.model.state import State

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
    return RequestAnswered(now_ns, command.request_id, action_of(command), uid)


def repeated(state: State, request_id: str) -> CompletedRequest | None:
    """Return the earlier request with this id that asked for the same; None: there was none."""
    done = state.request(request_id)
    is_same = done is not None and done.digest == parse_request_id(request_id).digest
    return done if is_same else None
