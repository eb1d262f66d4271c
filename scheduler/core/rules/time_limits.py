"""Gangs that have run as long as their owners stated, where the policy stops them.

The limit is that of an attempt: a gang that is requeued at it goes on from its checkpoint, with
all of it again. One that has saved nothing by then would come no further the next time: it has
failed. Limits that are only assumed stop nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.model.events import Event, JobEnded, JobRequeued
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState, RequeueCause
from scheduler.core.model.plan import EnforceTimeLimit, Stale, StaleReason
from scheduler.core.model.scheduling_options import Overrun, SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.rules.crash_loop import has_saved
from scheduler.core.wording import duration


def overruns(state: State, now_ns: int, options: SchedulingOptions) -> tuple[EnforceTimeLimit, ...]:
    """Return the actions on gangs at their limits, in order of start. Cost: O(gangs), nothing where
    they may run on."""
    if options.overrun is Overrun.EXTEND:
        return ()
    is_requeued = options.overrun is Overrun.REQUEUE
    due = (job for job, end_ns in _ends(state) if end_ns <= now_ns)
    return tuple(EnforceTimeLimit(job.name, is_requeued) for job in due)


def next_limit_ns(state: State, options: SchedulingOptions) -> int | None:
    """When the next gang reaches its limit."""
    if options.overrun is Overrun.EXTEND:
        return None
    return min((end_ns for _, end_ns in _ends(state)), default=None)


def _ends(state: State) -> Iterator[tuple[Job, int]]:
    for job in state.holding:
        if job.state is JobState.RUNNING and job.limit_ns is not None:
            yield job, job.present.start_ns + job.limit_ns


def enforced(state: State, action: EnforceTimeLimit, now_ns: int) -> Event | Stale:
    """Return the event of a gang that is still at its limit."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING or job.limit_ns is None:
        return Stale(StaleReason.JOB, f"job {action.name} is no longer running")
    if job.present.start_ns + job.limit_ns > now_ns:
        return Stale(StaleReason.NEEDLESS, f"job {action.name} has been given more time meanwhile")
    reason = f"reached its time limit of {duration(job.limit_ns // SECOND_NS)}"
    if action.is_requeued:
        if has_saved(job, now_ns, state.tenants.preemption.costs):
            return JobRequeued(now_ns, job.name, reason, RequeueCause.TIME_LIMIT)
        reason += " before anything was saved"
    return JobEnded(now_ns, job.name, JobState.FAILED, reason)
