"""What a layout cuts at least, from what parts of every size cut that hold just so many blocks of
each kind.

The cheapest parts of given sizes may all hold the same blocks. So there is a price on each kind of
block (`part_pricing`): what parts pay less for those that they hold, the gang pays once for all of
them.
Whatever the prices, the least sum over sizes that respect the capacities is a bound. The best
prices are those of a linear program: sizes of domains that hold the whole gang, and for each size
the parts of it; what these hold adds up to the blocks of each kind. Both come as they are needed.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

import numpy as np

from placement.bound.frontier import Walk
from placement.bound.part_pricing import Course, PartPricer, kinds_by_edges
from placement.bound.pathwidth import A_STATE
from placement.bound.ring_width import courses_around
from placement.bound.size_relaxation import least_sizes
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.solver import ColumnLp

FINE = 1 << 34  # units that a layout costs at least, for prices are whole
MOST_COST = 1 << 50  # or prices would not add up
HIGHEST = 20.0  # price of a block, in what one of a layout pays on average
DEAREST = 1e5  # parts, in the same
STARTS = 4  # of stretches of the order
MOST_ROUNDS = 40
MOST_ALONG = 1.5  # times the work, for most states are left out along an order
FEWEST_ROUNDS = 3  # that there has to be work for round a ring, where few are
MOST_AT_ONCE = 30  # sizes of domains, before parts are looked for
CLOSED = 1e-4  # of a cut
SLOPES = 60  # tried


class _Prices(NamedTuple):
    """Of the kinds, and what parts of each size are worth by them."""

    kinds: Ints
    sizes: Ints


class _Master:
    """The linear program. Costs are in units of the graph, and doubled."""

    def __init__(self, kind: Ints, most: int, norm: float) -> None:
        """`norm`: what a block pays on average."""
        self._norm, self._kinds = norm, int(kind.max()) + 1
        self._highest = HIGHEST * len(kind)  # that a part can be worth
        self._parts: dict[bytes, int] = {}
        self._sizes: set[bytes] = set()
        # A row for each kind but the first, for sizes tell of all; for each size; for the gang.
        self._lp = ColumnLp()
        width, sizes, gang = np.bincount(kind)[1:], np.zeros(most), np.ones(1)
        self._lp.add_rows(width, width, price=HIGHEST)
        self._lp.add_rows(sizes, sizes, price=DEAREST)
        self._lp.add_rows(gang, gang, price=DEAREST * len(kind))
        self._rows = self._kinds - 1 + most + 1

    def add_parts(self, cost: Ints, held: Ints) -> int:
        """How many of them are new, or cheaper than those like them. Shape: held (parts, kinds)."""
        new = []
        for part, (paid, each) in enumerate(zip(cost.tolist(), held, strict=True)):
            key = each.tobytes()
            if self._parts.get(key, paid + 1) > paid:
                self._parts[key] = paid
                new.append(part)
        if new:
            columns = np.zeros((len(new), self._rows))
            columns[:, : self._kinds - 1] = held[new, 1:]
            columns[np.arange(len(new)), self._kinds - 2 + held[new].sum(axis=1)] = 1
            self._lp.add_columns(cost[new] / self._norm, columns)
        return len(new)

    def add_sizes(self, sizes: Ints) -> bool:
        """Whether they are new. Shape: (most + 1,), how many domains of each."""
        if sizes.tobytes() in self._sizes:
            return False
        self._sizes.add(sizes.tobytes())
        column = np.zeros((1, self._rows))
        column[0, self._kinds - 1 : -1] = -sizes[1:]
        column[0, -1] = 1
        self._lp.add_columns(np.zeros(1), column)
        return True

    def solve(self) -> tuple[float, _Prices] | None:
        solution = self._lp.solve()
        if solution is None:
            return None
        duals = np.clip(solution.duals, -self._highest, self._highest) * self._norm
        price = np.append(0, np.rint(duals).astype(np.int64))
        sizes = np.append(0, price[self._kinds : -1])
        return solution.cost * self._norm, _Prices(price[: self._kinds], sizes)


class KindBound:
    """What layouts of a graph cut at least on domains of these capacities. Costs are in units of
    the graph, and doubled; those of parts add up to `offset` more."""

    def __init__(
        self, graph: Hypergraph, kind: Ints, pricer: PartPricer, capacities: Sequence[int]
    ) -> None:
        self._graph, self._kind, self._pricer = graph, kind, pricer
        self._room = sorted(min(each, graph.blocks) for each in capacities)
        self._width = np.bincount(kind)
        self._offset = 2 * int(graph.group_weight.sum())

    def least_cut(self, layout: Ints, order: Ints, known: int, work: int) -> tuple[int, bool]:
        """At least what is `known`, and whether that is all that prices tell. `layout`: to begin
        with; what it cuts is all there is to prove. `order`: of the blocks, whose stretches are
        cheap parts. `work`: along courses."""
        cost = 2 * self._graph.cost(layout)
        most = self._room[-1]
        master = _Master(self._kind, most, (cost + self._offset) / self._graph.blocks)
        for start in range(0, len(order), -(-len(order) // STARTS)):
            master.add_parts(*_stretches(self._graph, self._kind, np.roll(order, -start), most))
        master.add_parts(*self._parts_of(layout))
        master.add_sizes(np.bincount(np.bincount(layout), minlength=most + 1))
        best = known
        for _ in range(MOST_ROUNDS):
            found = self._solved(master, CLOSED * cost)
            if found is None or best >= min(cost, found[0] - self._offset - CLOSED * cost):
                break
            priced = self._priced(master, found[1], work - self._pricer.spent)
            if priced is None:
                return best, False
            best = max(best, priced[0])
            if not priced[1]:
                break
        return best, True

    def _solved(self, master: _Master, close: float) -> tuple[float, _Prices] | None:
        """Until no other sizes of domains are cheaper by what their parts are worth."""
        for _ in range(MOST_AT_ONCE):
            found = master.solve()
            if found is None:
                return None
            least, sizes = least_sizes(self._graph.blocks, self._room, found[1].sizes)
            if least >= found[0] - close or not master.add_sizes(sizes):
                break
        return found

    def _priced(self, master: _Master, prices: _Prices, work: int) -> tuple[int, int] | None:
        """The bound by these prices, and how much of it is new to the program."""
        price, worth = prices
        slope = _slope(worth)
        budget = int((worth + slope * np.arange(len(worth)))[1:].max())
        found = self._pricer.least(price, slope, budget, work)
        if found is None:
            return None
        least, sizes = least_sizes(self._graph.blocks, self._room, found.cost)
        new = int(master.add_sizes(sizes))
        parts = np.flatnonzero(found.is_known & (found.cost <= worth))[1:]
        held = found.held[parts]
        new += master.add_parts(found.cost[parts] + held @ price, held)
        bound = int(self._width @ price) + least - self._offset
        return bound, new

    def _parts_of(self, layout: Ints) -> tuple[Ints, Ints]:
        graph = self._graph
        zones, at = np.unique(layout, return_inverse=True)
        cost = graph.paid_by_zone(at)
        if len(graph.group):
            meets = np.unique(graph.group * len(zones) + at[graph.members])
            np.add.at(cost, meets % len(zones), 2 * graph.group_weight[meets // len(zones)])
        held = np.zeros((len(zones), len(self._width)), dtype=np.int64)
        np.add.at(held, (at, self._kind), 1)
        return cost, held


def _stretches(graph: Hypergraph, kind: Ints, order: Ints, most: int) -> tuple[Ints, Ints]:
    """What the first n = 1 .. most blocks of an order pay, and what they hold of each kind."""
    place = np.empty(graph.blocks, dtype=np.int64)
    place[order] = np.arange(graph.blocks)
    a, b = place[graph.tail], place[graph.head]
    risen = np.zeros(graph.blocks, dtype=np.int64)
    np.add.at(risen, np.minimum(a, b), graph.weight)
    np.subtract.at(risen, np.maximum(a, b), graph.weight)
    first = np.full(len(graph.group_weight), graph.blocks)
    np.minimum.at(first, graph.group, place[graph.members])
    np.add.at(risen, first, 2 * graph.group_weight)
    held = np.cumsum(np.eye(int(kind.max()) + 1, dtype=np.int64)[kind[order]], axis=0)
    return np.cumsum(risen)[:most], held[:most]


def _slope(worth: Ints) -> int:
    """With so much more for each block, parts of all sizes are worth as nearly the same as can be:
    then few ways along an order lead to a part that is worth what it pays."""
    value, size = worth[1:].astype(np.float64), np.arange(1, len(worth))
    low = -(np.ptp(value) + 1.0)
    high = -low
    for _ in range(SLOPES):
        third = (high - low) / 3
        if np.ptp(value + (low + third) * size) < np.ptp(value + (high - third) * size):
            high -= third
        else:
            low += third
    return round((low + high) / 2)


def least_by_held(
    graph: Hypergraph,
    orders: Sequence[Ints],
    capacities: Sequence[int],
    layout: Ints,
    known: int,
    work: int,
) -> tuple[int, bool]:
    """A cut in the graph's units, doubled, that no layout on these domains beats, at least what is
    `known`; and whether that is all that prices tell. `orders`: of the blocks, in which the graph
    may be narrow."""
    cost = graph.cost(layout)
    finer = max(1, FINE // max(1, cost))
    fine = replace(graph, weight=graph.weight * finer, group_weight=graph.group_weight * finer)
    most = min(graph.blocks, max(capacities))
    kind = kinds_by_edges(fine, most)
    found = _pricer(fine, kind, orders, most, work) if 0 < cost < MOST_COST and kind.any() else None
    if found is None:
        return known, False
    pricer, order = found
    bound = KindBound(fine, kind, pricer, capacities)
    least, is_all = bound.least_cut(layout, order, known * finer, work)
    unit = 2 * gcd(*graph.weight.tolist(), *graph.group_weight.tolist())
    return max(known, -(-least // (finer * unit)) * unit), is_all


def _pricer(
    graph: Hypergraph, kind: Ints, orders: Sequence[Ints], most: int, work: int
) -> tuple[PartPricer, Ints] | None:
    """Of parts up to so many blocks, along the order in which a graph is narrowest or once round
    it, and the order; None if all of these take more `work`."""
    states = work // (most + A_STATE)
    walks = [(walk, order) for order in orders if (walk := Walk(graph, order.tolist())).is_narrow]
    along = min(walks, key=lambda each: each[0].states, default=None)
    limit = states if along is None else min(states, along[0].states)
    around = courses_around(graph, orders, limit // FEWEST_ROUNDS)
    if around is not None:
        courses, mixed, order = around
        return PartPricer(kind, most, courses, mixed), order
    if along is not None and along[0].states <= MOST_ALONG * states:
        return PartPricer(kind, most, [Course(along[0])]), along[1]
    return None
