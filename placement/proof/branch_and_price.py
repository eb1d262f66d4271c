"""What no placement can beat: column generation and branching on counts of zones.

Patterns n = (n_1 .. n_S) of whole zones cover every row; beside the covering rows stand *counters*,
sums over the zones with a range: capacities, cuts and branching decisions. For any prices u >= 0 of
rows and v of counters

    2 cut >= width sum_s u_s + sum_counters (v low, or v high where v < 0)
             + sum over zones min(0, cheapest pattern at these prices) - offset

The prices are a linear program's, rounded to integers, and the right-hand side is computed in
int64: so the bound holds whatever the solver did. The bound of the tree is the least over its open
leaves. See docs/engine.md, "The proof".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from placement.bound.rounding import fewest
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import ZonePattern
from placement.proof.master import WHOLE_GANG, Counter, Pool, Range, rectangles
from placement.proof.node import ROUNDS, Case, Exploration, Node, PricingTables, Witness
from placement.speculative import run_ahead

TWO_AT_ONCE = 2.0  # rounds of work in a node, beside which another one is explored


class Step(NamedTuple):
    """One step of the proof: a node that was explored, its children and its bound."""

    node: Node
    children: tuple[Node, ...]
    proved: int
    witness: Witness | None


class Prover:
    """Proves lower bounds on the doubled cut of a grid over zones of given capacities."""

    def __init__(
        self,
        grid: BlockGrid,
        capacities: Sequence[int],
        seeds: Iterable[ZonePattern],
        lot: int = 1,
    ) -> None:
        """`seeds`: patterns to start from, say those of a good layout. `lot`: slots come in
        lots, whole hosts of several slots, say; capacities are multiples of it."""
        self.grid = grid
        self._case = case = Case(grid, capacities, lot)
        self.states, self.capacities = case.states, case.capacities
        self._tables = PricingTables(case)
        self.cover: list[ZonePattern] = []  # of a node whose program chose whole patterns
        self.pool = Pool(grid, case.norm)
        self.pool.add(seeds)
        spaced = case.classes[:: max(1, len(case.classes) // 4)]
        self.pool.add(rectangles(grid, spaced, lot))
        self._cuts: dict[Counter, Range] = {}
        self._in_use: dict[ZonePattern, None] = {}  # in the last solution of some node
        self.heap: list[tuple[int, int, Node]] = []
        self._leaves: list[int] = []  # bounds of closed nodes
        self.steps: list[Step] = []
        self.made = 0
        self.incumbent = 0
        self._rounds, self._explored = 0.0, 0  # of work, all in all, and nodes
        self._last: tuple[tuple[float, ...], Mapping[Counter, float]] = (0.0,) * grid.rows, {}

    @property
    def scale(self) -> int:
        """Units of witnesses' prices in one unit of the grid."""
        return self._tables.scale

    @cached_property
    def _second_tables(self) -> PricingTables:
        """For a node that is explored beside another one."""
        return PricingTables(self._case)

    def _root(self) -> Node:
        """Return the node with what is known of the counters before any decision."""
        g, capacities, zones = self.grid, self._case.capacities, len(self._case.capacities)
        known = {Counter(WHOLE_GANG, 1): (fewest(capacities, g.size), zones)}
        for larger, smaller in pairwise(self._case.classes):
            at_least = sum(c >= larger for c in capacities)
            known[Counter(WHOLE_GANG, smaller + 1)] = (0, at_least)
        in_row = fewest([min(c, g.width) for c in capacities], g.width)
        for s in range(g.rows):
            known[Counter(s, 1)] = (in_row, zones)
        # Slots at an equal share of a good layout's cost: a first guess at the prices.
        share = (self.incumbent + g.offset) / g.size / self._case.norm
        return Node(known, (share,) * g.rows, {})

    def prove(self, incumbent: int, rounds: int, *, is_last: bool = False) -> int:
        """Spend about `rounds` more rounds, and return the best bound so far, at most `incumbent`.

        A round is an amount of work; large tables and programs take several at once. `is_last`:
        nobody asks for more, and the last node is not split.

        The search is best first; of equal nodes the one made first is explored. A node that was
        begun is finished, for half of its columns prove next to nothing. Where nodes are long, two
        are explored at a time, the second one without what the first one finds; but not where
        rounds are few, for then it would miss that.
        """
        self.incumbent = min([incumbent, *self._leaves])
        most = self._rounds + rounds
        if not self.made:
            self.made = 1
            self.heap.append((0, 0, self._root()))
        while self._is_open and self._rounds < most:
            left = most - self._rounds if is_last else inf
            calls = [partial(each.explore, left) for each in self._begun()]
            for done in list(run_ahead(calls)):
                self._learn(done)
        open_ = (known for known, _, _ in self.heap)
        return min([incumbent, *self._leaves, *open_])

    @property
    def _is_open(self) -> bool:
        return bool(self.heap) and self.heap[0][0] < min([self.incumbent, *self._leaves])

    def _begun(self) -> list[Exploration]:
        """The next node, or two where nodes are long."""
        is_long = self._rounds >= TWO_AT_ONCE * self._explored > 0
        many = 2 if is_long and self._case.rounds == ROUNDS else 1
        begun: list[Exploration] = []
        while self._is_open and len(begun) < many:
            known, _, node = heapq.heappop(self.heap)
            tables = self._second_tables if begun else self._tables
            state = self.pool, self._cuts, node, known, self.incumbent
            begun.append(Exploration(self._case, tables, *state))
        return begun

    def _learn(self, done: Exploration) -> None:
        """Record what the exploration of a node has found."""
        self._explored += 1
        self.steps.append(Step(done.node, tuple(done.children), done.proved, done.witness))
        self.pool.add(done.fresh)
        self._cuts |= done.cuts
        for pattern in done.in_use:
            self._in_use.pop(pattern, None)
            self._in_use[pattern] = None
        self._last = done.last or self._last
        self._rounds += done.rounds
        self.cover = done.cover or self.cover
        if not done.children:
            self._leaves.append(done.proved)
        for child in done.children:
            self.made += 1
            heapq.heappush(self.heap, (done.proved, self.made, child))

    def good_patterns(self, most: int) -> list[ZonePattern]:
        """Return patterns that a whole cover can be made of: those in use where nodes ended, the
        last node first, then the cheapest at the last prices."""
        cheapest = self.pool.cheapest(*self._last, most, np.inf)
        return list(dict.fromkeys([*reversed(self._in_use), *cheapest]))[:most]
