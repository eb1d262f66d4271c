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
import numpy.typing as npt

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.hostset import Mask
from placement.milp import ARTIFICIAL, ColumnLp, LpSolution
from placement.pricing import Pricer, pattern_cost

Pattern = tuple[int, ...]
Floats = npt.NDArray[np.float64]
ROUNDS = 60  # pricing rounds per node; prices have settled long before
STAIRS = 9
CLASSES = 8  # capacity classes that get a pattern each round
SMALL = 160  # columns that a node starts with
WHOLE_GANG = -1


@dataclass(frozen=True, slots=True)
class Counter:
    """A count over zones: of those that hold at least `least` slots of `row` (or hosts of
    the whole gang), or, with `stairs` = k, of the steps of a staircase on a row's slots.

    Stairs are Chvatal-Gomory cuts of a covering row: f(n) = floor(n k / width) + 1 for
    n > 0 is subadditive, so zones that cover the row climb k + 1 steps at least.
    """

    row: int
    least: int = 1
    stairs: int = 0

    def values(self, length: int, width: int) -> Ints:
        """f(n) for n = 0 .. length - 1."""
        return self._f(np.arange(length), width)

    def of(self, patterns: Ints, width: int) -> Ints:
        """What each pattern counts. Shape: (patterns,)."""
        held = patterns.sum(axis=1) if self.row == WHOLE_GANG else patterns[:, self.row]
        return self._f(held, width)

    def _f(self, n: Ints, width: int) -> Ints:
        return (
            staircase(n, self.stairs, width) if self.stairs else (n >= self.least).astype(n.dtype)
        )


