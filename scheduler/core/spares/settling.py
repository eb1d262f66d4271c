"""What stands in the log before an action that lends spares, or has lent ones back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placement import hostset
from scheduler.core.apply import replay
from scheduler.core.events import Event, GangResized, JobPreempted, JobRequeued
from scheduler.core.lifecycle import JobState
from scheduler.core.plan import Action, Recall, Resize, Start, Swap, taken
from scheduler.core.spares.lending import back, lends
from scheduler.core.state import State

Resized = Callable[[State, Resize], Event | str]


def touches_loans(state: State, action: Action) -> bool:
    """Whether the action borrows spares, or takes some that were lent."""
    if isinstance(action, Start):
        return bool(action.lenders)
    return isinstance(action, Swap) and bool(action.recalls or taken(action) & state.lent)


def settled(state: State, action: Action, now_ns: int, resized: Resized) -> tuple[Event, ...] | str:
    """The events that come first, or a sentence saying what changed meanwhile. `resized`:
    what is recorded of a resize, or why it cannot be."""
    if isinstance(action, Start):
        return lends(state, action.name, taken(action), action.lenders, now_ns)
    if not isinstance(action, Swap):
        return ()
    events: list[Event] = []
    for recall in action.recalls:
        event = _left(state, recall, action.name, now_ns, resized)
        if isinstance(event, str):
            return event
        events.append(event)
    after = replay(events, state)
    events += back(after, taken(action), now_ns)
    if taken(action) & replay(events, state).lent:
        return f"job {action.name}: a spare that was lent is not back"
    return tuple(events)


def once_settled(action: Action) -> Action:
    """The action once all that comes first has."""
    if isinstance(action, Start):
        return replace(action, lenders=())
    return replace(action, recalls=()) if isinstance(action, Swap) else action


def _left(state: State, recall: Recall, whose: str, now_ns: int, resized: Resized) -> Event | str:
    job = state.jobs.get(recall.name)
    if job is None or not hostset.of(job.hosts) & state.lent:
        return f"job {whose}: {recall.name} left what it borrowed meanwhile"
    if job.state is JobState.INTERRUPTED:
        return JobRequeued(now_ns, job.name, recall.reason)
    if recall.resize is not None:
        event = resized(state, recall.resize)
        return replace(event, preempted_by=whose) if isinstance(event, GangResized) else event
    return JobPreempted(now_ns, job.name, whose, recall.reason)
