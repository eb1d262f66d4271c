"""The fact of a resize, and what has to hold for it."""

from __future__ import annotations

from dataclasses import replace

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.objective.check import violations
from scheduler.core.model.events import GangResized
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Resize, Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.rules import memory_copies
from scheduler.core.rules.calendar import Calendar


def misfit(state: State, action: Resize, room: HostSet) -> Stale | None:
    """Why the gang cannot be resized so on hosts of `room`; None when it can."""
    job = state.jobs[action.name]
    if job.hosts != action.left:
        return stale_job(action.name, StaleReason.JOB, "its hosts changed meanwhile")
    request = job.at(action.dp).request
    placed = replace(action.placement, step=None)  # see gang_step.py
    wrong = violations(state.loaded_fabric, room, request, placed)
    return stale_job(action.name, StaleReason.HOSTS, wrong[0]) if wrong else None


def is_needless(state: State, action: Resize) -> bool:
    """Whether a running gang would drop replicas though it has to leave none of its hosts."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING or action.dp >= job.dp:
        return False
    left = job.held & ~hostset.of(action.placement.hosts)
    return not left & (state.unhealthy | Calendar(state).leaving(job)[0])


def resized(
    state: State, job: Job, action: Resize, now_ns: int, preempted_by: str = ""
) -> GangResized:
    """What is recorded of it."""
    names, placement = state.loaded_fabric.names, action.placement
    return GangResized(
        now_ns,
        action.name,
        job.attempt + 1,
        action.dp,
        names(placement.hosts),
        names(placement.spares),
        placement.cuts,
        placement.lower_bound,
        placement.notes,
        action.reason,
        action.restart_options,
        memory_copies.placed(state, job.at(action.dp), placement.hosts),
        preempted_by,
        placement.step,
    )
