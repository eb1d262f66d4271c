"""Where the accounts of jobs (goodput.py) meet the state: one place for all events."""

from __future__ import annotations

from typing import assert_never

from scheduler.core.model.events import (
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    LaunchFailed,
    RankFailed,
    SparesChanged,
)
from scheduler.core.model.job import Job
from scheduler.core.model.job_account import count_certain_time, counted
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.goodput import Goodput, Parts
from scheduler.core.model.state import State
from scheduler.core.policies.costs import Ending

AccountedEvent = (
    JobStarted
    | GangSwapped
    | GangResized
    | SparesChanged
    | JobRequeued
    | JobPreempted
    | JobEnded
    | LaunchFailed
    | RankFailed
    | HostMoved
)


def account(state: State, job: Job, event: AccountedEvent) -> Goodput:
    """Return the account of `job`, as it is in `state`, with its time until `event`. Whatever
    changes the state of a job or its hosts asks here. Cost: some 5 us."""
    costs, is_restored = state.tenants.preemption.costs, _is_restored(job, event)
    return counted(job, event.time_ns, costs, _ending(job, event), is_restored=is_restored)


def _is_restored(job: Job, event: AccountedEvent) -> bool:
    """Whether each host that joined loads a copy from a peer. A gang that goes on with the
    hosts it had goes back to what is in storage, unless agents keep its copies."""
    if not isinstance(event, GangSwapped) or not all(s.source for s in event.swaps):
        return False
    return bool(event.swaps) or job.present.renewed_ns is not None


def _ending(job: Job, event: AccountedEvent) -> Ending | None:
    """How the event ends the attempt of `job`; None: it does not."""
    match event:
        case SparesChanged() | HostMoved() | LaunchFailed() | RankFailed():
            return None
        case JobEnded(outcome=JobState.COMPLETED):
            return Ending.COMPLETE
        case GangResized(attempt=attempt) if attempt == job.attempt:
            return Ending.COMPLETE  # other roles run on: nothing of it is lost
        case (
            JobStarted()
            | GangSwapped()
            | GangResized()
            | JobRequeued()
            | JobPreempted()
            | JobEnded()
        ):
            return Ending.FAILED if job.state is JobState.INTERRUPTED else Ending.STOPPED
        case _:
            assert_never(event)


def sum_accounts(state: State, now_ns: int) -> Parts:
    """Host time of all jobs until now, as far as it is certain what it went to: every part
    only grows. Cost: O(live jobs)."""
    costs = state.tenants.preemption.costs
    parts = (count_certain_time(job, now_ns, costs) for job in state.jobs.values())
    return sum(parts, state.spent)
