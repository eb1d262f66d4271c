"""Blocks onto the domains of an inner tier, inside one domain of the tier above.

From cheap to dear, until the cut is what sizes alone allow: walks through the region cut
into one segment per child (`segments`); a slicing tree, where children are few; annealing
from the best of these, and from pieces put together anew (`polish`).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from placement.bands import comb
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.layout import Layout
from placement.pieces import PieceGraph
from placement.polish import multilevel, polished
from placement.segments import Segmenter
from placement.slicing import Region, Tree, random_tree, slice_grid

FEW = 24  # children up to which slicing trees are tried
BATCHES = (2, 6, 16, 24)  # walks cut at a time: a bound that is met ends the rest
WORK = 6_000_000  # table entries of all the segments tried for one region
LARGEST = (8, 4)  # blocks in the pieces that annealing starts from


@dataclass(frozen=True, slots=True)
class Packing:
    """The child of each block in reading order, and what that cuts inside the region, in
    the units of the region's graph."""

    at: Sequence[int]
    cost: int


class Packer:
    """One region and the `room` of the children that may take its blocks.

    `least`: a cut that no packing beats; the search ends when it is met.
    """

    def __init__(
        self, graph: PieceGraph, walks: Iterator[Ints], room: Sequence[int], least: int
    ) -> None:
        self._graph = graph
        self._room = [min(free, graph.order) for free in room]
        self._segmenter = Segmenter(graph, self._room)
        self._walks = walks
        self._walked = list(islice(walks, 1))
        self._seed = f"{graph.order} {sorted(self._room)}"
        self.least = least
        self.best = self._along(self._walked, _roomiest_first(self._room))

    @property
    def is_done(self) -> bool:
        return self.best.cost <= self.least

    def offer(self, at: Sequence[int]) -> None:
        """Keep another packing if it cuts less."""
        self._keep(Packing(at, self._graph.cost(at)))

    def _keep(self, other: Packing) -> None:
        if other.cost < self.best.cost:
            self.best = other

    def segment(self) -> None:
        """Cut the walks in as many ways as the work allows."""
        affordable = WORK // (self._graph.order * sum(self._room))
        order = _roomiest_first(self._room)
        for size in BATCHES:
            walks = list(islice(self._walks, min(size, affordable - len(self._walked))))
            if self.is_done or not walks:
                break
            self._walked += walks
            self._keep(self._along(walks, order))
        turns = _in_turns(self._room)
        if not self.is_done and turns != order:
            self._keep(self._along(self._walked, turns))

    def polish(self, per_block: int) -> None:
        """Anneal the best packing so far: so many proposals per block."""
        if per_block and not self.is_done:
            proposals = per_block * self._graph.order
            self.offer(polished(self._graph, self._room, self.best.at, proposals, self._seed))

    def anneal(self, per_block: int) -> None:
        """Anneal pieces put together anew, and the best packing after that once more."""
        for largest in LARGEST:
            if not self.is_done:
                self.offer(multilevel(self._graph, self._room, per_block, largest, self._seed))

    def _along(self, walks: Sequence[Ints], domains: Sequence[int]) -> Packing:
        cost, at = self._segmenter.cut(walks, domains)
        return Packing(at.tolist(), cost)


def _roomiest_first(room: Sequence[int]) -> list[int]:
    return sorted((z for z, n in enumerate(room) if n), key=lambda z: (-room[z], z))


def _in_turns(room: Sequence[int]) -> list[int]:
    """The roomiest, the tightest, the second roomiest ..: other sizes meet."""
    order = _roomiest_first(room)
    half = (len(order) + 1) // 2
    turns = [z for pair in zip(order[:half], order[::-1], strict=False) for z in pair]
    return list(dict.fromkeys(turns))


def best_fit(at: Sequence[int], room: Sequence[int]) -> list[int]:
    """The same parts, each in the tightest child that holds it, the largest part first:
    who is with whom decides the cut, and roomy children stay free for others."""
    parts = Counter(at)
    child: dict[int, int] = {}
    tightest = sorted((n, z) for z, n in enumerate(room))
    for part in sorted(parts, key=lambda part: (-parts[part], part)):
        _, child[part] = tightest.pop(bisect_left(tightest, (parts[part], -1)))
    return [child[part] for part in at]


def sliced(grid: BlockGrid, region: Region, room: Sequence[int], tries: int, target: int) -> Layout:
    """The child of each block of `region` by slicing trees, -1 elsewhere."""
    tries = max(10, tries * 4 // len(room))
    return slice_grid(grid, room, _starts(room), tries, target, region)[1]


def _starts(room: Sequence[int]) -> list[Tree]:
    """One child after the other along the slots, along the rows, and a tree at random."""
    largest = sorted(range(len(room)), key=lambda child: (-room[child], child))
    leaves = [Tree(zone=child) for child in largest]
    rng = random.Random(f"{room}")
    return [
        comb(leaves, is_across_rows=False),
        comb(leaves, is_across_rows=True),
        random_tree(largest, rng),
    ]


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
