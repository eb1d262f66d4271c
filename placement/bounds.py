"""What no placement can beat: column generation and branching on counts of zones.

Theory of operation. By `grid`, the doubled cut is at least a sum over zones of a cost
of the zone's pattern n = (n_1 .. n_S), less a constant. The patterns of all zones
cover every row: sum over zones of n_s >= width. Beside the covering rows stand
*counters*: how many zones have a pattern of at least t hosts, or at least t slots of
row s. Capacities are counters (at most two zones have more than 350 hosts), so is the
least number of zones, and so is every branching decision.

Relaxing the covering rows with prices u >= 0 and the counters with prices v leaves one
shortest path per zone (`pricing`), hence for *any* prices

    2 cut >= width sum_s u_s + sum_counters (v low, or v high where v < 0)
             + sum over zones min(0, cheapest pattern at these prices) - offset

This is the Dantzig-Wolfe bound when the prices are the duals of the master LP over
columns. The LP is solved in floats; its duals are rounded to integers first and the
right-hand side is then computed in int64, so the bound holds whatever the LP solver
did. It is rounded up to what the weights of whole edges can add up to.

The root is weak where a counter is fractional, so nodes split on one: at most its
floor, or at least its ceiling (design: placement, 5, branches on k_s, the counters
with t = 1). The bound of the tree is the least over its open leaves.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.hostset import Mask
from placement.master import (
    WHOLE_GANG,
    Counter,
    Floats,
    Master,
    Pattern,
    Pool,
    Range,
    rectangles,
    staircase,
)
from placement.milp import ARTIFICIAL, LpSolution
from placement.pricing import Pricer

ROUNDS = 60  # pricing rounds per node; prices have settled long before
FEW_ROUNDS = 6
QUICK_STATES = 3_000_000  # of the pricing table: some 30 ms a round
# What makes a round of about 10 ms: states priced once, or entries of a linear program solved.
STATES_A_ROUND = 1_000_000
ENTRIES_A_ROUND = 60_000
LEAST_WORK = 0.25  # of a round: what even the smallest case needs to price and solve
STAIRS = 9
VIOLATED = 0.05  # zones; a cut violated by less is not worth a row
CLASSES = 8  # capacity classes that get a pattern each round
SMALL = 160  # columns that a node starts with
HANDFUL = 24  # columns taken from the pool between two pricing rounds
SHORTCUTS = 12  # times in a row


def attainable(grid: BlockGrid, doubled: int) -> int:
    """The least doubled cut >= `doubled` that whole edges can add up to.

    Exact for one or two different weights, a multiple of their gcd beyond.
    """
    weights = sorted({2 * w for w in grid.weights}, reverse=True)
    if doubled <= 0 or not weights:
        return max(0, doubled)
    if len(weights) == 1:
        return -(-doubled // weights[0]) * weights[0]
    if len(weights) == 2:
        large, small = weights
        many = np.arange(min(-(-doubled // large), small) + 1, dtype=np.int64)
        rest = np.maximum(0, doubled - many * large)
        return int((many * large + -(-rest // small) * small).min())
    common = int(np.gcd.reduce(np.array(weights)))
    return -(-doubled // common) * common


def fewest(capacities: Sequence[int], needed: int) -> int:
    """The least number of zones that can hold `needed` hosts together."""
    total = 0
    for count, capacity in enumerate(sorted(capacities, reverse=True), 1):
        total += capacity
        if total >= needed:
            return count
    raise ValueError("the zones do not hold that many hosts")


@dataclass(frozen=True, slots=True)
class _Node:
    """Ranges of the counters that are bounded here, and the parent's last prices."""

    ranges: Mapping[Counter, Range]
    slot_price: tuple[float, ...]
    price: Mapping[Counter, float]


