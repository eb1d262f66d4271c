"""Whether a waiting job is considered at all: nobody holds it, its begin time has come, the jobs
that it depends on have ended as it wants, and its array lets one more of its tasks run.

Jobs that are not stand apart from the queue (`Index.deferred`), so that whoever walks the queue,
to decide, to explain, to reserve or on a copy for a dry run, meets eligible ones alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from scheduler.core.model.events import Event, JobEligible, JobEnded
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import Hold, JobState
from scheduler.core.model.plan import EndDeferral, Stale, StaleReason
from scheduler.core.model.state import State
from scheduler.core.names import short_name

NEVER: Final = 2**63 - 1
AT_ONCE: Final = -NEVER
UNMET: Final = "DependencyNeverSatisfied"

_BY = {Hold.OWNER: "by its owner", Hold.OPERATOR: "by an operator"}


def eligible_ns(job: Job) -> int:
    """Return when a waiting job is considered, as things are; NEVER while it is held, awaits its
    turn, or depends on a job that lives, or has ended otherwise."""
    if job.hold is not None or job.awaits_turn or not all(e.is_met for e in job.dependencies):
        return NEVER
    return job.spec.begin_ns or AT_ONCE


def wake_ns(job: Job) -> int:
    """Return when to act on a job that is not considered."""
    return AT_ONCE if is_to_cancel(job) else eligible_ns(job)


def is_to_cancel(job: Job) -> bool:
    """Return whether a dependency can never be met, and the job asks to be cancelled then."""
    return job.spec.cancel_unmet and any(each.is_never_met for each in job.dependencies)


def cancelled(job: Job, reason: str, now_ns: int, request_id: str = "") -> JobEnded:
    """Return the event that cancels a job, with whether the job had ever started."""
    return JobEnded(
        now_ns, job.name, JobState.CANCELLED, reason, request_id, has_started=job.attempt > 0
    )


def deferral_text(job: Job, now_ns: int) -> str:
    """Say why the job is not considered, and until when; "" when it is."""
    if job.hold is not None:
        return f"held {_BY[job.hold]}"
    if unmet := [each.text for each in job.dependencies if each.is_never_met]:
        return f"{UNMET}: {', '.join(unmet)}"
    parts = []
    if waited := [each.text for each in job.dependencies if each.outcome is None]:
        more = f" and {len(waited) - 3} more" if len(waited) > 3 else ""
        parts.append(f"waits for {', '.join(waited[:3])}{more}")
    if job.awaits_turn and (array := job.spec.array) is not None:
        most = "one task" if array.most_running == 1 else f"{array.most_running} tasks"
        parts.append(f"waits for its turn: {most} of {short_name(array.name)} may run at a time")
    if job.spec.begin_ns > now_ns:
        begin = datetime.fromtimestamp(job.spec.begin_ns // SECOND_NS, UTC)
        parts.append(f"begins at {begin:%Y-%m-%dT%H:%M:%SZ} at the earliest")
    return "; ".join(parts)


def deferral(job: Job, now_ns: int) -> str:
    """Return what keeps the job from being considered: `held`, `dependency`, `array` or `begin`; ""
    where nothing does."""
    if job.hold is not None:
        return "held"
    if not all(each.is_met for each in job.dependencies):
        return "dependency"
    if job.awaits_turn:
        return "array"
    return "begin" if job.spec.begin_ns > now_ns else ""


def due_deferrals(state: State, now_ns: int) -> tuple[EndDeferral, ...]:
    """Return the deferred jobs whose time has come. Cost: O(1) where none is due."""
    next_ns = next_eligible_ns(state)
    if next_ns is None or next_ns > now_ns:
        return ()
    return tuple(
        EndDeferral(name) for name, at_ns in state.index.deferred.items() if at_ns <= now_ns
    )


def next_eligible_ns(state: State) -> int | None:
    """When the next job is considered by the mere passing of time."""
    if not state.index.deferred or state.index.first_deferred_ns == NEVER:
        return None
    return state.index.first_deferred_ns


def deferral_ended(state: State, action: EndDeferral, now_ns: int) -> Event | Stale:
    """Return the event by which the job is considered from here on, or cancelled where it can never
    start."""
    at_ns = state.index.deferred.get(action.name)
    if at_ns is None or at_ns > now_ns:
        return Stale(StaleReason.JOB, f"job {action.name} waits for other jobs now, or for none")
    job = state.jobs[action.name]
    if is_to_cancel(job):
        unmet = ", ".join(each.text for each in job.dependencies if each.is_never_met)
        return cancelled(job, f"{UNMET}: {unmet}", now_ns)
    return JobEligible(now_ns, job.name)
