"""From zones to hosts, with little harm to what stays free.

The cut on every tier comes first: a way to spare whole domains is tried as a placement
of its own, and kept only where it cuts no more on any tier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placement.bands import band_trees
from placement.cut import cut
from placement.descend import Descent
from placement.fabric import Fabric, Ints
from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost
from placement.leftover import broken_below, harm, kindest, rehoused, sparing
from placement.request import Request
from placement.slicing import slice_grid

Hosts = tuple[int, ...]
FEW_TREES = 40  # tried for a layout that needs fewer whole zones


class Seating:
    """Hosts for the blocks of one grid. `free`: host indices, ascending; `grids`: as for
    `Descent`."""

    def __init__(
        self,
        fabric: Fabric,
        request: Request,
        free: Ints,
        grid: BlockGrid,
        grids: Sequence[BlockGrid],
        tries: int,
    ) -> None:
        self._fabric = fabric
        self._request = request
        self._free = free
        self._grid = grid
        self._grids = grids
        self._tries = tries

    def in_zones(self, layout: Layout, kept: Ints, kind: Ints) -> list[Hosts]:
        """Placements in the zones of `layout`, and in those that it harms least to use.

        `kept`: spares wished for beside the part in each zone; `kind`: zones are exchanged
        within one kind. Both of shape (zones,).
        """
        layouts = []
        for zones in (layout, self._without_whole_zones(layout)):
            if zones is not None:
                exchanged = self._kindest(zones, kept, kind)[zones]
                layouts += [zones, exchanged]
        found: list[Hosts] = []
        for i, zones in enumerate(layouts):
            if not any((zones == other).all() for other in layouts[:i]):
                found.append(self._kindly(self._free, self._into_zones(zones)))
        return found

    def _without_whole_zones(self, layout: Layout) -> Layout | None:
        """A layout of the same cut in broken zones and as few whole ones as these leave
        necessary; None when a short search finds none, or `layout` is one."""
        if not self._grid.weights:
            return None
        tier = self._fabric.tiers[0]
        size = np.bincount(tier.domain_by_host, minlength=len(tier.domains))
        room = np.bincount(tier.domain_by_host[self._free], minlength=len(tier.domains))
        missing = self._grid.size - int(room[room < size].sum())
        for zone in np.lexsort((np.arange(len(size)), -size)):
            if room[zone] == size[zone]:
                room[zone] = size[zone] if missing > 0 else 0
                missing -= int(room[zone])
        if room[np.unique(layout)].all() or np.count_nonzero(room) < 2:
            return None
        cost = layout_cost(self._grid, layout)
        trees = band_trees(self._grid, room.tolist())
        found, other = slice_grid(self._grid, room.tolist(), trees, FEW_TREES, cost)
        return other if found <= cost else None

    def inside(self, free: Ints, tier: int) -> Hosts:
        """The whole gang on the `free` hosts of one domain with children on `tier`."""
        return self._kindly(free, lambda hosts: self._into(hosts, tier))

    def _kindest(self, layout: Layout, kept: Ints, kind: Ints) -> Ints:
        tier = self._fabric.tiers[0]
        zones = len(tier.domains)
        size = np.bincount(tier.domain_by_host, minlength=zones)
        free = np.bincount(tier.domain_by_host[self._free], minlength=zones)
        used = np.bincount(layout.ravel(), minlength=zones)
        kept = np.minimum(kept, free - used) * (used > 0)
        inner = broken_below(self._fabric, self._free, used)
        return kindest(used, free, size, kept, kind, inner)

    def _into_zones(self, layout: Layout) -> Callable[[Ints], Hosts]:
        def on(free: Ints) -> Hosts:
            descent = Descent(self._fabric, self._grid, self._tries, self._grids, self._request)
            descent.into_zones(layout, free)
            return _by_block(self._grid, descent.host)

        return on

    def _into(self, free: Ints, tier: int) -> Hosts:
        if tier >= len(self._fabric.tiers):
            return tuple(free[: self._grid.size].tolist())
        descent = Descent(self._fabric, self._grid, self._tries, self._grids, self._request)
        everywhere = np.ones((self._grid.rows, self._grid.width), dtype=np.bool_)
        descent.into(everywhere, free, tier)
        return _by_block(self._grid, descent.host)

    def _kindly(self, free: Ints, seat: Callable[[Ints], Hosts]) -> Hosts:
        """`seat`'s hosts out of `free`, or zone by zone those it finds in broken domains."""
        best = rehoused(self._fabric, free, seat(free))
        spared = sparing(self._fabric, free, best)
        if len(spared) == len(free) or not self._could_harm_less(free, spared, best):
            return best
        other = np.asarray(rehoused(self._fabric, free, seat(spared)))
        zone = self._fabric.tiers[0].domain_by_host[other]
        for number in np.unique(zone):
            mixed = tuple(np.where(zone == number, other, best).tolist())
            if self._key(free, mixed) < self._key(free, best):
                best = mixed
        return best

    def _could_harm_less(self, free: Ints, spared: Ints, hosts: Hosts) -> bool:
        """Whether `hosts` break a domain that the spared hosts leave alone."""
        return bool(np.isin(hosts, np.setdiff1d(free, spared)).any())

    def _key(self, free: Ints, hosts: Hosts) -> tuple[int, ...]:
        cuts = cut(self._fabric, self._request, hosts)
        return (*(tier.bytes_per_step for tier in cuts), *harm(self._fabric, free, hosts))


def _by_block(grid: BlockGrid, host: Ints) -> Hosts:
    hosts = np.empty(grid.size, dtype=np.int64)
    hosts[grid.block] = host
    return tuple(hosts.tolist())
