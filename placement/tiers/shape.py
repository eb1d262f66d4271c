"""A placement inside one domain, or inside few zones, where its owner wants that; and on one
side of uplinks that are down.

Segments are single large hosts here: a smaller problem with the same answers and bounds.
What a segment is: placement/workload/segments.py. A *slot* is room for one in a domain: n free
hosts are n // s slots. The gang on slots is laid out by the same engine, with the ranks of a
segment as those of a host; cuts on the tier of the segments and outside it are the same bytes, so
its bounds are bounds of the gang. Inside the domain segments lie on hosts in order, or, where the
tier is not the innermost, as any part of a gang is packed.

Lower bounds on the step hold for the gang: what moves inside a slot needs no network card, and
what leaves it is spread over the cards of all its hosts.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.constraints import (
    Constraints,
    Room,
    around,
    broken,
    fullest,
    tier_of,
    zones_of,
)
from placement.fabric.hostset import HostSet
from placement.fabric.links import islands
from placement.fabric.tree import Fabric, Hardware, Ints, Tier, Uplink, masks, nth_of_each
from placement.grid.block_grid import BlockGrid, block_grid
from placement.tiers.objectives import measure
from placement.tiers.seating import Descent
from placement.tiers.step_clock import step_clock
from placement.workload.request import NO_SPARES, UNSEARCHED, Limits, Placement, Request
from placement.workload.segments import Segments, part_by_block, room_for
from placement.workload.traffic import without_trees

NOWHERE = -1


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


@struct(frozen=True, slots=True, eq=False)
class SlotFabric:
    """A fabric whose hosts are slots. `domain_by_slot`: of the fabric that it was made of."""

    fabric: Fabric
    domain_by_slot: Ints


@struct(frozen=True, slots=True, eq=False)
class Contraction:
    """A gang on slots: `fabric`, `free` and `request` of the smaller problem."""

    fabric: Fabric
    free: HostSet
    request: Request
    is_innermost: bool
    _outer: Fabric
    _whole: Request
    _segments: Segments
    _hosts: Ints
    _domain_by_slot: Ints

    def expand(
        self, slots: Sequence[int], old: Sequence[int] = (), limits: Limits = UNSEARCHED
    ) -> Ints:
        """Return the host of each block, on the free hosts of the domains that these slots are in.
        `old`: where each block was; it stays on its host where that may be."""
        level, gpus = self._segments.inner, self._outer.gpus_per_host
        number = part_by_block(self._outer, self._whole, self._segments)
        domain = self._domain_by_slot[np.asarray(slots, dtype=np.int64)]
        by_block = domain[number // level.blocks]
        tier = self._outer.tiers[level.depth].domain_by_host
        expanded = np.full(len(by_block), NOWHERE, dtype=np.int64)
        for d in np.unique(domain):
            free, mine = self._hosts[tier[self._hosts] == d], by_block == d
            if not self.is_innermost:
                grid = block_grid(self._whole, gpus) or BlockGrid.shapeless(len(by_block))
                descent = Descent(self._outer, grid, limits, self._whole)
                region = mine[grid.block]
                descent.into(region, free, level.depth + 1)
                expanded[grid.block[region]] = descent.host[region]
                continue
            blocks = np.flatnonzero(mine)[np.argsort(number[mine], kind="stable")]
            was = np.asarray(old, dtype=np.int64)[blocks] if len(old) else np.full(len(blocks), -1)
            stays = np.isin(was, free)
            expanded[blocks[stays]] = was[stays]
            expanded[blocks[~stays]] = np.setdiff1d(free, was[stays])[: int((~stays).sum())]
        return expanded

    def old_slots(self, hosts: Sequence[int]) -> tuple[int, ...]:
        """Return the slot of each segment of a gang that was on these hosts: in the domain that
        most of the segment was in, NOWHERE where that has no free slot left."""
        level = self._segments.inner
        number = part_by_block(self._outer, self._whole, self._segments)
        was = np.empty(len(number), dtype=np.int64)
        was[number] = np.asarray(hosts, dtype=np.int64)
        slots = hostset.indices(self.free)
        left = {int(d): slots[self._domain_by_slot[slots] == d].tolist()[::-1]
                for d in np.unique(self._domain_by_slot[slots])}  # fmt: skip
        tier, earlier = self._outer.tiers[level.depth].domain_by_host, []
        for part in was.reshape(-1, level.blocks):
            known, many = np.unique(tier[part[part >= 0]], return_counts=True)
            room = left.get(int(known[many.argmax()]), []) if len(known) else []
            earlier.append(room.pop() if room else NOWHERE)
        return tuple(earlier)


def contract(fabric: Fabric, free: HostSet, request: Request, segments: Segments) -> Contraction:
    """Make the smaller problem of a gang on slots of its innermost segments. `free`: hosts that it
    may take."""
    level = segments.inner
    slots = _slots(fabric, level.depth, level.blocks)
    hosts = hostset.indices(free)
    tier = fabric.tiers[level.depth]
    room = tier.count(hosts) // level.blocks
    usable = np.flatnonzero(nth_of_each(slots.domain_by_slot) < room[slots.domain_by_slot])
    ordered = replace(request.parallelism, order=segments.order)
    outer = tuple((f, t) for f, t in request.where.within if _is_outside(fabric, t, level.depth))
    where = Constraints(within=outer)  # who calls keeps the gang in one domain, or in few zones
    whole = without_trees(request)  # whose nodes are hosts, and not slots
    smaller = replace(whole, parallelism=ordered, where=where, spares=NO_SPARES)
    return Contraction(
        slots.fabric, hostset.of(usable.tolist()), smaller, level.depth == len(fabric.tiers) - 1,
        fabric, request, segments, hosts, slots.domain_by_slot,
    )  # fmt: skip


def _is_outside(fabric: Fabric, name: str, depth: int) -> bool:
    names = [tier.name for tier in fabric.tiers]
    at = names.index(name) if name in names else 0 if name == "zone" else len(names)
    return at < depth


@lru_cache(maxsize=64)
def _slots(fabric: Fabric, depth: int, blocks: int) -> SlotFabric:
    """The slots of the empty fabric, without domains that have none."""
    kind = np.flatnonzero(fabric.by_host.gpus == fabric.gpus_per_host)
    tier = fabric.tiers[depth]
    room = tier.count(kind) // blocks
    domain = np.repeat(np.arange(len(room)), room)
    first = np.searchsorted(tier.domain_by_host, domain)  # a host of the domain
    tiers, number = [], dict[Uplink, Uplink]()
    for level, outer in enumerate(fabric.tiers[: depth + 1]):
        there, by_slot = np.unique(outer.domain_by_host[first], return_inverse=True)
        joined = None if outer.is_scale_up is None else outer.is_scale_up[there]
        names = tuple(outer.domains[d] for d in there)
        number |= {(level, int(d)): (level, i) for i, d in enumerate(there)}
        tiers.append(Tier(outer.name, names, by_slot, outer.uplink_bytes_per_s[there], joined))
    own, gpus = fabric.by_host, fabric.gpus_per_host * blocks
    nic, inside = float(own.nic_gbps[kind].max()), float(own.scale_up_gbps[kind].max())
    slots = len(domain)
    has = Hardware(
        np.full(slots, gpus),
        np.full(slots, nic),
        np.full(slots, inside),
        kinds=own.kinds,
        kind_by_host=None if own.kind_by_host is None else own.kind_by_host[first],
        is_kind_assumed=own.is_kind_assumed,
    )
    names = tuple(f"{tier.domains[d]}/{i}" for i, d in enumerate(domain.tolist()))
    spec = {"slots": blocks, "tier": depth, "gpus_per_host": gpus, "of": fabric.digest}
    made = Fabric(
        *(fabric.name, fabric.kind, gpus, nic, tuple(tiers), names, spec, has, inside),
        links=tuple((number[at], share) for at, share in fabric.links if at in number),
        barred=tuple(number[at] for at in fabric.barred if at in number),
        base=fabric.base and _slots(fabric.base, depth, blocks).fabric,
    )
    return SlotFabric(made, domain)
