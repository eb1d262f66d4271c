"""Blocks onto the domains of an inner tier, inside one domain of the tier above.

From cheap to dear, until the cut is what cannot be beaten: walks through the region cut
into one segment per child (`segmentation`), then annealing from the best of these and from
pieces put together anew (`multilevel`). Slicing trees stand in where a region is too large
to be cut along many walks and its children are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Region
from placement.search.bands import band_trees
from placement.search.grid_slicing import slice_grid
from placement.search.multilevel import Multilevel
from placement.search.segmentation import LineSearch
from placement.tiers.regions import Part

LARGEST = (8, 4)  # blocks in the pieces that annealing starts from, by turns
PROMISING = 1.02  # times the best cost


class Packer:
    """A region, the `room` of the children that may take its blocks, and the best so far.

    `least`: a cut in the units of the graph that no packing beats.
    """

    def __init__(self, part: Part, room: Sequence[int], least: int) -> None:
        self._graph, self._all_room = part.graph, room
        self._room = _enough(room, self._graph.blocks)
        self._seed = f"{self._graph.blocks} {sorted(self._room)}"
        self._lines = LineSearch(self._graph, part.walks(), self._room, least)
        self._offered: Ints | None = None
        self._cost = self._lines.cost + 1

    @property
    def cost(self) -> int:
        return min(self._cost, self._lines.cost)

    @property
    def is_done(self) -> bool:
        return self.cost <= self.least

    def packing(self) -> Ints:
        """The child of each block in reading order."""
        at = self._offered
        if at is None or self._lines.cost <= self._cost:
            at = self._lines.layout()
        return fitted(at, self._all_room)

    @property
    def least(self) -> int:
        return self._lines.least

    def bound(self, least: int) -> None:
        """A cut that no packing beats, known now."""
        self._lines.least = max(self._lines.least, least)

    def offer(self, at: Ints) -> int:
        """Keep another packing if it cuts less; its cost."""
        cost = self._graph.cost(at)
        if cost < self.cost:
            self._offered, self._cost = at, cost
        return cost

    def try_parts(self, at: Ints) -> None:
        """Keep the parts of another region's packing if they fit and cut less."""
        parts = best_fit(at, self._room)
        if parts is not None:
            self.offer(parts)

    def walk(self, batches: Sequence[int]) -> None:
        if not self.is_done:
            self._lines.walk(batches)

    @property
    def can_climb(self) -> bool:
        return self._lines.can_climb

    def climb(self, tries: int) -> None:
        if not self.is_done:
            self._lines.climb(tries)

    def anneal(self, per_block: int, rounds: int) -> None:
        """So many proposals per block from the best packing; then, once for every round,
        from pieces put together anew, and again from there where that is promising."""
        if not per_block or self.is_done:
            return
        anew = Multilevel(self._graph, self._room, per_block, self.least)
        on = Multilevel(self._graph, self._all_room, per_block, self.least)
        self.offer(on.polished(self.packing(), f"0 {self._seed}"))
        for k in range(1, rounds + 1):
            if self.is_done:
                return
            at = anew.anew(LARGEST[k % len(LARGEST)], f"{k} {self._seed}")
            if self.offer(at) <= PROMISING * self.cost and not self.is_done:
                self.offer(on.polished(at, f"{k} {self._seed}"))


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


def best_fit(at: Ints, room: Sequence[int]) -> Ints | None:
    """The same parts, each in the tightest child that holds it, the largest part first:
    who is with whom decides the cut, and roomy children stay free for others. None when
    they do not fit."""
    parts, part, sizes = np.unique(at, return_inverse=True, return_counts=True)
    child = np.empty_like(parts)
    tightest = sorted((n, z) for z, n in enumerate(room))
    for k in np.argsort(-sizes, kind="stable").tolist():
        position = bisect_left(tightest, (int(sizes[k]), -1))
        if position == len(tightest):
            return None
        _, child[k] = tightest.pop(position)
    return child[part]


def fitted(at: Ints, room: Sequence[int]) -> Ints:
    """The best fit of a packing that these children hold, or as it is."""
    parts = best_fit(at, room)
    return at if parts is None else parts


def sliced(grid: BlockGrid, region: Region, room: Sequence[int], tries: int) -> Ints:
    """The child of each block by slicing trees."""
    return slice_grid(grid, room, band_trees(grid, room), tries, 0, region)[1][region]


def ranked(free_by_child: Ints, needed: int) -> list[tuple[int, int]]:
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
