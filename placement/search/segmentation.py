"""Blocks in a line, cut into one segment per domain: optimal segmentation of linear orders.

Where to cut a given order is a dynamic program over (domains used, blocks covered): a domain
takes as many blocks as it has room for, or fewer when the cut then falls between two groups.
Filling every domain to its last host cuts wherever capacities happen to end. Segments see a
group as pairs: each member with the one before it in the order, for a segment that holds k
members in a row saves k - 1 domains. So what segments save is the sum of their pairs.

The program is exact for one order of the blocks and one sequence of the domains. `LineSearch`
tries several of both: orders in batches, with the roomiest domains first; then the best orders
with other sequences, at random and by small changes of the best one. Where sizes differ the
sequence decides which of them meet in one row or group, hence where cuts can fall.

`box_walks` are orders in which neighbours are close: back and forth along one axis, a few lines
of the next axes abreast, so that a stretch is near to a box (a boustrophedon).
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, permutations

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.kernels import INFINITE, Kernel
from placement.search.graph_slicing import by_room

WORK = 6_000_000  # table entries in all; one order or sequence takes blocks x capacities
MANY, FEW = 8, 3  # orders cut for a sequence at random, and for a changed one
MOST_AXES = 4  # of a walk


def _saved(table: Ints, blocks: int, room: Ints, values: Ints) -> None:
    """Most that the first n blocks save in the first k domains, in a line for each k = 0, 1, ..

    `table`: a line for each length, of what the segment from each place saves. `room`: of the
    domains in their sequence, which together hold all. Only as many blocks as the first k hold
    are covered, and only as few as leave the rest to the others.
    """
    line = blocks + 1
    for n in range(line):
        values[n] = -INFINITE
    values[0] = 0
    held = left = low = high = 0
    for capacity in room:
        left += capacity
    for k in range(len(room)):
        held, left = held + room[k], left - room[k]
        to_low, to_high = max(0, blocks - left), min(blocks, held)
        before, now = values[k * line : (k + 1) * line], values[(k + 1) * line : (k + 2) * line]
        for n in range(line):
            now[n] = before[n]
        for length in range(1, room[k] + 1):
            saved = table[length * line : (length + 1) * line]
            for i in range(max(low, to_low - length), min(high, to_high - length) + 1):
                reached = before[i] + saved[i]
                if reached > now[i + length]:
                    now[i + length] = reached
        low, high = to_low, to_high


segment = Kernel(_saved)


class Segmenter:
    """Cuts orders of one graph of single blocks into domains of given capacities.

    Orders are added once and known by their number from then on. `is_filled`: without tables,
    every domain is filled to its last host.
    """

    def __init__(
        self, graph: Hypergraph, capacities: Sequence[int], *, is_filled: bool = False
    ) -> None:
        self._graph, self._is_filled = graph, is_filled
        self._pairs = graph if is_filled else graph.pairwise()
        self._capacities = [min(c, graph.blocks) for c in capacities]
        self._orders: list[Ints] = []
        self._tables: list[Ints] = []
        self._total = int(self._pairs.savings[2].sum())
        held = sum(self._capacities)
        # Of the program for one order: the fewer hosts are to spare, the fewer the places to cut.
        spare = graph.blocks if is_filled else min(graph.blocks, held - graph.blocks)
        self.steps = held * (1 + spare)

    def add(self, orders: Sequence[Ints]) -> range:
        """Add orders and return their numbers."""
        first = len(self._orders)
        self._orders += orders
        if not self._is_filled and orders:
            self._tables += list(self._saved_inside(np.stack(orders)))
        return range(first, len(self._orders))

    def costs(self, orders: Sequence[int], domains: Sequence[int]) -> Ints:
        """Bound from below what each order cuts when `domains` take segments in this sequence; any
        of them may stay empty, and together they hold the graph. Shape: (orders,)."""
        if self._is_filled:
            return np.array([self._graph.cost(self.layout(order, domains)) for order in orders])
        return np.array([self._total - self._values(order, domains)[-1, -1] for order in orders])

    def layout(self, order: int, domains: Sequence[int]) -> Ints:
        """Return the domain of each block for one of these costs; of equal ones, the last domains
        have the shortest segments."""
        if self._is_filled:
            along = np.repeat(domains, [self._capacities[domain] for domain in domains])
        else:
            along = np.repeat(domains, self._lengths(order, domains))
        at = np.empty(self._graph.blocks, dtype=np.int64)
        at[self._orders[order]] = along[: self._graph.blocks]
        return at

    def _saved_inside(self, orders: Ints) -> Ints:
        """Weight of the pairs inside the segment of each order, length and place; of those
        that go past the end, anything. Shape: (orders, longest + 1, blocks + 1)."""
        graph, longest = self._pairs, max(self._capacities)
        place, line = np.argsort(orders, axis=1), graph.blocks + 1
        begin = graph.group * graph.blocks
        along = np.sort(begin + place[:, graph.members], axis=1) - begin
        is_pair = graph.group[1:] == graph.group[:-1]
        ends = np.sort([place[:, graph.tail], place[:, graph.head]], axis=0)
        low = np.concatenate([ends[0], along[:, :-1][:, is_pair]], axis=1)
        length = np.concatenate([ends[1], along[:, 1:][:, is_pair]], axis=1) - low + 1
        weight = np.concatenate([graph.weight, graph.group_weight[graph.group[1:][is_pair]]])
        order, pair = np.nonzero(length <= longest)
        tables = np.zeros((len(orders), longest + 1, line), dtype=np.int64)
        np.add.at(tables, (order, length[order, pair], low[order, pair]), weight[pair])
        for n in range(2, longest + 1):
            shorter, between = tables[:, n - 1], tables[:, n - 2, 1 : line - n + 1]
            tables[:, n, : line - n] += shorter[:, : line - n] + shorter[:, 1 : line - n + 1]
            tables[:, n, : line - n] -= between
        return tables

    def _values(self, order: int, domains: Sequence[int]) -> Ints:
        """Shape: (domains + 1, blocks + 1)."""
        room = np.array([self._capacities[domain] for domain in domains], dtype=np.int64)
        blocks = self._graph.blocks
        values = np.empty((len(room) + 1, blocks + 1), dtype=np.int64)
        segment.run(self.steps, self._tables[order].ravel(), blocks, room, values.ravel())
        return values

    def _lengths(self, order: int, domains: Sequence[int]) -> list[int]:
        """The length of each domain's segment, traced back."""
        values, table = self._values(order, domains), self._tables[order]
        end, lengths = self._graph.blocks, []
        for k in reversed(range(len(domains))):
            some = np.arange(min(self._capacities[domains[k]], end) + 1)
            reached = values[k, end - some] + table[some, end - some]
            lengths.append(int((reached == values[k + 1, end]).argmax()))
            end -= lengths[-1]
        return lengths[::-1]


