"""A placement inside one domain, or inside few zones, where its owner wants that; and on one
side of uplinks that are down.

See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import Room, around, broken, fullest, tier_of, zones_of
from placement.fabric.hostset import HostSet
from placement.fabric.links import islands
from placement.fabric.tree import Fabric, masks
from placement.tiers.objectives import measure
from placement.tiers.step_clock import step_clock
from placement.workload.request import Placement, Request
from placement.workload.segments import room_for


class NoRoom(Exception):
    """The gang fits only where some domain of the tier at `depth` lacks its spares."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


def placed_inside(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    needed: int,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """Return the placement on `free`, which `usable_for` has left, that keeps the shape and crosses
    no barred uplink. `solve`: places on hosts, without regard to either. Raises: NoRoom as it
    does."""

    room = room_for(fabric, request, needed)

    def within(side: HostSet) -> Placement:
        if request.where.is_shape:
            return _shaped(fabric, side, request, needed, room, solve)
        return solve(side)

    if not fabric.barred:
        return within(free)
    sides = [side if room(side) >= needed else 0 for side in (free & i for i in islands(fabric))]
    return _on_one_side(fabric, sides, request, within)


def _shaped(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    needed: int,
    room: Room,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """The placement on `free`, which `usable_for` has left, that keeps the shape.

    What is best without the constraint mostly keeps it, and then it is best with it. Its
    bound on an inner tier holds for every shape.
    """
    first = solve(free)
    if not broken(fabric, request.where, first.allocation):
        return first
    narrowed = _narrowed(fabric, free, request, needed, room, hostset.of(first.hosts))
    second, where, lower = solve(narrowed), request.where, first.lower_bound
    if narrowed == fullest(fabric, free, where.max_zones) and not where.has_segments:
        lower = second.lower_bound  # which holds for every other choice of zones
    cuts = {cut.tier for cut in second.cuts if cut.bytes_per_step}
    inner = first.inner if first.inner is not None and first.inner.tier in cuts else None
    lower = min(lower, second.lower_bound)
    return replace(second, inner=inner, lower_bound=lower, is_optimal=second.cut == lower)


def _narrowed(
    fabric: Fabric, free: HostSet, request: Request, needed: int, room: Room, gang: HostSet
) -> HostSet:
    where = request.where
    if where.same:
        domains = masks(fabric, tier_of(fabric, where.same, "constraints.same"))
        fits = [free & mask for mask in domains if room(free & mask) >= needed]
        return max(fits, key=lambda hosts: (hosts & gang).bit_count())
    zones = free & around(fabric, 0, gang)
    if zones_of(fabric, gang) <= where.max_zones and room(zones) >= needed:
        return zones
    return fullest(fabric, free, where.max_zones, room)


def _on_one_side(
    fabric: Fabric,
    sides: Sequence[HostSet],
    request: Request,
    solve: Callable[[HostSet], Placement],
) -> Placement:
    """The best of those that cross no barred uplink. `sides`: free hosts above these and below
    each, none where the gang does not fit. Of those below, the tightest stands for all: nothing of
    the gang leaves the domain in any of them."""
    above, fits = sides[0], sorted(filter(None, sides[1:]), key=int.bit_count)
    layouts, refused = [], None
    for side in filter(None, (above, *fits[:1])):
        try:
            layouts.append(solve(side))
        except NoRoom as lack:
            refused = lack
    if refused is not None and not layouts:
        raise refused

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
