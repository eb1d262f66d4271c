"""A placement inside one domain, or inside few zones, where its owner wants that.

See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placement.fabric import hostset
from placement.fabric.constraints import around, broken, fullest, masks, tier_of, zones_of
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Placement, Request


def shaped(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    needed: int,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """The placement on `free`, which `constraints.usable` has left, that keeps the shape.

    What is best without the constraint mostly keeps it, and then it is best with it. Its
    bound on an inner tier holds for every shape.
    """
    first = solve(free)
    if not broken(fabric, request.where, first.held):
        return first
    second = solve(_narrowed(fabric, free, request, needed, hostset.of(first.hosts)))
    cuts = {cut.tier for cut in second.cuts if cut.bytes_per_step}
    inner = first.inner if first.inner is not None and first.inner.tier in cuts else None
    return replace(second, inner=inner)


def _narrowed(
    fabric: Fabric, free: HostSet, request: Request, needed: int, gang: HostSet
) -> HostSet:
    where = request.where
    if where.same:
        domains = masks(fabric, tier_of(fabric, where.same, "constraints.same"))
        fits = [free & mask for mask in domains if (free & mask).bit_count() >= needed]
        return max(fits, key=lambda hosts: (hosts & gang).bit_count())
    zones = free & around(fabric, 0, gang)
    if zones_of(fabric, gang) <= where.max_zones and zones.bit_count() >= needed:
        return zones
    return fullest(fabric, free, where.max_zones)
