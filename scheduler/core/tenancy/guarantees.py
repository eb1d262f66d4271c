"""Guarantees that have a shape: which hosts are kept so that it can be had.

A cell is so many hosts in one domain. For each cell that its tenant has not filled, one
domain is chosen, and as many of its free hosts are kept as the cell still lacks; only
the tenant's own jobs, and jobs that can be preempted, may use them. Chosen is a domain
that lacks nothing (free hosts and the tenant's own make the cell) before one that lacks
hosts, then the one that the tenant uses most, then the fullest, so that emptier ones
stay whole. A domain that lacks hosts is kept all the same: it fills up as others leave.

Source: Zhao et al., HiveD (OSDI 2020), whose cells form a buddy system; here they are
counted on the fabric's own domains, for gangs are placed by the cut and not by cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from placement import BadInput
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.policies.tenants import GuaranteedCell, Tenants
from scheduler.core.tenancy import quota
from scheduler.core.tenancy.quota import QuotaNode, cell_hosts, cell_masks, cells_of


def withhold_for_cells(
    tenants: Tenants,
    fabric: Fabric,
    by_name: Mapping[str, QuotaNode],
    held_by_leaf: Mapping[str, HostSet],
    free: HostSet,
) -> dict[str, HostSet]:
    """Choose free hosts to keep for each tenant that has cells. Order: as in the tenants file.

    A tenant is kept no more than its guarantee less what it holds anywhere. Cost: O(domains) for
    each cell's tier, some 2 ms with 1,536 racks.
    """
    kept: dict[str, HostSet] = {}
    for tenant in tenants.tenants:
        if cells := cells_of(tenant, fabric):
            own = _own(by_name, held_by_leaf, tenant.name)
            due = by_name[tenant.name].guaranteed - own.bit_count()
            kept[tenant.name] = _withhold_for_tenant(cells, fabric, own, free, due)
            free &= ~kept[tenant.name]
    return kept


def check(tenants: Tenants, fabric: Fabric) -> None:
    """Refuse guarantees that cannot all be had at once on an empty fabric.

    Raises: BadInput naming the tenant and the key.
    """
    quota.check(tenants, fabric)
    by_name = quota.nodes(tenants, fabric)
    kept = withhold_for_cells(tenants, fabric, by_name, {}, hostset.full(fabric.host_count))
    for tenant in tenants.tenants:
        wanted = sum(cell.count * cell_hosts(fabric, cell) for cell in cells_of(tenant, fabric))
        if wanted and kept[tenant.name].bit_count() < wanted:
            message = f"{fabric.name} has no room for them after those of the tenants before"
            key = "cells" if tenant.cells else "kinds"
            raise BadInput(f"tenants.{tenant.name}.{key}", message)


def _own(
    by_name: Mapping[str, QuotaNode], held_by_leaf: Mapping[str, HostSet], name: str
) -> HostSet:
    """Return the hosts that the tenant and its sub-tenants hold."""
    own = 0
    for leaf, hosts in held_by_leaf.items():
        if name in by_name[leaf].path:
            own |= hosts
    return own


def _withhold_for_tenant(
    cells: tuple[GuaranteedCell, ...], fabric: Fabric, own: HostSet, free: HostSet, due: int
) -> HostSet:
    kept = 0
    for cell in cells:
        size = cell_hosts(fabric, cell)
        chosen = _nearest(cell_masks(fabric, cell), own & ~kept, free & ~kept, size)
        for mask in chosen[: cell.count]:
            lacking = max(0, min(size - (own & mask).bit_count(), due))
            kept |= highest(free & mask & ~kept, lacking)
            due -= lacking
    return kept


def _nearest(masks: tuple[HostSet, ...], own: HostSet, free: HostSet, size: int) -> list[HostSet]:
    """The domains, those first that can most easily hold a cell."""

    def key(mask: HostSet) -> tuple[int, int, int]:
        held = min(size, (own & mask).bit_count())
        there = (free & mask).bit_count()
        return max(0, size - held - there), -held, there

    return sorted(masks, key=key)


def highest(hosts: HostSet, count: int) -> HostSet:
    """Return the `count` hosts of the largest numbers; all when there are no more."""
    if hosts.bit_count() <= count:
        return hosts
    shifts = range(hosts.bit_length() + 1)
    shift = bisect_left(shifts, -count, key=lambda by: -(hosts >> by).bit_count())
    return hosts >> shift << shift
