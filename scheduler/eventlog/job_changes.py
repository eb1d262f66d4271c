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


class JobChangeKind(StrEnum):
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


class JobChange(NamedTuple):
    """One change of one job; `job` is the job after it, `fabric` names its hosts."""

    version: int
    time_ns: int
    kind: JobChangeKind
    job: Job
    fabric: Fabric


_KINDS: dict[type[Event], JobChangeKind] = {
    JobSubmitted: JobChangeKind.SUBMITTED,
    JobUpdated: JobChangeKind.UPDATED,
    JobStarted: JobChangeKind.STARTED,
    GangSwapped: JobChangeKind.SWAPPED,
    GangResized: JobChangeKind.RESIZED,
    SparesChanged: JobChangeKind.SPARES_CHANGED,
    JobRequeued: JobChangeKind.REQUEUED,
    JobPreempted: JobChangeKind.REQUEUED,
    JobEnded: JobChangeKind.ENDED,
}


def apply_and_diff(state: State, event: Event) -> tuple[State, JobChange | None]:
    """Apply `event`, and say which job it changed, if any."""
    after = apply(state, event)
    match event:
        case JobSubmitted():
            name, kind = event.spec.name, JobChangeKind.SUBMITTED
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
            kind = JobChangeKind.INTERRUPTED if index in struck.hosts else JobChangeKind.SPARE_LOST
        case _:
            return after, None
    job = after.find(name)
    if job is None:  # pragma: no cover - an event always leaves its job at hand
        raise KeyError(name)
    return after, JobChange(after.version, event.time_ns, kind, job, after.loaded_fabric)
