"""Spares that stand idle are lent to preemptible jobs, and stay on the books of their holder.

A host that is lent leaves `spares` of the job that holds it for `lent`, and is one of the
borrower's hosts. When the borrower leaves it nobody else may take it but to borrow it: its
holder has it back at the next decision in which there is nothing else to do, or at once
when it needs it. Who borrows agrees to leave at any moment: neither priority nor minimum run
time stand in the way then.

`keep_idle` spares of each zone are not lent, so that a single failure is served by a host that
nobody has to leave first. Jobs that say where they lie, or beside whom, do not lend: their
hosts are theirs for a reason.

`SpareLoans` is all that the rest of the core asks about loans, and all that it records of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from muster.structs import struct
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


@struct(frozen=True, slots=True)
class SpareDebt:
    """A gang on borrowed spares. `hosts`: the spares that it borrowed."""

    job: Job
    hosts: HostSet


@struct(frozen=True, slots=True)
class SpareLoans:
    """The spares that are lent in one state, and spares that may be."""

    state: State

    @property
    def hosts(self) -> HostSet:
        """Spares that are lent, whether or not their borrowers are still on them."""
        return self.state.index.lent

    @property
    def unused_loans(self) -> HostSet:
        """Lent spares that nobody uses any more: their holders may have them back."""
        return self.hosts & ~self.state.index.held

    def borrowed(self, job: Job) -> HostSet:
        """Hosts of `job` that are spares of others."""
        return job.allocation & self.hosts

    def owned(self, job: Job) -> HostSet:
        """Return the hosts that `job` holds or has lent, without what it borrowed."""
        return job.allocation & ~self.hosts | job.lent_hosts

    def idle(self, job: Job) -> tuple[int, ...]:
        """Spares of `job` in service that nobody runs on, lent ones that were left first."""
        home = (host for host in job.present.lent if not hostset.has(self.state.index.held, host))
        out = self.state.index.out_of_service
        return tuple(h for h in (*home, *job.spares) if not hostset.has(out, h))

    def lendable(self, evicted: Collection[str] = ()) -> Mapping[int, Job]:
        """Hosts that may be lent now, and whose spares they are, once some gangs are `evicted`.
        Cost: O(gangs)."""
        policy, fabric = self.state.tenants.spares, self.state.loaded_fabric
        if not policy.lend or not self.state.tenants.preemption.is_on:
            return {}
        gangs = self.state.in_state(JobState.RUNNING)
        spares = {
            host: job
            for job in sorted(gangs, key=lambda j: j.order, reverse=True)
            if job.request.where == ANYWHERE and job.spec.affinity == ANYBODY
            if job.name not in evicted
            for host in self.idle(job)
        }
        kept = [policy.keep_idle] * fabric.zone_count
        for host in reversed([*spares]):  # the most important gangs keep theirs
            zone = fabric.zone_of(host)
            if kept[zone]:
                kept[zone] -= 1
                del spares[host]
        return spares

    def holders(self, hosts: HostSet) -> dict[int, str]:
        """Return which of these hosts are lent, and whose spares they are."""
        gangs = self.state.holding if self.hosts & hosts else ()
        return {h: job.name for job in gangs for h in job.present.lent if hostset.has(hosts, h)}

    def debts(self, hosts: HostSet) -> list[SpareDebt]:
        """Return the borrowers of these hosts, in order of start."""
        lent = hosts & self.hosts
        gangs = self.state.holding if lent & self.state.index.held else ()
        return [SpareDebt(job, mine) for job in gangs if (mine := hostset.of(job.hosts) & lent)]

    def lend(
        self, borrower: str, hosts: HostSet, holders: Collection[str], now_ns: int
    ) -> tuple[SparesChanged, ...] | Stale:
        """Lend the spares among `hosts`. Return Stale where their holders are others by now, or
        keep them."""
        may, spares = self.lendable(), hosts & (self.state.index.held | self.hosts)
        wanted = {h: may[h] for h in hostset.members(spares) if h in may}
        if {job.name for job in wanted.values()} != {*holders}:
            text = "spares that it would borrow are no longer available"
            return stale_job(borrower, StaleReason.LOAN, text)
        by_name: dict[str, list[int]] = {}
        for host, job in wanted.items():
            by_name.setdefault(job.name, []).append(host)
        return tuple(
            self._lent(self.state.jobs[name], lent, borrower, now_ns)
            for name, lent in by_name.items()
        )

    def _lent(self, job: Job, hosts: list[int], borrower: str, now_ns: int) -> SparesChanged:
        spares = tuple(s for s in job.spares if s not in hosts)
        reason = f"lends {hosts_text(len(hosts))} to {borrower}"
        more = tuple(h for h in hosts if h not in job.present.lent)
        return self.holding_event(job, spares, reason, now_ns, more)

    def give_back(self, hosts: HostSet, now_ns: int) -> Iterator[SparesChanged]:
        """Return the lent `hosts` that no gang is on any more to their holders, as spares."""
        home = hosts & self.unused_loans
        for job in self.state.holding if home else ():
            if mine := tuple(h for h in job.present.lent if hostset.has(home, h)):
                reason = f"gets back {hosts_text(len(mine))}"
                yield self.holding_event(job, (*job.spares, *mine), reason, now_ns)

    def holding_event(
        self,
        job: Job,
        spares: tuple[int, ...],
        reason: str,
        now_ns: int,
        more_lent: tuple[int, ...] = (),
    ) -> SparesChanged:
        """Return the event that `job` holds these spares. What it has lent stays lent, but for what
        is among them."""
        names = self.state.loaded_fabric.names
        lent = (*(h for h in job.present.lent if h not in spares), *more_lent)
        return SparesChanged(now_ns, job.name, names(spares), reason, names(lent))
