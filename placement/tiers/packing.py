"""Blocks onto the domains of an inner tier, inside one domain of the tier above.

From cheap to dear, until the cut is what cannot be beaten: walks through the region cut
into one segment per child (`cutting`), then annealing from the best of these and from
pieces put together anew (`polish`). Slicing trees stand in where a region is too large
to be cut along many walks and its children are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placement.grid.block_grid import BlockGrid
from placement.search.bands import band_trees
from placement.search.grid_slicing import Region, slice_grid
from placement.search.line_search import Cutter
from placement.search.multilevel import multilevel, polished
from placement.tiers.regions import Part

LARGEST = (8, 4)  # blocks in the pieces that annealing starts from, by turns
PROMISING = 1.02  # times the best cost


class Packer:
    """A region, the `room` of the children that may take its blocks, and the best so far.

    `least`: a cut in the units of the graph that no packing beats.
    """

    def __init__(self, part: Part, room: Sequence[int], least: int) -> None:
        self._part, self._graph = part, part.graph
        self._all_room = room
        self._room = _enough(room, self._graph.order)
        self._seed = f"{self._graph.order} {sorted(self._room)}"
        self._cutter = Cutter(self._graph, part.walks(), self._room, least)
        self._offered: list[int] = []
        self._cost = self._cutter.cost + 1

    @property
    def cost(self) -> int:
        return min(self._cost, self._cutter.cost)

    @property
    def is_done(self) -> bool:
        return self.cost <= self.least

    def packing(self) -> list[int]:
        """The child of each block in reading order."""
        at = self._offered if self._cost < self._cutter.cost else self._cutter.domains()
        return best_fit(at, self._all_room) or at

    @property
    def least(self) -> int:
        return self._cutter.least

    def bound(self, least: int) -> None:
        """A cut that no packing beats, known now."""
        self._cutter.least = max(self._cutter.least, least)

    def offer(self, at: list[int]) -> None:
        """Keep another packing if it cuts less."""
        cost = self._graph.cost(at)
        if cost < self.cost:
            self._offered, self._cost = at, cost

    def try_parts(self, at: Sequence[int]) -> None:
        """Keep the parts of another region's packing if they fit and cut less."""
        fitted = best_fit(at, self._room)
        if fitted is not None:
            self.offer(fitted)

    def walk(self, batches: Sequence[int]) -> None:
        if not self.is_done:
            self._cutter.walk(batches)

    @property
    def can_climb(self) -> bool:
        return self._cutter.can_climb

    def climb(self, tries: int) -> None:
        if not self.is_done:
            self._cutter.climb(tries)

    def anneal(self, per_block: int, rounds: int) -> None:
        """So many proposals per block from the best packing; then, once for every round,
        from pieces put together anew, and again from there where that is promising."""
        if not per_block or self.is_done:
            return
        self._polish(self.packing(), per_block, "0")
        for k in range(1, rounds + 1):
            if self.is_done:
                return
            largest, seed = LARGEST[k % len(LARGEST)], f"{k} {self._seed}"
            flat = self._part.flat
            at = multilevel(flat, self._room, per_block, largest, seed, self.least).tolist()
            self.offer(at)
            if self._graph.cost(at) <= PROMISING * self.cost:
                self._polish(at, per_block, str(k))

    def _polish(self, at: Sequence[int], per_block: int, seed: str) -> None:
        if not self.is_done:
            proposals, seed = per_block * self._graph.order, f"{seed} {self._seed}"
            start = np.array(at, dtype=np.int64)
            found = polished(self._part.flat, self._all_room, start, proposals, seed, self.least)
            self.offer(found.tolist())


def _enough(room: Sequence[int], blocks: int) -> list[int]:
    """The same room with none in the tightest domains, while the others have twice what is
    needed: half empty domains are as good as any."""
    left = 2 * blocks
    kept = [0] * len(room)
    for child in sorted(range(len(room)), key=lambda child: (-room[child], child)):
        if left > 0:
            kept[child] = min(room[child], blocks)
            left -= kept[child]
    return kept


def best_fit(at: Sequence[int], room: Sequence[int]) -> list[int] | None:
    """The same parts, each in the tightest child that holds it, the largest part first:
    who is with whom decides the cut, and roomy children stay free for others. None when
    they do not fit."""
    parts = Counter(at)
    child: dict[int, int] = {}
    tightest = sorted((n, z) for z, n in enumerate(room))
    for part in sorted(parts, key=lambda part: (-parts[part], part)):
        position = bisect_left(tightest, (parts[part], -1))
        if position == len(tightest):
            return None
        _, child[part] = tightest.pop(position)
    return [child[part] for part in at]


def sliced(grid: BlockGrid, region: Region, room: Sequence[int], tries: int) -> list[int]:
    """The child of each block by slicing trees."""
    layout = slice_grid(grid, room, band_trees(grid, room), tries, 0, region)[1]
    return [int(child) for child in layout[region]]


def ranked(free_by_child: npt.NDArray[np.int64], needed: int) -> list[tuple[int, int]]:
    """Children to use for `needed` hosts, as (child, hosts), fullest first, then by number.

    The fewest children do; the last one is the smallest that holds the rest, so that
    what is left free stays in one piece.
    """
    order = np.lexsort((np.arange(len(free_by_child)), -free_by_child))
    chosen: list[tuple[int, int]] = []
    for child in order:
        free = int(free_by_child[child])
        if free >= needed:
            rest = (int(c) for c in order[len(chosen) :] if free_by_child[c] >= needed)
            last = min(rest, key=lambda c: (int(free_by_child[c]), c))
            return [*chosen, (last, needed)]
        chosen.append((int(child), free))
        needed -= free
    raise ValueError("the children do not hold that many hosts")
