"""Whether the victims of a plan may still be evicted or made smaller, and still have to be."""

from __future__ import annotations

from placement.fabric import hostset
from scheduler.core.capacity.eviction import shrunk
from scheduler.core.capacity.victims import (
    Victim,
    candidates,
    is_owed,
    may_be_evicted,
    may_be_shrunk,
    unneeded,
    unneeded_to_swap,
)
from scheduler.core.commit.ledger import Ledger
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Action, Resize, Stale, StaleReason, Start, Swap, stale_job
from scheduler.core.rules.job_size import misfit
from scheduler.core.tenancy.quota_check import Quotas


def evicted(ledger: Ledger, action: Action, now_ns: int) -> tuple[Victim, ...] | Stale:
    """The gangs that this action evicts or makes smaller."""
    if not isinstance(action, Start | Swap) or not (action.victims or action.shrinks):
        return ()
    state, quotas = ledger.state, ledger.quotas
    if action.name not in state.jobs:
        return ()
    job, by_name = state.jobs[action.name], {v.name: v for v in candidates(state, now_ns)}
    victims: list[Victim] = []
    needed = len(action.moves) if isinstance(action, Swap) else job.needed
    owed, after = is_owed(job, quotas, needed), quotas.copy()
    shrinks = {shrink.name: shrink for shrink in action.shrinks}
    for name in (*action.victims, *shrinks):
        gang, shrink = by_name.get(name), shrinks.get(name)
        if gang is None or gang.ripe_ns > now_ns or not _may(job, gang, shrink, owed, after):
            text = f"{name} may not be preempted any more"
            return stale_job(job.name, StaleReason.VICTIM, text)
        if shrink is not None:
            if wrong := misfit(state, shrink, gang.job.allocation):
                return wrong
            gang = shrunk(gang, shrink)
        victims.append(gang)
        after.release_hosts(gang.job, gang.freed)
    if action.is_counted and (spared := _spared(ledger, action, victims)):
        text = f"{spared.name} need not be preempted any more"
        return stale_job(job.name, StaleReason.VICTIM, text)
    return tuple(victims)


def _may(job: Job, gang: Victim, shrink: Resize | None, owed: bool, quotas: Quotas) -> bool:
    """Whether `job` may still evict this gang, or make it so small."""
    is_evictable = may_be_evicted(job, gang, owed, quotas)
    if shrink is None:
        return is_evictable
    if shrink.dp not in gang.job.sizes or shrink.dp >= gang.job.dp:
        return False
    return is_evictable or (may_be_shrunk(job, gang) and shrink.dp >= gang.job.present.start_dp)


def _spared(ledger: Ledger, action: Start | Swap, victims: list[Victim]) -> Victim | None:
    """One of these gangs without which there are hosts enough all the same."""
    job = ledger.state.jobs[action.name]
    if isinstance(action, Start):
        return unneeded(job, victims, ledger.free, ledger.quotas)
    own = hostset.of(job.spares) & ~ledger.state.index.unhealthy
    return unneeded_to_swap(len(action.moves), victims, ledger.free | own)
