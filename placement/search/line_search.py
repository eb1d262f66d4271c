"""Which walk is cut, and in what order domains take their segments from it.

The dynamic program of `segments` is exact for one walk and one order of domains. Walks
are tried in batches, with the roomiest domains first; then the best walks with domains
in other orders, first at random, then by small changes of the best order. Where sizes
differ the order decides which of them meet in one row or group, hence where cuts can fall.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from placement.fabric.tree import Ints
from placement.graph.pieces import PieceGraph
from placement.search.segments import Filler, Segmenter

WORK = 6_000_000  # table entries in all; one walk or order takes blocks x capacities
LARGEST_TABLE = 4_000_000  # entries of one walk: 32 MB
MANY, FEW = 8, 3  # walks cut for an order at random, and for a changed one


class Cutter:
    """The best cuts of walks over one graph into domains with `room`.

    `least`: a cost that nothing beats, where the search ends.
    """

    def __init__(
        self, graph: PieceGraph, walks: Iterator[Ints], room: Sequence[int], least: int
    ) -> None:
        self._room = room
        self._walks = walks
        is_small = graph.order * max(room) <= LARGEST_TABLE
        self._segmenter: Segmenter | Filler = (Segmenter if is_small else Filler)(graph, room)
        self._order = _roomiest_first(room)
        self._best: tuple[int, int, Sequence[int]] | None = None  # cost, walk, order
        self._cost_by_walk: list[int] = []
        self._affordable = max(1, WORK // (graph.order * sum(room)))
        self._rng = random.Random(f"cut {graph.order} {sorted(room)}")
        self.least = least
        self.walk((1,))

    @property
    def cost(self) -> int:
        assert self._best is not None
        return self._best[0]

    @property
    def is_done(self) -> bool:
        return self.cost <= self.least

    @property
    def can_climb(self) -> bool:
        """Whether the work allows more than a few walks and orders."""
        return self._affordable >= MANY

    def domains(self) -> list[int]:
        """The domain of each block for the least cost."""
        assert self._best is not None
        _, walk, order = self._best
        return [int(domain) for domain in self._segmenter.cut(walk, order)]

    def walk(self, batches: Sequence[int]) -> None:
        """Cut so many more walks, as far as the work allows."""
        for size in batches:
            if self._best and self.is_done:
                return
            more = min(size, self._affordable - len(self._cost_by_walk))
            walks = list(islice(self._walks, max(0, more)))
            if not walks:
                return
            self._try(self._segmenter.add(walks), _roomiest_first(self._room))

    def climb(self, tries: int) -> None:
        """Cut the best walks for domains in other orders."""
        if len(set(self._room) - {0}) < 2 or self.is_done:
            return
        self._try(range(len(self._cost_by_walk)), _in_turns(self._room))
        best = sorted(range(len(self._cost_by_walk)), key=lambda k: (self._cost_by_walk[k], k))
        tries = min(tries, self._affordable)
        for step in range(tries):
            if self.is_done:
                return
            if step < tries // 4:
                self._try(best[:MANY], self._rng.sample(self._order, len(self._order)))
            else:
                self._try(best[:FEW], self._changed(self._order))

    def _try(self, walks: Sequence[int], order: Sequence[int]) -> None:
        """An order that is as good as the best is gone on from: so a climb crosses plains."""
        costs = self._segmenter.costs(walks, order).tolist()
        for walk, cost in zip(walks, costs, strict=True):
            if walk == len(self._cost_by_walk):
                self._cost_by_walk.append(cost)
            self._cost_by_walk[walk] = min(cost, self._cost_by_walk[walk])
        cost, walk = min(zip(costs, walks, strict=True))
        if self._best is None or cost < self.cost:
            self._best = (cost, walk, order)
        if cost <= self.cost:
            self._order = list(order)

    def _changed(self, order: Sequence[int]) -> list[int]:
        """Two domains of different size exchanged, or one moved."""
        changed = list(order)
        i, j = self._rng.sample(range(len(order)), 2)
        if self._rng.random() < 0.5:
            changed[i], changed[j] = changed[j], changed[i]
        else:
            changed.insert(j, changed.pop(i))
        return changed


def _roomiest_first(room: Sequence[int]) -> list[int]:
    return sorted((z for z, n in enumerate(room) if n), key=lambda z: (-room[z], z))


def _in_turns(room: Sequence[int]) -> list[int]:
    """The roomiest, the tightest, the second roomiest ..: other sizes meet."""
    order = _roomiest_first(room)
    half = (len(order) + 1) // 2
    turns = [z for pair in zip(order[:half], order[::-1], strict=False) for z in pair]
    return list(dict.fromkeys(turns))