def staircase(slots: Ints, stairs: int, width: int) -> Ints:
    return np.where(slots > 0, slots * stairs // width + 1, 0)


Range = tuple[int, int]


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
        self, grid: BlockGrid, capacities: Sequence[int], seeds: Iterable[Pattern]
    ) -> None:
        """`seeds`: patterns to start from, say those of a good layout."""
        self.grid = grid
        self.capacities = sorted((c for c in capacities if c), reverse=True)
        self.classes = sorted(set(self.capacities), reverse=True)
        self.norm = float(max(grid.weights))
        # Prices above this would overflow a pattern's sum; any price makes a valid bound.
        self.highest = (1 << 57) // (self.classes[0] + 64 * grid.rows)
        self.scale = self._price_scale()
        self.pricer = Pricer(grid.rows, grid.width, self.classes[0], grid.row_weight * self.scale)
        self.pool = dict.fromkeys(seeds)  # patterns in the order found
        self.stairs: dict[Counter, Range] = {}
        self.heap: list[tuple[int, int, _Node]] = [(0, 0, self._root())]
        self.leaves: list[int] = []  # bounds of closed nodes
        self.made = 0
        self.incumbent = 0
        self.rounds_left = 0

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
        return _Node(known, (0.0,) * g.rows, {})

    def prove(self, incumbent: int, rounds: int) -> int:
        """Spend about `rounds` more rounds; the best bound so far, at most `incumbent`.

        Best-first search; ties to the node made first. A node once begun is finished:
        half of its columns prove next to nothing.
        """
        self.incumbent = incumbent
        self.rounds_left = rounds
        while self.heap and self.heap[0][0] < incumbent and self.rounds_left > 0:
            known, _, node = heapq.heappop(self.heap)
            proved, children = self._explore(node, known)
            if not children:
                self.leaves.append(proved)
            for child in children:
                self.made += 1
                heapq.heappush(self.heap, (proved, self.made, child))
        return min([incumbent, *self.leaves, *(known for known, _, _ in self.heap)])

    def _explore(self, node: _Node, known: int) -> tuple[int, list[_Node]]:
        """The node's bound, and its children unless it is closed or integral."""
        master = _Master(self.grid, {**node.ranges, **self.stairs}, self.norm)
        for pattern in self._promising(node):
            master.add(pattern)
        proved = known
        solution = master.solve()
        for _ in range(ROUNDS):
            if solution is None:
                break
            self.rounds_left -= 1
            value, found = self._price(master, solution)
            proved = max(proved, attainable(self.grid, value))
            if proved >= self.incumbent:
                return proved, []
            fresh = [pattern for pattern in found if master.add(pattern)]
            self.pool.update(dict.fromkeys(fresh))
            is_settled = not fresh or proved >= self._ceiling(solution)
            if is_settled and not self._cut(master, solution):
                break
            solution = master.solve()
        return proved, self._split(node, master, solution) if solution else []

    def _ceiling(self, solution: LpSolution) -> int:
        """What the node's bound can reach at most: the master's own cost."""
        return attainable(self.grid, floor(solution.cost * self.norm + 1e-6) - self.grid.offset)

    def _promising(self, node: _Node) -> list[Pattern]:
        """The pool's cheapest patterns at the parent's prices: a small master is fast."""
        pool = list(self.pool)
        if len(pool) <= SMALL:
            return pool
        patterns = np.array(pool, dtype=np.int64)
        reduced = self._costs(patterns) / self.norm - patterns @ np.array(node.slot_price)
        for counter, price in node.price.items():
            reduced -= price * counter.of(patterns, self.grid.width)
        return [pool[i] for i in np.argsort(reduced, kind="stable")[:SMALL]]

    def _costs(self, patterns: Ints) -> Ints:
        moves = np.abs(np.diff(patterns, axis=1)).sum(axis=1)
        return np.asarray(self.grid.step[patterns].sum(axis=1) + self.grid.row_weight * moves)

    def _price(self, master: _Master, solution: LpSolution) -> tuple[int, list[Pattern]]:
        """The Lagrangian bound at the LP's duals, and patterns that pay."""
        g = self.grid
        scaled = np.array(solution.duals) * self.norm * self.scale
        prices = np.rint(np.clip(scaled, -self.highest, self.highest)).astype(np.int64)
        slot = np.maximum(0, prices[: g.rows])
        slots = np.arange(g.width + 1, dtype=np.int64)
        cost = (g.step * self.scale - slot[:, None] * slots).astype(np.int64)
        size_price = np.zeros(self.classes[0] + 1, dtype=np.int64)
        fixed = g.width * int(slot.sum())
        for (counter, (low, high)), price in zip(
            master.ranges.items(), prices[g.rows :].tolist(), strict=True
        ):
            fixed += price * (low if price > 0 else high)
            if counter.row == WHOLE_GANG:
                size_price += price * counter.values(len(size_price), g.width)
            else:
                cost[counter.row] -= price * counter.values(g.width + 1, g.width)
        self.pricer.price(cost, size_price)
        best = self.pricer.best
        per_zone = sum(min(0, int(best[c])) for c in self.capacities)
        value = -(-(fixed + per_zone) // self.scale) - g.offset
        paying = [c for c in self.classes if best[c] < 0]
        chosen = paying[:: max(1, len(paying) // CLASSES)]
        found = [self.pricer.pattern(c) for c in chosen]
        return value, found + [pattern[::-1] for pattern in found]  # rows are alike reversed

    def _cut(self, master: _Master, solution: LpSolution) -> bool:
        """Open the most violated staircase of each row; False when none is violated."""
        patterns, share = master.support(solution)
        opened = False
        for s in range(self.grid.rows):
            counter = self._violated(s, patterns[:, s], share)
            if counter is not None and counter not in master.ranges:
                self.stairs[counter] = (counter.stairs + 1, len(self.capacities) * STAIRS)
                master.open(counter, self.stairs[counter])
                opened = True
        return opened

    def _violated(self, row: int, slots: Ints, share: Floats) -> Counter | None:
        width = self.grid.width
        worst, stairs = 0.05, 0
        for k in range(1, min(STAIRS, width)):
            missing = k + 1 - float(share @ staircase(slots, k, width))
            if missing > worst:
                worst, stairs = missing, k
        return Counter(row, stairs=stairs) if stairs else None

    def _split(self, node: _Node, master: _Master, solution: LpSolution) -> list[_Node]:
        """Children on a fractional counter; none when all are integral."""
        counter, value = _most_fractional(*master.support(solution))
        if counter is None:
            return []
        price = dict(zip(master.ranges, solution.duals[self.grid.rows :], strict=True))
        low, high = node.ranges.get(counter, (0, len(self.capacities)))
        below = floor(value)
        slot_price = solution.duals[: self.grid.rows]
        return [
            _Node({**node.ranges, counter: half}, slot_price, price)
            for half in ((low, below), (below + 1, high))
            if half[0] <= half[1]
        ]


class _Master:
    """The LP of one node: covering rows, then one row for each counter."""

    def __init__(self, grid: BlockGrid, ranges: Mapping[Counter, Range], norm: float) -> None:
        self.grid = grid
        self.ranges: dict[Counter, Range] = {}
        self._norm = norm
        self._patterns: dict[Pattern, None] = {}
        self._values: list[list[float]] = []  # f(n) of each counter
        self._lp = ColumnLp([float(grid.width)] * grid.rows)
        for counter, bounds in ranges.items():
            self.open(counter, bounds)

    def open(self, counter: Counter, bounds: Range) -> None:
        """Give `counter` a row."""
        self.ranges[counter] = bounds
        table = counter.values(self.grid.size + 1, self.grid.width)
        self._values.append(table.astype(float).tolist())
        patterns = np.array(list(self._patterns), dtype=np.int64).reshape(-1, self.grid.rows)
        self._lp.add_row(*bounds, counter.of(patterns, self.grid.width).tolist())

    def add(self, pattern: Pattern) -> bool:
        """Make `pattern` a column; False when it is one already."""
        if pattern in self._patterns:
            return False
        self._patterns[pattern] = None
        held = [*pattern, sum(pattern)]  # WHOLE_GANG = -1 finds the sum
        entries = [float(n) for n in pattern]
        entries += [table[held[c.row]] for c, table in zip(self.ranges, self._values, strict=True)]
        self._lp.add_column(pattern_cost(self.grid, pattern) / self._norm, entries)
        return True

    def solve(self) -> LpSolution | None:
        return self._lp.solve()

    def support(self, solution: LpSolution) -> tuple[Ints, Floats]:
        """Patterns in use, shape (patterns, rows), and how often, shape (patterns,)."""
        share = np.array(solution.columns)
        used = np.flatnonzero(share > 1e-7)
        columns = list(self._patterns)
        return np.array([columns[i] for i in used], dtype=np.int64), share[used]


def _most_fractional(patterns: Ints, share: Floats) -> tuple[Counter | None, float]:
    """Sizes first, then rows touched, then slots of a row; ties to the first in order.

    A zone of a single host satisfies "six zones" at no cost, and the LP mixes such
    zones in; only a split on sizes tells them from real ones.
    """
    for family in (_sizes, _touches, _slots):
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


def _slots(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        for least in np.unique(patterns[:, s]):
            if least > 0:
                yield Counter(s, int(least)), patterns[:, s] >= least