class LineSearch:
    """Searches the best segmentations of orders of one graph into domains with `room`.

    `least`: a cost that nothing beats, where the search ends; `work`: table entries.
    """

    def __init__(
        self,
        graph: Hypergraph,
        orders: Iterable[Ints],
        room: Sequence[int],
        least: int,
        work: int = WORK,
    ) -> None:
        self._room = room
        self._more = iter(orders)
        self._segmenter = Segmenter(graph, room, is_filled=graph.blocks * max(room) > work)
        self._sequence = by_room(room)
        self._best: tuple[int, int, Sequence[int]] | None = None  # cost, order, sequence
        self._cost_by_order: list[int] = []
        self._affordable = max(1, work // (graph.blocks * sum(room)))
        self._sequences = work // self._segmenter.steps
        self._rng = random.Random(f"cut {graph.blocks} {sorted(room)}")
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
        """Whether the work allows more than a few orders and sequences."""
        return self._affordable >= MANY

    def layout(self) -> Ints:
        """Return the domain of each block for the least cost."""
        assert self._best is not None
        return self._segmenter.layout(*self._best[1:])

    def walk(self, batches: Sequence[int]) -> None:
        """Cut so many more orders, as far as the work allows."""
        for size in batches:
            if self._best and self.is_done:
                return
            more = min(size, self._affordable - len(self._cost_by_order))
            orders = list(islice(self._more, max(0, more)))
            if not orders:
                return
            self._try(self._segmenter.add(orders), by_room(self._room))

    def climb(self, tries: int) -> None:
        """Cut the best orders for domains in other sequences."""
        if len(set(self._room) - {0}) < 2 or self.is_done:
            return
        costs = self._cost_by_order
        best = sorted(range(len(costs)), key=lambda k: (costs[k], k))
        tries = min(tries, self._sequences)
        for step in range(tries):
            if self.is_done:
                return
            if step < tries // 4:
                self._try(best[:MANY], self._rng.sample(self._sequence, len(self._sequence)))
            else:
                self._try(best[:FEW], self._changed(self._sequence))

    def _try(self, orders: Sequence[int], sequence: Sequence[int]) -> None:
        """A sequence that is as good as the best is gone on from: so a climb crosses plains."""
        costs = self._segmenter.costs(orders, sequence).tolist()
        for order, cost in zip(orders, costs, strict=True):
            if order == len(self._cost_by_order):
                self._cost_by_order.append(cost)
            self._cost_by_order[order] = min(cost, self._cost_by_order[order])
        cost, order = min(zip(costs, orders, strict=True))
        if self._best is None or cost < self.cost:
            self._best = (cost, order, sequence)
        if cost <= self.cost:
            self._sequence = list(sequence)

    def _changed(self, sequence: Sequence[int]) -> list[int]:
        """Two domains exchanged, or one moved."""
        changed = list(sequence)
        i, j = self._rng.sample(range(len(sequence)), 2)
        if self._rng.random() < 0.5:
            changed[i], changed[j] = changed[j], changed[i]
        else:
            changed.insert(j, changed.pop(i))
        return changed


def box_walks(coordinates: Sequence[Ints], abreast: int) -> Iterator[Ints]:
    """Yield different orders of the cells whose coordinates are given, narrow ones first.

    At most `abreast` lines side by side. Shape of each walk: (cells,).
    """
    spans = [c for c in coordinates if c.min() != c.max()][:MOST_AXES]
    if not spans:
        yield np.arange(len(coordinates[0]))
        return
    seen: set[bytes] = set()
    for lines in range(1, abreast + 1):
        for axes in permutations(spans):
            for band in _bands(lines, [int(axis.max()) + 1 for axis in axes[1:]]):
                walk = _walk(axes, band)
                if walk.tobytes() not in seen:
                    seen.add(walk.tobytes())
                    yield walk


def _bands(lines: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """How many lines of the next one or two axes go abreast; `lines` is their product."""
    if lines == 1:
        yield ()
        return
    for h in range(1, min(lines, *sizes[:1]) + 1 if sizes else 1):
        if h == lines:
            yield (h,)
        elif lines % h == 0 and len(sizes) > 1 and lines // h <= sizes[1]:
            yield (h, lines // h)


def _walk(axes: Sequence[Ints], band: Sequence[int]) -> Ints:
    """`axes`: the one walked along first; then those of which `band` lines go abreast."""
    wide = axes[1 : len(band) + 1]
    levels = [
        *reversed(axes[len(band) + 1 :]),
        *reversed([axis // h for axis, h in zip(wide, band, strict=True)]),
        axes[0],
        *reversed([axis % h for axis, h in zip(wide, band, strict=True)]),
    ]
    # A number with a digit per level, each of which runs back where those before add up to odd.
    place = turns = levels[0]
    for level in levels[1:]:
        last = int(level.max())
        place = place * (last + 1) + np.where(turns & 1, last - level, level)
        turns = turns + level
    return place.argsort(kind="stable")
