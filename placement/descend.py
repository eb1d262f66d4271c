"""From the outermost tier down to hosts.

Each domain that carries a part of the gang packs it onto its children, and so on until
the children are hosts. Inner tiers only ever see hosts that are free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placement.fabric import Fabric, Ints
from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost
from placement.pack import pack, ranked
from placement.slicing import Region

INNER_TRIES = 60


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `grids`: the same grid with its slots in other orders, in which inner tiers may be
    packed better than in the order that suits the outermost one.
    """

    def __init__(
        self, fabric: Fabric, grid: BlockGrid, tries: int, grids: Sequence[BlockGrid] = ()
    ) -> None:
        self._fabric = fabric
        self._grid = grid
        self._orders = [(other, _slots_of(grid, other)) for other in grids or [grid]]
        self._tries = min(tries, INNER_TRIES)
        self.host = np.full((grid.rows, grid.width), -1, dtype=np.int64)

    def into_zones(self, layout: Layout, free: Ints) -> None:
        """Every zone of `layout` carries its part on its own `free` hosts."""
        zone = self._fabric.tiers[0].domain_by_host[free]
        for number in np.unique(layout):
            self.into(layout == number, free[zone == number], 1)

    def into(self, region: Region, free: Ints, tier: int) -> None:
        """Pack `region` onto `free` hosts of one domain, whose children are on `tier`."""
        needed = int(np.count_nonzero(region))
        if tier == len(self._fabric.tiers):
            self.host[region] = free[:needed]
            return
        domain = self._fabric.tiers[tier].domain_by_host[free]
        children, free_by_child = np.unique(domain, return_counts=True)
        chosen = ranked(free_by_child.astype(np.int64), needed)
        if len(chosen) == 1:
            child = children[chosen[0][0]]
            self.into(region, free[domain == child], tier + 1)
            return
        layout = self._packed(region, chosen, free_by_child.tolist())
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _packed(self, region: Region, chosen: list[tuple[int, int]], room: list[int]) -> Layout:
        """The best `pack` over the orders of slots, on the rows that the region touches
        only: edges elsewhere do not matter."""
        rows = np.flatnonzero(region.any(axis=1))
        low, high = int(rows[0]), int(rows[-1]) + 1
        if self._grid.row_wrap:
            low, high = 0, self._grid.rows
        best: tuple[int, Layout] | None = None
        for grid, slots in self._orders:
            packed = pack(grid, region[low:high, slots], chosen, room, self._tries)
            cost = layout_cost(grid, packed)
            if best is None or cost < best[0]:
                in_place = np.empty_like(packed)
                in_place[:, slots] = packed
                best = (cost, in_place)
        assert best is not None
        layout = np.full(region.shape, -1, dtype=np.int64)
        layout[low:high] = best[1]
        return layout

    def _seat(self, region: Region, layout: Layout, numbers: Ints, free: Ints) -> None:
        """Blocks of each innermost domain onto its hosts, both in ascending order."""
        domain = self._fabric.tiers[-1].domain_by_host[free]
        position = {int(number): label for label, number in enumerate(numbers)}
        label_by_host = np.array([position.get(int(d), -1) for d in domain])
        labels = layout[region]
        seats = np.empty(len(labels), dtype=np.int64)
        seats[np.argsort(labels, kind="stable")] = _first_of_each(
            free, label_by_host, np.bincount(labels, minlength=len(numbers))
        )
        self.host[region] = seats


def _slots_of(grid: BlockGrid, other: BlockGrid) -> Ints:
    """For each slot of `other` the slot of `grid` that holds the same block."""
    slot = np.empty(int(grid.block[0].max()) + 1, dtype=np.int64)
    slot[grid.block[0]] = np.arange(grid.width)
    return np.asarray(slot[other.block[0]])


def _first_of_each(hosts: Ints, labels: Ints, wanted: npt.NDArray[np.int64]) -> Ints:
    """The first wanted[k] hosts with label k, for k = 0, 1, .. one after the other."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    sorted_labels = labels[order]
    starts = np.searchsorted(sorted_labels, np.arange(len(wanted)))
    rank = np.arange(len(order)) - starts[sorted_labels]
    return np.asarray(hosts[order[rank < wanted[sorted_labels]]])
