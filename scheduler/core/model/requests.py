"""Requests by their ids, and which ones have been answered; admission/idempotency.py asks.

An id is one text, which commands and events carry as `request_id`: the id that a caller gave, whose
it is, and a digest of what was asked.

    @TENANT/DIGEST/LENGTH:CALLER:ID         LENGTH: characters of CALLER

It is made where a call comes in and taken apart here. What is not of this form is an id alone, of
nobody in particular.

What a request did is kept under its id, also where that was nothing, with a digest of what was
asked: the same id with another digest is a mistake of the caller. The newest of each tenant are
kept; a client retries within seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, assert_never

from msgspec import Struct

from scheduler.core.collections.persistent_map import newest_of_each
from scheduler.core.model.events import (
    Defragmented,
    Event,
    FabricChanged,
    GangResized,
    HostMoved,
    HostSignalled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    JobUpdated,
    LinkMoved,
    LinkReported,
    RequestAnswered,
    RequestEvent,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.job import Job

REMEMBERED: Final = 50_000  # of one tenant


class CompletedRequest(Struct, frozen=True):
    """Record of a completed request. `action`: a verb and its object. `digest`: of what was asked.
    `uid`: of the job that it was about. `answer`: a sentence, where that was the answer."""

    action: str
    digest: str = ""
    uid: str = ""
    answer: str = ""


class Remembered(NamedTuple):
    """`requests`: by the key of their ids, oldest first. `counts`: how many of each tenant."""

    requests: Mapping[str, CompletedRequest]
    counts: Mapping[str, int]


def remembered(known: Remembered, event: Event, jobs: Mapping[str, Job]) -> Remembered:
    """Return the completed requests with the one that caused `event`, if it had an id. `jobs`:
    before the event."""
    if not isinstance(event, RequestEvent) or not event.request_id:
        return known
    uid, answer = "", ""
    match event:
        case FabricChanged():
            digest = "change the fabric"
        case JobSubmitted():
            digest, uid = f"submit {event.spec.name}", event.uid
        case JobUpdated():
            digest, uid = f"update {event.name}", jobs[event.name].uid
        case JobHeld():
            digest, uid = f"hold {event.name}", jobs[event.name].uid
        case JobReleased():
            digest, uid = f"release {event.name}", jobs[event.name].uid
        case GangResized():
            digest, uid = f"resize {event.name}", jobs[event.name].uid
        case JobRequeued():
            digest, uid = f"requeue {event.name}", jobs[event.name].uid
        case JobEnded():
            digest, uid = f"{event.outcome} {event.name}", jobs[event.name].uid
        case HostMoved():
            digest = f"{event.move} {event.host}"
        case HostSignalled():
            digest = f"{event.signal} {event.host}"
        case LinkReported():
            digest = f"report link {event.link}"
        case LinkMoved():
            digest = f"{event.move} link {event.link}"
        case Defragmented():
            digest, answer = f"defragment for {event.goal}", event.sentence
        case WindowSet():
            digest = f"set window {event.window.name}"
        case WindowRemoved():
            digest = f"remove window {event.name}"
        case RequestAnswered():
            digest, uid, answer = event.request, event.uid, event.answer
        case _:
            assert_never(event)
    identifier = parse_request_id(event.request_id)
    done = CompletedRequest(digest, identifier.digest, uid, answer)
    return Remembered(
        *newest_of_each(
            known.requests,
            known.counts,
            identifier.key,
            done,
            identifier.tenant,
            REMEMBERED,
            lambda key, _: parse_request_id(key).tenant,
        )
    )


_FORM = re.compile(r"@([^/]*)/([0-9a-f]*)/(\d+):")


class RequestId(NamedTuple):
    """The id of a request, with its caller. `tenant`: against whose allowance it is remembered."""

    id: str
    tenant: str = ""
    caller: str = ""
    digest: str = ""

    @property
    def text(self) -> str:
        return self._text(self.digest)

    @property
    def key(self) -> str:
        """Key of a caller's request id, whatever the request asks for."""
        return self._text("")

    def _text(self, digest: str) -> str:
        return f"@{self.tenant}/{digest}/{len(self.caller)}:{self.caller}:{self.id}"


def parse_request_id(text: str) -> RequestId:
    match = _FORM.match(text)
    if match is None:
        return RequestId(text)
    tenant, digest, length = match.groups()
    caller = text[match.end() : match.end() + int(length)]
    return RequestId(text[match.end() + len(caller) + 1 :], tenant, caller, digest)
