"""From zones to hosts, with little harm to what stays free.

Each domain that carries a part of the gang packs it onto its children, and so on until the children
are hosts. Inner tiers only ever see hosts that are free.

The cut on every tier comes first. So every way to spare whole domains is a placement of
its own, which the caller compares; ways that need more domains are not tried, for they
would cut more.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from muster.structs import replace, struct
from placement.fabric.tree import Fabric, Ints, sizes_of
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, Region, layout_cost
from placement.search.graph_slicing import slice_grid
from placement.tiers.fragmentation import choose_domains, fewest_whole, rehoused, spare_domains
from placement.tiers.packing import Gang
from placement.workload.request import Limits, Request

Hosts = tuple[int, ...]


@struct(frozen=True, slots=True, eq=False)
class ZoneChoice:
    """One choice of zones for a gang: the zone of each block, or one domain (`zones` None) with
    children on `tier`. Hosts come from `free`."""

    zones: Layout | None
    free: Ints
    tier: int = 1


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `request`: of a gang whose ranks form no grid; without it the blocks stay in order. `limits`: of
    the searches inside domains, for which first walks must do where no trees are allowed.
    """

    def __init__(
        self,
        fabric: Fabric,
        grid: BlockGrid,
        limits: Limits,
        request: Request | None = None,
    ) -> None:
        self._fabric = fabric
        self._limits = limits
        self._gang = Gang(grid, request, fabric.gpus_per_host)
        self.host = np.full((grid.rows, grid.width), -1, dtype=np.int64)

    def into(self, region: Region, free: Ints, tier: int) -> None:
        """Pack `region` onto `free` hosts of one domain, whose children are on `tier`."""
        needed = int(np.count_nonzero(region))
        if tier == len(self._fabric.tiers):
            self.host[region] = free[:needed]
            return
        domain = self._fabric.tiers[tier].domain_by_host[free]
        children, room = np.unique(domain, return_counts=True)
        fitting = np.flatnonzero(room >= needed)
        if len(fitting):
            child = children[fitting[np.argmin(room[fitting])]]
            self.into(region, free[domain == child], tier + 1)
            return
        layout = np.full(region.shape, -1, dtype=np.int64)
        layout[region] = self._gang.packed(region, room.tolist(), self._limits)
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _seat(self, region: Region, layout: Layout, numbers: Ints, free: Ints) -> None:
        """Blocks of each innermost domain onto its hosts, both in ascending order."""
        domain = self._fabric.tiers[-1].domain_by_host[free]
        for label in np.unique(layout[region]):
            part = layout == label
            self.host[part] = free[domain == numbers[label]][: np.count_nonzero(part)]


class Seating:
    """Chooses hosts for the blocks of one grid. `free`: host indices, ascending."""

    def __init__(
        self,
        fabric: Fabric,
        request: Request,
        free: Ints,
        grid: BlockGrid,
        limits: Limits,
    ) -> None:
        self._fabric = fabric
        self._free = free
        self._grid = grid
        self._few_trees = limits.first.trees
        self._descent = Descent(fabric, grid, limits, request)
        self._known: dict[tuple[bytes, bytes], Ints] = {}

    def in_zones(self, layout: Layout, kept: Ints, kind: Ints) -> Iterator[ZoneChoice]:
        """Yield the zones of `layout`, and zones with the same cut whose use fragments less.

        `kept`: spares wished for beside the part in each zone; `kind`: zones are exchanged within
        one kind. Both of shape (zones,).
        """
        layouts = [layout]
        yield ZoneChoice(layout, self._free)
        for zones in (layout, self._without_whole_zones(layout)):
            if zones is not None:
                for other in (zones, self._kindest(zones, kept, kind)[zones]):
                    if not any((other == known).all() for known in layouts):
                        layouts.append(other)
                        yield ZoneChoice(other, self._free)

    def inside(self, domains: Sequence[tuple[Ints, int]]) -> list[ZoneChoice]:
        """Return choices with the whole gang in one of `domains`: (free hosts, tier below)."""
        return [ZoneChoice(None, free, tier) for free, tier in domains]

    def zone_by_block(self, way: ZoneChoice) -> Ints:
        """Return the zone of each block; 0 on a fabric without tiers."""
        if way.zones is not None:
            return self._grid.by_block(way.zones)
        tiers = self._fabric.tiers
        if tiers and way.tier == 0:
            return np.asarray(tiers[0].domain_by_host[list(self._hosts(way))])
        return np.full(self._grid.size, tiers[0].domain_by_host[way.free[0]] if tiers else 0)

    def seated(self, ways: Sequence[ZoneChoice]) -> list[Hosts]:
        """Return hosts for each choice, and, where that is likely to fit, hosts that break fewer
        whole domains."""
        layouts = [self._hosts(way) for way in ways]
        for way, hosts in zip(ways, list(layouts), strict=True):
            if way.zones is None and way.tier >= len(self._fabric.tiers):
                continue
            free = spare_domains(self._fabric, way.free, hosts)
            if np.isin(hosts, np.setdiff1d(way.free, free)).any():
                layouts.append(self._hosts(replace(way, free=free)))
        return layouts

    def _hosts(self, way: ZoneChoice) -> Hosts:
        if way.tier >= len(self._fabric.tiers) and way.zones is None:
            return tuple(way.free[: self._grid.size].tolist())
        zones = np.zeros((self._grid.rows, self._grid.width), dtype=np.int64)
        zone_of_free = np.zeros(len(way.free), dtype=np.int64)
        if way.zones is not None:
            zones, zone_of_free = way.zones, self._fabric.tiers[0].domain_by_host[way.free]
        host = np.empty_like(zones)
        for number in np.unique(zones):
            part = zones == number
            host[part] = self._part(part, way.free[zone_of_free == number], way.tier)
        return rehoused(self._fabric, way.free, tuple(self._grid.by_block(host).tolist()))

    def _part(self, part: Region, free: Ints, tier: int) -> Ints:
        """Hosts of the blocks in one domain, remembered: ways share most of theirs."""
        key = (part.tobytes(), free.tobytes())
        if key not in self._known:
            self._descent.into(part, free, tier)
            self._known[key] = self._descent.host[part]
        return self._known[key]

    def _kindest(self, layout: Layout, kept: Ints, kind: Ints) -> Ints:
        tier = self._fabric.tiers[0]
        free, used = tier.count(self._free), np.bincount(layout.ravel(), minlength=len(kind))
        kept = np.minimum(kept, free - used) * (used > 0)
        return choose_domains(used, free, sizes_of(tier), kept, kind)

    def _without_whole_zones(self, layout: Layout) -> Layout | None:
        """A layout of the same cut in broken zones and as few whole ones as these leave
        necessary; None when a short search finds none, or `layout` is one."""
        if not self._grid.weights:
            return None
        tier = self._fabric.tiers[0]
        room = tier.count(self._free)
        room = np.where(fewest_whole(room, sizes_of(tier), self._grid.size), room, 0)
        if room[np.unique(layout)].all() or np.count_nonzero(room) < 2:
            return None
        cost = layout_cost(self._grid, layout)
        other = slice_grid(self._grid, room.tolist(), self._few_trees, cost)
        return other if layout_cost(self._grid, other) <= cost else None
