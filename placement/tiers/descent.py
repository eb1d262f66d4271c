"""From the outermost tier down to hosts.

Each domain that carries a part of the gang packs it onto its children, and so on until
the children are hosts. Inner tiers only ever see hosts that are free.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

import numpy as np

from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, Region
from placement.tiers.packing import Gang
from placement.workload.request import Limits, Request


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
