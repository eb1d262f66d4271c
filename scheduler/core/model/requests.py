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
from typing import Final, NamedTuple

from msgspec import Struct

from scheduler.core.model import commands, events
from scheduler.core.model.job import Job

REMEMBERED: Final = 50_000  # of one tenant


class CompletedRequest(Struct, frozen=True):
    """Record of a completed request. `action`: a verb and its object. `digest`: of what was asked.
    `uid`: of the job that it was about. `answer`: a sentence, where that was the answer."""

    action: str
    digest: str = ""
    uid: str = ""
    answer: str = ""


_KINDS: Final = {
    "change the fabric": (commands.ChangeFabric, events.FabricChanged),
    "submit {0.spec.name}": (commands.SubmitJob, events.JobSubmitted),
    "update {0.name}": (commands.UpdateJob, events.JobUpdated),
    "hold {0.name}": (commands.HoldJob, events.JobHeld),
    "release {0.name}": (commands.ReleaseJob, events.JobReleased),
    "requeue {0.name}": (commands.RequeueJob, events.JobRequeued),
    "resize {0.name}": (events.GangResized,),
    "cancelled {0.name}": (commands.CancelJob,),
    "{0.outcome} {0.name}": (commands.EndJob, events.JobEnded),
    "{0.move} {0.host}": (commands.MoveHost, events.HostMoved),
    "{0.signal} {0.host}": (commands.ReportHost, events.HostSignalled),
    "report link {0.link}": (commands.ReportLink, events.LinkReported),
    "{0.move} link {0.link}": (commands.MoveLink, events.LinkMoved),
    "defragment for {0.goal}": (events.Defragmented,),
    "set window {0.window.name}": (commands.SetWindow, events.WindowSet),
    "remove window {0.name}": (commands.RemoveWindow, events.WindowRemoved),
    "{0.request}": (events.RequestAnswered,),
}
ACTIONS: Final[dict[type, str]] = {each: text for text, kinds in _KINDS.items() for each in kinds}


def action_of(request: commands.RequestCommand | events.RequestEvent) -> str:
    """Return what a command asks for, or an event did at a request, as a verb and its object."""
    return ACTIONS[type(request)].format(request)


def completed(event: events.RequestEvent, jobs: Mapping[str, Job]) -> CompletedRequest:
    """Return the record of the request that caused an event. `jobs`: before the event."""
    uid, answer = "", ""
    if isinstance(event, events.JobSubmitted | events.RequestAnswered):
        uid = event.uid
    elif isinstance(event, events.JobEvent):
        uid = jobs[event.name].uid
    if isinstance(event, events.RequestAnswered):
        answer = event.answer
    elif isinstance(event, events.Defragmented):
        answer = event.sentence
    digest = parse_request_id(event.request_id).digest
    return CompletedRequest(action_of(event), digest, uid, answer)


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