class Prover:
    """Proves lower bounds on the doubled cut of a grid over zones of given capacities."""

    def __init__(
        self,
        grid: BlockGrid,
        capacities: Sequence[int],
        seeds: Iterable[Pattern],
        lot: int = 1,
        odd: Sequence[int] = (),
    ) -> None:
        """`seeds`: patterns to start from, say those of a good layout. `lot`: slots come in
        lots, whole hosts of several slots, say; capacities are multiples of it. `odd`: how
        many zones at most hold slots of each row that are not whole lots.
        Large tables get fewer rounds a node: a round is as dear as many of others."""
        self.grid = grid
        self.capacities = sorted((c for c in capacities if c), reverse=True)
        self.classes = sorted(set(self.capacities), reverse=True)
        steps = max((len(slopes) for slopes in grid.slopes), default=1)
        states = grid.rows * (grid.width + 1) * self.classes[0] * steps
        self.rounds_a_node = max(FEW_ROUNDS, min(ROUNDS, ROUNDS * QUICK_STATES // states))
        self.norm = float(max(int(grid.step.max()), grid.row_weight, 1))
        # Prices above this would overflow a pattern's sum; any price makes a valid bound.
        self.highest = (1 << 57) // (self.classes[0] + 64 * grid.rows)
        self.scale = self._price_scale()
        slopes = [tuple((w * self.scale, many) for w, many in each) for each in grid.slopes]
        floors = [floor * self.scale for floor in grid.floors]
        self.pricer = Pricer(grid.rows, grid.width, self.classes[0], slopes, floors, lot)
        self.lot, self.odd = lot, odd
        self.pool = Pool(grid, self.norm)
        self.pool.add(seeds)
        spaced = self.classes[:: max(1, len(self.classes) // 4)]
        self.pool.add(p for p in rectangles(grid, spaced) if sum(p) % lot == 0)
        self.cuts: dict[Counter, Range] = {}
        self.in_use: dict[Pattern, None] = {}  # in the last solution of some node
        self.heap: list[tuple[int, int, _Node]] = []
        self.leaves: list[int] = []  # bounds of closed nodes
        self.made = 0
        self.incumbent = 0
        self.rounds_left = 0.0
        self.pricing = states / STATES_A_ROUND
        self.last_prices: tuple[tuple[float, ...], Mapping[Counter, float]] = (
            (0.0,) * grid.rows,
            {},
        )

    def _price_scale(self) -> int:
        """How many price units make one cost unit: as fine as int64 has room for, with
        the prices of the master's artificial columns still below `highest`."""
        return max(1, min(1 << 24, int(self.highest / (2 * ARTIFICIAL * self.norm))))

    def _root(self) -> _Node:
        """What is known of the counters before any decision."""
        g, zones = self.grid, len(self.capacities)
        known = {Counter(WHOLE_GANG, 1): (fewest(self.capacities, g.size), zones)}
        for larger, smaller in pairwise(self.classes):
            at_least = sum(c >= larger for c in self.capacities)
            known[Counter(WHOLE_GANG, smaller + 1)] = (0, at_least)
        in_row = fewest([min(c, g.width) for c in self.capacities], g.width)
        for s in range(g.rows):
            known[Counter(s, 1)] = (in_row, zones)
        # Slots at an equal share of a good layout's cost: a first guess at the prices.
        share = (self.incumbent + g.offset) / g.size / self.norm
        return _Node(known, (share,) * g.rows, {})

    def prove(self, incumbent: int, rounds: int) -> int:
        """Spend about `rounds` more rounds; the best bound so far, at most `incumbent`.

        A round is an amount of work; large tables and programs take several at once.

        Best-first search; ties to the node made first. A node once begun is finished:
        half of its columns prove next to nothing.
        """
        self.incumbent = incumbent
        self.rounds_left = rounds
        if not self.made:
            self.made = 1
            self.heap.append((0, 0, self._root()))
        while self.heap and self.heap[0][0] < incumbent and self.rounds_left > 0:
            known, _, node = heapq.heappop(self.heap)
            proved, children = self._explore(node, known)
            if not children:
                self.leaves.append(proved)
            for child in children:
                self.made += 1
                heapq.heappush(self.heap, (proved, self.made, child))
        return min([incumbent, *self.leaves, *(known for known, _, _ in self.heap)])

    def good_patterns(self, most: int) -> list[Pattern]:
        """What a whole cover is made of: the patterns in use where nodes ended, the last
        node first, then the cheapest at the last prices."""
        cheapest = self.pool.cheapest(*self.last_prices, most, np.inf)
        return list(dict.fromkeys([*reversed(self.in_use), *cheapest]))[:most]

    def _explore(self, node: _Node, known: int) -> tuple[int, list[_Node]]:
        """The node's bound, and its children unless it is closed or integral."""
        master = Master(self.grid, {**node.ranges, **self.cuts}, self.norm)
        master.add(self.pool.cheapest(node.slot_price, node.price, SMALL, np.inf))
        proved = known
        solution = self._solved(master)
        for _ in range(self.rounds_a_node):
            if solution is None:
                break
            self.rounds_left -= LEAST_WORK + self.pricing
            value, found = self._price(master, solution)
            proved = max(proved, attainable(self.grid, value))
            if proved >= self.incumbent:
                return proved, []
            fresh = master.add(found)
            self.pool.add(fresh)
            is_settled = not fresh or proved >= self._ceiling(solution)
            if is_settled and not self._cut(master, solution):
                break
            solution = self._solved(master)
        return proved, self._split(node, master, solution) if solution else []

    def _solved(self, master: Master) -> LpSolution | None:
        """The master over its columns and those of the pool that pay: cheaper than a
        pricing round, and most of what one would find has been met before."""
        solution = self._solve(master)
        for _ in range(SHORTCUTS):
            if solution is None:
                break
            self.last_prices = master.prices(solution)
            if not master.add(self.pool.cheapest(*self.last_prices, HANDFUL, -1e-7)):
                break
            solution = self._solve(master)
        return solution

    def _solve(self, master: Master) -> LpSolution | None:
        self.rounds_left -= master.entries / ENTRIES_A_ROUND
        return master.solve()

    def _ceiling(self, solution: LpSolution) -> int:
        """What the node's bound can reach at most: the master's own cost."""
        return attainable(self.grid, floor(solution.cost * self.norm + 1e-6) - self.grid.offset)

    def _price(self, master: Master, solution: LpSolution) -> tuple[int, list[Pattern]]:
        """The Lagrangian bound at the LP's duals, and patterns that pay."""
        g = self.grid
        scaled = np.array(solution.duals) * self.norm * self.scale
        prices = np.rint(np.clip(scaled, -self.highest, self.highest)).astype(np.int64)
        slot = np.maximum(0, prices[: g.rows])
        slots = np.arange(g.width + 1, dtype=np.int64)
        cost = (g.step * self.scale - slot[:, None] * slots).astype(np.int64)
        size_price = np.zeros(self.classes[0] + 1, dtype=np.int64)
        link_price = np.zeros(g.rows, dtype=np.int64)
        fixed = g.width * int(slot.sum())
        for (counter, (low, high)), price in zip(
            master.ranges.items(), prices[g.rows :].tolist(), strict=True
        ):
            fixed += price * (low if price > 0 else high)
            if counter.is_link:
                link_price[counter.row] += price
            elif counter.row == WHOLE_GANG:
                size_price += price * counter.values(len(size_price), g.width)
            else:
                cost[counter.row] -= price * counter.values(g.width + 1, g.width)
        self.pricer.price(cost, size_price, link_price)
        best = self.pricer.best
        per_zone = sum(min(0, int(best[c])) for c in self.capacities)
        value = -(-(fixed + per_zone) // self.scale) - g.offset
        paying = [c for c in self.classes if best[c] < 0]
        chosen = paying[:: max(1, len(paying) // CLASSES)]
        found = [self.pricer.pattern(c) for c in chosen]
        return value, found + [pattern[::-1] for pattern in found]  # rows are alike reversed

    def _cut(self, master: Master, solution: LpSolution) -> bool:
        """Open the most violated staircase of each row, and count odd slots where too many
        zones hold some; False when nothing is violated."""
        patterns, share = master.support(solution)
        found: dict[Counter, Range] = {}
        for s in range(self.grid.rows):
            counter = self._violated(s, patterns[:, s], share)
            if counter is not None:
                found[counter] = (counter.stairs + 1, len(self.capacities) * STAIRS)
            if self.odd and share @ (patterns[:, s] % self.lot > 0) > self.odd[s] + VIOLATED:
                found[Counter(s, lot=self.lot)] = (0, self.odd[s])
        fresh = {counter: found[counter] for counter in found if counter not in master.ranges}
        for counter, bounds in fresh.items():
            master.open(counter, bounds)
        self.cuts |= fresh
        return bool(fresh)

    def _violated(self, row: int, slots: Ints, share: Floats) -> Counter | None:
        width = self.grid.width
        worst, stairs = VIOLATED, 0
        for k in range(1, min(STAIRS, width)):
            missing = k + 1 - float(share @ staircase(slots, k, width))
            if missing > worst:
                worst, stairs = missing, k
        return Counter(row, stairs=stairs) if stairs else None

    def _split(self, node: _Node, master: Master, solution: LpSolution) -> list[_Node]:
        """Children on a fractional counter; none when all are integral."""
        patterns, share = master.support(solution)
        for pattern in patterns.tolist():
            self.in_use.pop(tuple(pattern), None)
            self.in_use[tuple(pattern)] = None
        counter, value = _most_fractional(patterns, share)
        if counter is None:
            return []
        slot_price, price = master.prices(solution)
        low, high = node.ranges.get(counter, (0, len(self.capacities)))
        below = floor(value)
        return [
            _Node({**node.ranges, counter: half}, slot_price, price)
            for half in ((low, below), (below + 1, high))
            if half[0] <= half[1]
        ]


def _most_fractional(patterns: Ints, share: Floats) -> tuple[Counter | None, float]:
    """Sizes first, then rows touched, then slots of a row; ties to the first in order.

    A zone of a single host satisfies "six zones" at no cost, and the LP mixes such
    zones in; only a split on sizes tells them from real ones.
    """
    for family in (_sizes, _touches, _links, _slots):
        best: tuple[float, Counter | None, float] = (1e-4, None, 0.0)
        for counter, holds in family(patterns):
            value = float(share[holds].sum())
            distance = round(abs(value - round(value)), 6)
            if distance > best[0]:
                best = (distance, counter, value)
        if best[1] is not None:
            return best[1], best[2]
    return None, 0.0


def _sizes(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    """Half way between the sizes in use, where both children have to change."""
    size = patterns.sum(axis=1)
    values = np.unique(size)
    for least in (values[1:] + values[:-1] + 1) // 2:
        yield Counter(WHOLE_GANG, int(least)), size >= least


def _touches(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        yield Counter(s, 1), patterns[:, s] > 0


def _links(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1] - 1):
        yield Counter(s, is_link=True), (patterns[:, s] > 0) & (patterns[:, s + 1] > 0)


def _slots(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        for least in np.unique(patterns[:, s]):
            if least > 0:
                yield Counter(s, int(least)), patterns[:, s] >= least
