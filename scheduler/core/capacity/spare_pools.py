"""The spares of each zone: held by jobs, shared by the gangs of the zone.

A job with `spares: auto` holds what its zones still lack for all such gangs together, so
that many small gangs hold no more than one large one would. In return each may take, when
a host of its own fails, a spare that another of them holds in the zone: the more important
gang is served first. A number or share of spares is the job's own, and nobody else's.
"""

from __future__ import annotations

from functools import cached_property, reduce
from operator import or_

from muster.structs import replace, struct
from placement import Sizing
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.job import Job
from scheduler.core.model.records.failure_rates import sizing
from scheduler.core.model.state import State
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import domain_masks
from scheduler.core.tenancy.spare_loans import SpareLoans


@struct(frozen=True)
class SparePools:
    """The spares that gangs hold in one state, zone by zone. Cost: O(hosts held) at the first
    question."""

    state: State

    @property
    def loans(self) -> SpareLoans:
        return SpareLoans(self.state)

    @cached_property
    def sizing(self) -> Sizing:
        """Return the failure rates that size the spares of a single gang, as the log has them so
        far."""
        state = self.state
        hosts = state.loaded_fabric.host_count
        return sizing(state.tenants.spares, state.faults, hosts, state.seen_ns)

    @cached_property
    def zones(self) -> tuple[HostSet, ...]:
        """Hosts of each outermost domain; of the whole fabric where there is no tier."""
        fabric = self.state.loaded_fabric
        if not fabric.tiers:
            return (hostset.full(fabric.host_count),)
        return tuple(domain_masks(fabric, fabric.tiers[0].name))

    @cached_property
    def jobs(self) -> list[Job]:
        """Gangs with `spares: auto` that hold hosts, most important first."""
        jobs = map(self.state.jobs.__getitem__, self.state.index.special)
        return sorted((j for j in jobs if j.spec.request.spares.is_auto), key=lambda j: j.order)

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Hosts of these gangs by outermost domain."""
        return self._by_zone(reduce(or_, (hostset.of(job.hosts) for job in self.jobs), 0))

    @cached_property
    def spares_by_zone(self) -> tuple[int, ...]:
        """Spares in service of all gangs, lent ones too, by outermost domain."""
        held = reduce(or_, (hostset.of(job.all_spares) for job in self.jobs), 0)
        return self._by_zone(held & ~self.state.index.out_of_service)

    @cached_property
    def wishes(self) -> tuple[int, ...]:
        """Spares wished for in each outermost domain, whole racks among them."""
        return self.wishes_by(self.sizing)

    def wishes_by(self, by: Sizing) -> tuple[int, ...]:
        rack = rack_hosts(self.state.loaded_fabric) * by.racks
        return tuple(by.size(count) + rack if count else 0 for count in self.hosts)

    @property
    def pooled_spares(self) -> int:
        """Spares that one pool of all zones would need: zones are taken not to fail together."""
        zones = sum(count > 0 for count in self.hosts)
        apart = replace(self.sizing, clumping=self.sizing.clumping / max(1, zones))
        return apart.size(sum(self.hosts))

    def for_placing(self) -> Sizing:
        """Return the sizing for the next gang, which counts spares that stand by."""
        if not self.jobs:
            return self.sizing
        return replace(self.sizing, others=self.hosts, held=self.spares_by_zone)

    def choose_spares_to_keep(self, job: Job, idle: HostSet) -> HostSet:
        """The hosts, of these idle ones, that stay spares when `job` is placed again: what each
        zone of gangs wishes for, where spares stand by in every one."""
        if not self.sizing.in_zone or not job.spec.request.spares.is_auto:
            return 0
        parts = zip(self.zones, self.wishes, strict=True)
        return reduce(or_, (highest(idle & zone, wish) for zone, wish in parts), 0)

    def lent_to(self, job: Job) -> dict[int, str]:
        """Return spares of others that a gang may borrow, and who owns them."""
        if not job.spec.request.spares.is_auto:
            return {}
        hosts = hostset.of(job.hosts)
        near = reduce(or_, (zone for zone in self.zones if zone & hosts), 0)
        near &= ~self.state.index.out_of_service
        return {
            spare: lender.name
            for lender in self.jobs
            if lender.name != job.name
            for spare in self.loans.idle(lender)
            if hostset.has(near, spare)
        }

    def recallable(self, job: Job) -> HostSet:
        """Spares that are lent and that `job` may have back: its own, and spares that
        others share with it."""
        mine = job.lent_hosts
        if job.spec.request.spares.is_auto:
            mine |= reduce(or_, (lender.lent_hosts for lender in self.jobs), 0)
        return mine & self.state.index.held & ~self.state.index.out_of_service

    def _by_zone(self, hosts: HostSet) -> tuple[int, ...]:
        return tuple((hosts & zone).bit_count() for zone in self.zones)


def rack_hosts(fabric: Fabric) -> int:
    """Return the number of hosts of the largest rack; 0 where there are no racks below zones."""
    if len(fabric.tiers) < 2:
        return 0
    return max(mask.bit_count() for mask in domain_masks(fabric, fabric.tiers[-1].name))
