"""What stands in the log before an action, for the spares that it touches.

Loans are made and called back, lenders give up what others swap in, and a gang that is about
to leave the domain in which it has to lie lets the spares go that are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, joinable
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import Event, GangResized, JobPreempted, JobRequeued, SparesChanged
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState, RequeueCause
from scheduler.core.model.plan import (
    Action,
    Recall,
    Resize,
    Stale,
    StaleReason,
    Start,
    Swap,
    stale_job,
    taken,
)
from scheduler.core.model.state import State
from scheduler.core.tenancy.spare_loans import SpareLoans
from scheduler.core.wording import hosts_text

Resized = Callable[[State, Resize], GangResized | Stale]


def touches_loans(state: State, action: Action) -> bool:
    """Whether the action borrows spares, or takes some that were lent."""
    if isinstance(action, Start):
        return bool(action.lenders)
    return isinstance(action, Swap) and bool(
        action.recalls or taken(action) & SpareLoans(state).hosts
    )


def settle_spares(
    state: State, action: Action, now_ns: int, resized: Resized
) -> tuple[Event, ...] | Stale:
    """Return the events of spares that come before a start, swap or resize. `resized`: what is
    recorded of a resize."""
    if isinstance(action, Start):
        return SpareLoans(state).lend(action.name, taken(action), action.lenders, now_ns)
    if not isinstance(action, Swap):
        return ()
    events: list[Event] = []
    for recall in action.recalls:
        event = _end_loan(state, recall, action.name, now_ns, resized)
        if isinstance(event, Stale):
            return event
        events.append(event)
    after = replay(events, state)
    home = tuple(SpareLoans(after).give_back(taken(action), now_ns))
    if taken(action) & SpareLoans(replay(home, after)).hosts:
        text = "a spare that was lent is not back"
        return stale_job(action.name, StaleReason.LOAN, text)
    return (*events, *home)


def settle_lenders(
    state: State, action: Swap, shared: list[int], now_ns: int
) -> Iterator[SparesChanged]:
    """Take the spares that join the gang from their holders."""
    for name in action.lenders:
        job = state.jobs[name]
        kept = tuple(s for s in job.spares if s not in shared)
        count = len(job.spares) - len(kept)
        reason = f"{action.name} took {hosts_text(count)} for failed ones"
        yield SpareLoans(state).holding_event(job, kept, reason, now_ns)


def drop_unjoinable_spares(
    state: State, job: Job, hosts: Sequence[int], now_ns: int
) -> Iterator[SparesChanged]:
    """Take from `job` the spares that could never join its gang on these hosts, as its constraints
    would break."""
    fabric, where, gang = state.loaded_fabric, job.request.where, hostset.of(hosts)
    if where == ANYWHERE:
        return
    kept: list[int] = []
    for spare in job.spares:
        if hostset.has(gang, spare) or hostset.has(joinable(fabric, where, gang), spare):
            kept.append(spare)
            gang |= 1 << spare
    if len(kept) < len(job.spares):
        reason = f"leaves {hosts_text(len(job.spares) - len(kept))} outside its constraints"
        yield SpareLoans(state).holding_event(job, tuple(kept), reason, now_ns)


def once_settled(action: Action) -> Action:
    """Return the action as it is once the events that come before it are applied."""
    if isinstance(action, Start):
        return replace(action, lenders=())
    return replace(action, recalls=()) if isinstance(action, Swap) else action


def _end_loan(
    state: State, recall: Recall, owner: str, now_ns: int, resized: Resized
) -> Event | Stale:
    job = state.jobs.get(recall.name)
    if job is None or not SpareLoans(state).borrowed(job):
        text = f"{recall.name} left what it borrowed meanwhile"
        return stale_job(owner, StaleReason.LOAN, text)
    if job.state is JobState.INTERRUPTED:
        return JobRequeued(now_ns, job.name, recall.reason, RequeueCause.FAILURE)
    if recall.resize is not None:
        event = resized(state, recall.resize)
        return replace(event, preempted_by=owner) if isinstance(event, GangResized) else event
    return JobPreempted(now_ns, job.name, owner, recall.reason)
