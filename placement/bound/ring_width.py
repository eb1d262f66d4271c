"""What parts cost at least of a graph that is narrow all round a ring.

A *gate* is the blocks before some place of the ring that have edges over it. Parts for which they
are *clean*, all in or all out, are found by going once round from there, along half as wide a
frontier. Parts that are *mixed* at all of several gates cost at least what the cheapest walk past
these does that is never clean. See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from muster.structs import replace
from placement.bound.pathwidth import Ahead, Passage, Walk
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.speculative import run_ahead

MOST_BITS = 15  # of a frontier between gates
LONG_ROUNDS = 3  # from the first gates; those from later ones together take as long as one
FEWEST_GATES, MOST_GATES = 4, 16  # what is mixed at fewer costs little; more take long


class _Gate(NamedTuple):
    """A place of an order, and the blocks before it that have edges over it."""

    place: int
    blocks: frozenset[int]


def least_around(
    graph: Hypergraph, orders: Sequence[Ints], most: int, budget: int, known: int, work: int
) -> Ints | None:
    """Bound from below what a part of n = 0 .. most blocks pays: exact below the lesser of `budget`
    and the least cost of a part mixed at all gates; of dearer parts, no less than that.

    `orders`: of the blocks, of which the one is gone round in that is narrowest. None where the
    graph has groups or is wide, where what is mixed pays no more than is `known` of parts anyway,
    and if it takes more `work`. Shape: (most + 1,).
    """
    unit = max(1, int(np.gcd.reduce(graph.weight)))
    ring = _narrowest(replace(graph, weight=graph.weight // unit), orders)
    if ring is None:
        return None
    least = _least(ring, most, budget // unit, known // unit, work)
    return None if least is None else least * unit


class _Ring:
    """A graph whose blocks are read in an order that closes. `walk`: once round, without the edges
    over its beginning. `period`: after how many blocks the graph comes again."""

    def __init__(self, graph: Hypergraph, order: Ints) -> None:
        self.graph, self.order = graph, order
        self._place = np.empty(graph.blocks, dtype=np.int64)
        self._place[order] = np.arange(graph.blocks)
        is_over = 2 * abs(self._place[graph.tail] - self._place[graph.head]) > graph.blocks
        kept = {k: getattr(graph, k)[~is_over] for k in ("tail", "head", "weight")}
        self.walk = Walk(replace(graph, **kept), order.tolist())

    @cached_property
    def period(self) -> int:
        return self.graph.period(self.order)

    def _turned(self, blocks: Ints, by: int) -> Ints:
        return self.order[(self._place[blocks] + by) % self.graph.blocks]

    def gates(self, of_period: int) -> Iterator[tuple[_Gate, list[int]]]:
        """Yield so many gates in each period, but for the beginning: one of each kind, with the
        places of its like."""
        blocks, period = self.graph.blocks, self.period
        for first in (k * period // of_period for k in range(of_period)):
            places = range(first or period, blocks, period)
            if not places:
                continue
            gate = self._gate(places[len(places) // 2])
            members = np.array(sorted(gate.blocks), dtype=np.int64)
            alike = [
                place
                for place in places
                if self._gate(place).blocks
                == set(self._turned(members, place - gate.place).tolist())
            ]
            yield gate, alike

    def _gate(self, place: int) -> _Gate:
        return _Gate(place, self.walk.done[place - 1][1])

    def around(self, gate: _Gate) -> Walk:
        return Walk(self.graph, np.roll(self.order, -gate.place).tolist(), gate.blocks)

    def steps_to(self, places: Sequence[int], gate: _Gate, walk: Walk) -> list[int]:
        """Return the steps of a walk round from a gate to gates at other places."""
        behind = [(self._place[block] - gate.place) % self.graph.blocks for block in gate.blocks]
        steps = []
        for place in places:
            blocks = (place - gate.place) % self.graph.blocks
            done = blocks - sum(b < blocks for b in behind)
            if done and walk.done[done - 1][1] == self._gate(place).blocks:
                steps.append(walk.done[done - 1][0])
        return steps


def _narrowest(graph: Hypergraph, orders: Sequence[Ints]) -> _Ring | None:
    """None where there are groups, or no edges, or no order in which the ring is narrow."""
    if len(graph.group) or not len(graph.weight):
        return None
    ring = min((_Ring(graph, order) for order in orders), key=lambda ring: ring.walk.bits)
    return ring if ring.walk.bits <= MOST_BITS else None


def _least(ring: _Ring, most: int, budget: int, known: int, work: int) -> Ints | None:
    copies = ring.graph.blocks // ring.period
    each = max(1, MOST_GATES // copies)
    gates = list(ring.gates(each))
    mixed = _mixed(ring, gates, budget, work) if gates else None
    if mixed is None or mixed <= known:
        return None
    while mixed > budget and each > 1 and each * copies > FEWEST_GATES:
        each //= 2
        fewer = list(ring.gates(each))
        paid = _mixed(ring, fewer, budget, work)
        if paid is None or paid <= budget:
            break
        gates = fewer
    least = np.full(most + 1, mixed, dtype=np.int64)
    least[0] = 0
    rounds, passed = [], list[int]()
    share = work // min(len(gates), LONG_ROUNDS)
    for gate, alike in gates:
        # Parts that are clean at an earlier gate are found from there: few are left for the last.
        rounds.append(partial(_round, ring, gate, passed, most, mixed - 1, share))
        passed = passed + alike
    for candidate in run_ahead(rounds):
        if candidate is None:
            return None
        np.minimum(least, candidate, out=least)
    return least


def _mixed(
    ring: _Ring, gates: Sequence[tuple[_Gate, list[int]]], budget: int, work: int
) -> int | None:
    """Bound from below what a part pays that is clean at none of these gates; `budget` + 1 if it is
    more. None if that takes more work."""
    passage = Passage(ring.walk, 1, budget, (0, 0))
    at = 0
    for place in sorted(place for _, alike in gates for place in alike):
        until, _ = ring.walk.done[place - 1]
        if not passage.advance(at, until, work):
            return None
        for state in (0, int(passage.steps.used[until])):
            passage.drop(state)
        at = until
    is_done = passage.advance(at, len(passage.steps.what), work)
    return min(int(passage.least()[0]), budget + 1) if is_done else None


def _round(
    ring: _Ring, gate: _Gate, passed: Sequence[int], most: int, budget: int, work: int
) -> Ints | None:
    """Return what parts pay that have all blocks of a gate, or none, and are mixed at those
    `passed`; None if it takes more work."""
    walk, sizes = ring.around(gate), most + 1
    work -= walk.done[-1][0] << walk.bits
    if walk.bits > MOST_BITS or work < 0:
        return None
    without = Passage(walk, sizes, budget)
    # A part that has all of them pays what the rest of the gang pays.
    rest = Passage(walk, sizes, budget, (0, 1), len(gate.blocks))
    is_done = Ahead(walk, mixed=ring.steps_to(passed, gate, walk)).all_end_within(
        [without, rest], work // 2
    )
    return np.minimum(without.least(), rest.least()) if is_done else None
