"""Whether the gangs that a plan sends away, or makes smaller, may still be, and still have to."""

from __future__ import annotations

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.eviction import shrunk
from scheduler.core.capacity.victims import (
    Victim,
    candidates,
    is_owed,
    may_be_sent,
    may_be_shrunk,
    unneeded,
    unneeded_to_swap,
)
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Action, Resize, Start, Swap
from scheduler.core.model.state import State
from scheduler.core.rules.resize import misfit
from scheduler.core.tenancy.quota_check import Quotas


def sent_by(
    state: State, action: Action, free: HostSet, quotas: Quotas, now_ns: int
) -> tuple[Victim, ...] | str:
    """The gangs that this action sends away or makes smaller, or a sentence saying why it
    must not."""
    if not isinstance(action, Start | Swap) or action.name not in state.jobs:
        return ()
    if not action.victims and not action.shrinks:
        return ()
    job, by_name = state.jobs[action.name], {v.name: v for v in candidates(state, now_ns)}
    gone: list[Victim] = []
    needed = len(action.moves) if isinstance(action, Swap) else job.needed
    owed, after = is_owed(job, quotas, needed), quotas.copy()
    shrinks = {shrink.name: shrink for shrink in action.shrinks}
    for name in (*action.victims, *shrinks):
        gang, shrink = by_name.get(name), shrinks.get(name)
        if gang is None or gang.ripe_ns > now_ns or not _may(job, gang, shrink, owed, after):
            return f"job {job.name}: {name} may not be preempted any more"
        if shrink is not None:
            if wrong := misfit(state, shrink, gang.job.held):
                return wrong
            gang = shrunk(gang, shrink)
        gone.append(gang)
        after.left(gang.job, gang.gives)
    if action.is_counted and (spared := _spared(state, action, gone, free, quotas)):
        return f"job {job.name}: {spared.name} need not be preempted any more"
    return tuple(gone)


def _may(job: Job, gang: Victim, shrink: Resize | None, owed: bool, quotas: Quotas) -> bool:
    """Whether `job` may still send this gang away, or make it so small."""
    is_sent = may_be_sent(job, gang, owed, quotas)
    if shrink is None:
        return is_sent
    if shrink.dp not in gang.job.sizes or shrink.dp >= gang.job.dp:
        return False
    return is_sent or (may_be_shrunk(job, gang) and shrink.dp >= gang.job.start_dp)


def _spared(
    state: State, action: Start | Swap, gone: list[Victim], free: HostSet, quotas: Quotas
) -> Victim | None:
    """One of these gangs without which there are hosts enough all the same."""
    job = state.jobs[action.name]
    if isinstance(action, Start):
        return unneeded(job, gone, free, quotas)
    own = hostset.of(job.spares) & ~state.unhealthy
    return unneeded_to_swap(len(action.moves), gone, free | own)
