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
from placement.tiers.packing import Gang, Packer, fitted
from placement.workload.request import Request

FIRST_WALKS, MORE_WALKS = (2, 5), (16, 24)  # cut at a time, before and after the proof
MOST_PROPOSALS = 1_000_000  # in all the passes
PASSES = 8  # of annealing over the whole gang in one domain; a part of it gets its share
QUICK = 100  # proposals for each block, or piece and level, of one pass
A_PASS = 32  # blocks for each pass
# Of domains, for each pass. Beside half as many passes twice as long with 16 of these each, of 352
# gangs of seeds 1, 101, 102 and 103 27 cut less inside a domain, by up to 1.8 %, 10 more, by up to
# 2.4 %, and 228 are proved there (223), in 2 % more time.
SEQUENCES = 32


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `tries`: none, and the first walks must do. `request`: of a gang whose ranks form no
    grid; without it the blocks stay in order.
    """

    def __init__(
        self,
        fabric: Fabric,
        grid: BlockGrid,
        tries: int,
        request: Request | None = None,
    ) -> None:
        self._fabric = fabric
        self._grid = grid
        self._tries = tries
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
        layout = self._packed(region, room.tolist())
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _packed(self, region: Region, room: list[int]) -> Layout:
        """The child of each block of `region`, as an index into `room`; -1 elsewhere. As before
        where the same part was packed onto as much room."""
        layout = np.full(region.shape, -1, dtype=np.int64)
        if max(room) == 1:  # every block is alone, wherever it is
            layout[region] = np.arange(np.count_nonzero(region))
            return layout
        part, roomiest = self._gang.part(region), tuple(sorted(room, reverse=True))
        if roomiest in part.packed:
            layout[region] = fitted(part.packed[roomiest], room)
            return layout
        packer = Packer(part, room, self._gang.least(region, room))
        packer.walk(FIRST_WALKS)
        if self._tries and not packer.is_done:
            self._search(packer, region, room)
        layout[region] = part.packed[roomiest] = packer.packing()
        return layout

    def _search(self, packer: Packer, region: Region, room: list[int]) -> None:
        """From cheap to dear."""
        blocks, gang = int(np.count_nonzero(region)), self._grid.size
        if blocks == gang:
            packer.bound(self._gang.proved(room, packer.cost))
        per_block = min(QUICK, MOST_PROPOSALS // gang, blocks)
        share = min(-(-PASSES * blocks // gang), -(-blocks // A_PASS))
        passes = min(share, MOST_PROPOSALS // (per_block * gang))
        packer.walk(MORE_WALKS)
        packer.climb(passes * SEQUENCES)
        if not packer.can_climb and not packer.is_done:
            slices = self._gang.sliced(region, room)
            if slices is not None:
                packer.offer(slices)
        packer.anneal(per_block, passes)

    def _seat(self, region: Region, layout: Layout, numbers: Ints, free: Ints) -> None:
        """Blocks of each innermost domain onto its hosts, both in ascending order."""
        domain = self._fabric.tiers[-1].domain_by_host[free]
        for label in np.unique(layout[region]):
            part = layout == label
            self.host[part] = free[domain == numbers[label]][: np.count_nonzero(part)]
