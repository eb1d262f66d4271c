"""Quotas at moments to come, as gangs end: what tenants hold then, and which hosts are kept for
cells.

Where a cell will be chosen depends on who leaves early and who comes between, which nobody knows.
How many hosts it takes does not: what its tenant lacks of its guarantee, and no more. A start that
leaves so many hosts beside it is therefore sure, wherever cells are chosen in the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.job import Job, Release
from scheduler.core.model.records.tenant import hosts_filled
from scheduler.core.policies.tenants import Tenants
from scheduler.core.tenancy.guarantees import withhold_for_cells
from scheduler.core.tenancy.quota import QuotaBook, QuotaNode, cell_hosts, cells_of, count_of_kind


class FutureQuota:
    """The quotas as running gangs end. Mutable: each gang that ends is entered. `book`: who holds
    how many hosts then; `part_gpus`: GPUs on parts of hosts, by tenant."""

    def __init__(
        self,
        tenants: Tenants,
        fabric: Fabric,
        by_name: Mapping[str, QuotaNode],
        book: QuotaBook,
        held_by_leaf: dict[str, HostSet],
        part_gpus: dict[str, int],
    ) -> None:
        self._part_gpus = part_gpus
        self._tenants, self._fabric, self._by_name = tenants, fabric, by_name
        self._held, self.book = held_by_leaf, book

    def remove_gang(self, gang: Release, hosts: HostSet) -> None:
        """Record that `gang` ends. `hosts`: all that it holds, or has lent."""
        self.book.take(gang.tenant, -self._counted(gang), -gang.borrowed)
        if self._held:
            self._held[gang.tenant] = self._held.get(gang.tenant, 0) & ~hosts

    def count_held(self, tenant: str, kind: HostSet) -> int:
        """Return how many hosts of a kind the tenant holds then, with its sub-tenants."""
        return count_of_kind(self._by_name, self._held, tenant, kind)

    def _counted(self, gang: Release) -> int:
        """As how many hosts the tenant had it; see `Quotas.counted`."""
        if not gang.part_gpus:
            return gang.held
        before, per_host = self._part_gpus.get(gang.tenant, 0), self._fabric.gpus_per_host
        left = max(0, before - gang.part_gpus)
        self._part_gpus[gang.tenant] = left
        return hosts_filled(before, per_host) - hosts_filled(left, per_host)

    def due_in_cells(self, job: Job) -> int:
        """Return how many hosts at most the cells of other tenants withhold from `job`."""
        if job.is_preemptible or not self._tenants.has_cells:
            return 0
        path = self._by_name[job.tenant].path
        return sum(
            min(
                self.book.due(tenant.name),
                sum(cell.count * cell_hosts(self._fabric, cell) for cell in cells),
            )
            for tenant in self._tenants.tenants
            if (cells := cells_of(tenant, self._fabric)) and tenant.name not in path
        )

    def withheld_from(self, job: Job, free: HostSet) -> HostSet:
        """Return the `free` hosts that would be withheld from `job` for the cells of others."""
        if job.is_preemptible or not self._tenants.has_cells:
            return 0
        path = self._by_name[job.tenant].path
        kept = withhold_for_cells(self._tenants, self._fabric, self._by_name, self._held, free)
        withheld = (hosts for name, hosts in kept.items() if name not in path)
        return sum(withheld)  # no host is kept for two
