"""Where the accounts of jobs (goodput.py) meet the state: one place for all events."""

from __future__ import annotations

from typing import Any

from placement import hostset
from scheduler.core.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    SparesChanged,
)
from scheduler.core.goodput import Parts, counted, kept
from scheduler.core.job import Job
from scheduler.core.overlay import with_entry
from scheduler.core.remade import remade
from scheduler.core.state import State


def accounted(before: State, event: Event, after: State) -> dict[str, Any]:
    """The fields of `after` in which the account of the job that `event` changed stands, with
    that account. Cost: some 10 us."""
    job = _subject(before, event)
    if job is None:
        return {}
    costs = before.tenants.preemption.costs
    if isinstance(event, JobEnded):
        over = after.ended[job.uid]
        over = remade(over, goodput=counted(job, over, event.time_ns, costs))
        ended = with_entry(after.ended, job.uid, over)
        return {"ended": ended, "spent": after.spent + over.goodput.hosts}
    now = after.jobs[job.name]
    if now is job:
        return {}
    account = counted(job, now, event.time_ns, costs, is_restored=_is_restored(event))
    now = remade(now, goodput=account)
    return {"jobs": with_entry(after.jobs, job.name, now)}


def _is_restored(event: Event) -> bool:
    """Whether each host that joined loads a copy from a peer. A gang that goes on with the
    hosts it had has no copy to load, and goes back to what is in storage."""
    return (
        isinstance(event, GangSwapped) and bool(event.swaps) and all(s.source for s in event.swaps)
    )


def _subject(state: State, event: Event) -> Job | None:
    """The job whose state or hosts the event may change."""
    match event:
        case JobStarted() | GangSwapped() | GangResized() | SparesChanged():
            return state.jobs[event.name]
        case JobRequeued() | JobPreempted() | JobEnded():
            return state.jobs[event.name]
        case HostMoved():
            index = state.loaded_fabric.index_by_name[event.host]
            return state.holder(index) if hostset.has(state.held, index) else None
        case _:
            return None


def spent(state: State, now_ns: int) -> Parts:
    """Host time of all jobs until now, as far as it is certain what it went to: every part
    only grows. Cost: O(live jobs)."""
    costs = state.tenants.preemption.costs
    parts = (kept(job, now_ns, costs) for job in state.jobs.values())
    return sum(parts, state.spent)
