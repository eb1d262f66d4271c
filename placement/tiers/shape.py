"""A placement inside one domain, or inside few zones, where its owner wants that; and on one
side of uplinks that are down.

See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placement.fabric import hostset
from placement.fabric.constraints import around, broken, fullest, tier_of, zones_of
from placement.fabric.hostset import HostSet
from placement.fabric.links import islands
from placement.fabric.tree import Fabric, masks
from placement.tiers.objectives import measure
from placement.tiers.step_clock import step_clock
from placement.workload.request import Placement, Request


def placed_inside(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    needed: int,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """The placement on `free`, which `constraints.usable` has left, that keeps the shape and
    crosses no barred uplink. `solve`: places on hosts, without regard to either."""

    def within(side: HostSet) -> Placement:
        if request.where.is_shape:
            return _shaped(fabric, side, request, needed, solve)
        return solve(side)

    return _on_one_side(fabric, free, request, needed, within) if fabric.barred else within(free)


def _shaped(
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


def _on_one_side(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    needed: int,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """The best of those that cross no barred uplink.

    Above them is one side, below each another. Of those below, the tightest that holds the gang
    stands for all: nothing of it leaves the domain in any of them.
    """
    above, *below = [free & island for island in islands(fabric)]
    sides = [side for side in (above,) if side.bit_count() >= needed]
    fits = sorted((s for s in below if s.bit_count() >= needed), key=int.bit_count)
    layouts = [solve(side) for side in [*sides, *fits[:1]]]

    def key(placement: Placement) -> tuple[float | int, ...]:
        cuts = placement.cuts
        return (measure(fabric, request, placement.hosts, cuts), *(c.bytes_per_step for c in cuts))

    best = min(layouts, key=key)
    lower = min(placement.lower_bound for placement in layouts)
    step = best.step
    if step is not None:
        least_s = min(p.step.least_seconds for p in layouts if p.step is not None)
        if len(fits) > 1:
            least_s = min(least_s, step_clock(fabric, request).on_one_switch.seconds)
        step = replace(step, least_seconds=least_s)
    return replace(best, lower_bound=lower, is_optimal=best.cut == lower, step=step)
