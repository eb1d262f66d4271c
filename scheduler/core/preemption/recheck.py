"""Whether the gangs that a plan sends away may still be sent, and are still needed."""

from __future__ import annotations

from placement import hostset
from placement.hostset import HostSet
from scheduler.core.plan import (
    Action,
    Start,
    Swap,
)
from scheduler.core.preemption.victims import (
    Victim,
    candidates,
    freed,
    is_owed,
    may_be_sent,
    unneeded,
)
from scheduler.core.state import State
from scheduler.core.tenancy.admission import Quotas


def sent_by(
    state: State, action: Action, free: HostSet, quotas: Quotas, now_ns: int
) -> tuple[Victim, ...] | str:
    """The gangs that this action sends away, or a sentence saying why it must not."""
    if not isinstance(action, Start | Swap) or not action.victims or action.name not in state.jobs:
        return ()
    job, by_name = state.jobs[action.name], {v.name: v for v in candidates(state, now_ns)}
    gone: list[Victim] = []
    needed = len(action.moves) if isinstance(action, Swap) else job.needed
    owed, after = is_owed(job, quotas, needed), quotas.copy()
    for name in action.victims:
        gang = by_name.get(name)
        if gang is None or gang.ripe_ns > now_ns or not may_be_sent(job, gang, owed, after):
            return f"job {job.name}: {name} may not be preempted any more"
        gone.append(gang)
        after.left(gang.job)
    if action.is_counted and (spared := _spared(state, action, gone, free, quotas)):
        return f"job {job.name}: {spared.name} need not be preempted any more"
    return tuple(gone)


def _spared(
    state: State, action: Start | Swap, gone: list[Victim], free: HostSet, quotas: Quotas
) -> Victim | None:
    """One of these gangs without which there are hosts enough all the same."""
    job = state.jobs[action.name]
    if isinstance(action, Start):
        return unneeded(job, gone, free, quotas)
    room = free | (hostset.of(job.spares) & ~state.unhealthy)
    rests = ((v, room | freed([w for w in gone if w is not v])) for v in gone)
    return next((v for v, rest in rests if rest.bit_count() >= len(action.moves)), None)
