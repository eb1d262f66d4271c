"""Spares that stand idle are lent to preemptible jobs, and stay on the books of their holder.

A host that is lent leaves `spares` of the job that holds it for `lent`, and is one of the
borrower's hosts. When the borrower leaves it nobody else may take it but to borrow it: its
holder has it back at the next decision in which there is nothing else to do, or at once
when it needs it. Who borrows agrees to leave at any moment: neither priority nor minimum run
time stand in the way then.

`keep_idle` spares of each zone are not lent, so that a single failure is served by a host that
nobody has to leave first. Jobs that say where they lie, or beside whom, do not lend: their
hosts are theirs for a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE
from placement.fabric.hostset import HostSet
from scheduler.core.model.events import SparesChanged
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.policies.affinity import ANYBODY
from scheduler.core.wording import hosts_text


def lenders(state: State, gone: Collection[str] = ()) -> Mapping[int, Job]:
    """Hosts that may be lent now, and whose spares they are, once some are `gone`.
    Cost: O(gangs)."""
    policy, fabric = state.tenants.spares, state.loaded_fabric
    if not policy.lend or not state.tenants.preemption.is_on:
        return {}
    gangs = sorted(state.in_state(JobState.RUNNING), key=lambda j: j.order, reverse=True)
    found = {
        host: job
        for job in gangs
        if job.request.where == ANYWHERE and job.spec.affinity == ANYBODY and job.name not in gone
        for host in idle(state, job)
    }
    kept = [policy.keep_idle] * fabric.zone_count
    for host in reversed([*found]):  # the most important gangs keep theirs
        zone = fabric.zone_of(host)
        if kept[zone]:
            kept[zone] -= 1
            del found[host]
    return found


def idle(state: State, job: Job) -> tuple[int, ...]:
    """Spares in service that nobody runs on, those that were lent and left first."""
    home = (host for host in job.lent if not hostset.has(state.held, host))
    return tuple(h for h in (*home, *job.spares) if not hostset.has(state.out_of_service, h))


def lends(
    state: State, borrower: str, hosts: HostSet, names: Collection[str], now_ns: int
) -> tuple[SparesChanged, ...] | Stale:
    """What those who lend `borrower` some of `hosts` hold from here on."""
    may = lenders(state)
    wanted = {h: may[h] for h in hostset.members(hosts & (state.held | state.lent)) if h in may}
    if {job.name for job in wanted.values()} != {*names}:
        text = "spares that it would borrow are no longer available"
        return stale_job(borrower, StaleReason.LOAN, text)
    by_name: dict[str, list[int]] = {}
    for host, job in wanted.items():
        by_name.setdefault(job.name, []).append(host)
    return tuple(_lending(state, name, found, borrower, now_ns) for name, found in by_name.items())


def _lending(
    state: State, name: str, hosts: list[int], borrower: str, now_ns: int
) -> SparesChanged:
    job = state.jobs[name]
    spares = tuple(s for s in job.spares if s not in hosts)
    lent = (*job.lent, *(h for h in hosts if h not in job.lent))
    reason = f"lends {hosts_text(len(hosts))} to {borrower}"
    return changed(state, job, spares, lent, reason, now_ns)


def changed(
    state: State,
    job: Job,
    spares: tuple[int, ...],
    lent: tuple[int, ...],
    reason: str,
    now_ns: int,
) -> SparesChanged:
    """From here on `job` holds these."""
    names = state.loaded_fabric.names
    return SparesChanged(now_ns, job.name, names(spares), reason, names(lent))


def back(state: State, hosts: HostSet, now_ns: int) -> Iterator[SparesChanged]:
    """Those of `hosts` that are lent and nobody is on any more are spares of their holders
    again."""
    home = hosts & state.lent & ~state.held
    if not home:
        return
    for job in state.holding:
        mine = tuple(h for h in job.lent if hostset.has(home, h))
        if mine:
            lent = tuple(h for h in job.lent if h not in mine)
            reason = f"gets back {hosts_text(len(mine))}"
            yield changed(state, job, (*job.spares, *mine), lent, reason, now_ns)


@dataclass(frozen=True, slots=True)
class SpareDebt:
    """A gang on hosts of others' spares. `hosts`: those it borrowed."""

    job: Job
    hosts: HostSet


def debts(state: State, lent: HostSet) -> list[SpareDebt]:
    """Who is on these lent hosts, in order of start."""
    gangs = state.holding if lent & state.held else ()
    return [SpareDebt(job, mine) for job in gangs if (mine := hostset.of(job.hosts) & lent)]
