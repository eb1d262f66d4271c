"""A decision on the hosts of a gang, and what it was made on: what a certificate needs.

The placement is what an event says. The free hosts follow from the state right before it, in which
gangs that made room for it have left already.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeGuard

from muster.structs import struct
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.explain.dryrun import DryRun
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import Event, GangResized, GangSwapped, JobStarted
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Plan, Start
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.network.links import fabric_between

PlacingEvent = JobStarted | GangSwapped | GangResized  # begins an attempt


class DecisionKind(StrEnum):
    START = "start"
    SWAP = "swap"
    RESIZE = "resize"
    DRY_RUN = "dry run"


@struct(frozen=True, slots=True)
class Decision:
    """The state behind a start, swap or resize. `job`: right after it. `version`: of the log, with
    it. `fabric`: with the links that gangs could not begin to cross; links that a running gang
    crosses it may go on to cross. `free`: the hosts that the gang could have had, its own among
    them."""

    kind: DecisionKind
    job: Job
    version: int
    time_ns: int
    fabric: Fabric
    free: HostSet


def decision(before: State, event: PlacingEvent, options: SchedulingOptions) -> Decision:
    """Reconstruct the decision behind `event`. `before`: the state that it was appended to."""
    after = apply(before, event)
    job = after.jobs[event.name]
    end_ns = event.time_ns + time_limit_ns(job, options)
    closed = Calendar(before).closed(before.jobs[event.name], event.time_ns, end_ns)
    fabric, kind = before.built_fabric, DecisionKind.START
    match event:
        case JobStarted():
            fabric = fabric_between(before, event.time_ns, end_ns)
        case GangSwapped():
            kind = DecisionKind.SWAP
        case GangResized():
            kind = DecisionKind.RESIZE
    free = (before.free & ~closed) | job.allocation
    return Decision(kind, job, after.version, event.time_ns, fabric, free)


def supposed_decision(
    dry_run: DryRun, now_ns: int, options: SchedulingOptions, version: int
) -> Decision | None:
    """Return the decision behind the start that a dry run proposes; None where it proposes nothing
    that would be committed. `version`: of the state that the dry run was asked on."""
    state, start = dry_run.state, dry_run.outcome
    if not isinstance(start, Start):
        return None
    events = commit(state, Plan(state.version, (start,)), now_ns)
    for event in () if isinstance(events, Conflict) else events:
        if begins(event, start.name):
            made = decision(state, event, options)
            return Decision(DecisionKind.DRY_RUN, made.job, version, now_ns, made.fabric, made.free)
        state = apply(state, event)
    return None


def begins(event: Event, name: str) -> TypeGuard[PlacingEvent]:
    """Return whether the event begins an attempt of the job."""
    return isinstance(event, PlacingEvent) and event.name == name
