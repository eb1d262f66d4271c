"""What an event did to a job: the log as those see it who watch jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from placement.fabric.tree import Fabric
from scheduler.core import Job, State
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    SparesChanged,
)
from scheduler.core.model.lifecycle import HostMove


class ChangeKind(StrEnum):
    """What can happen to a job."""

    SUBMITTED = "submitted"
    UPDATED = "updated"
    STARTED = "started"
    INTERRUPTED = "interrupted"
    SPARE_LOST = "spare_lost"
    SPARES_CHANGED = "spares_changed"
    SWAPPED = "swapped"
    RESIZED = "resized"
    REQUEUED = "requeued"
    ENDED = "ended"


class Change(NamedTuple):
    """One change of one job; `job` is the job after it, `fabric` names its hosts."""

    version: int
    time_ns: int
    kind: ChangeKind
    job: Job
    fabric: Fabric


_KINDS: dict[type[Event], ChangeKind] = {
    JobSubmitted: ChangeKind.SUBMITTED,
    JobUpdated: ChangeKind.UPDATED,
    JobStarted: ChangeKind.STARTED,
    GangSwapped: ChangeKind.SWAPPED,
    GangResized: ChangeKind.RESIZED,
    SparesChanged: ChangeKind.SPARES_CHANGED,
    JobRequeued: ChangeKind.REQUEUED,
    JobPreempted: ChangeKind.REQUEUED,
    JobEnded: ChangeKind.ENDED,
}


def follow(state: State, event: Event) -> tuple[State, Change | None]:
    """Apply `event`, and say which job it changed, if any."""
    after = apply(state, event)
    match event:
        case JobSubmitted():
            name, kind = event.spec.name, ChangeKind.SUBMITTED
        case (
            JobUpdated()
            | JobStarted()
            | GangSwapped()
            | GangResized()
            | SparesChanged()
            | JobRequeued()
            | JobPreempted()
            | JobEnded()
        ):
            name, kind = event.name, _KINDS[type(event)]
        case HostMoved(move=HostMove.FAIL):
            index = state.loaded_fabric.index_by_name[event.host]
            struck = state.holder(index)
            if struck is None:
                return after, None
            name = struck.name
            kind = ChangeKind.INTERRUPTED if index in struck.hosts else ChangeKind.SPARE_LOST
        case _:
            return after, None
    job = after.find(name)
    if job is None:  # pragma: no cover - an event always leaves its job at hand
        raise KeyError(name)
    return after, Change(after.version, event.time_ns, kind, job, after.loaded_fabric)
