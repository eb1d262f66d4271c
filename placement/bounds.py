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

import numpy as np
import numpy.typing as npt

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.hostset import Mask
from placement.milp import ColumnLp, LpSolution
from placement.pricing import Pricer, pattern_cost

Pattern = tuple[int, ...]
Floats = npt.NDArray[np.float64]
ROUNDS = 60  # pricing rounds per node; prices have settled long before
STAIRS = 8
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

    def values(self, most: int, width: int) -> Ints:
        """f(n) for n = 0 .. most."""
        n = np.arange(most + 1)
        if self.stairs:
            return staircase(n, self.stairs, width)
        return (n >= self.least).astype(np.int64)


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


def lower_bound(
    grid: BlockGrid,
    capacities: Sequence[int],
    incumbent: int,
    seeds: Iterable[Pattern],
    most_nodes: int,
) -> int:
    """The best doubled bound that `most_nodes` nodes prove, at most `incumbent`.

    `incumbent`: a doubled cut that is attained. `seeds`: patterns to start from.
    """
    return _Search(grid, capacities, incumbent, seeds).run(most_nodes)


class _Search:
    def __init__(
        self, grid: BlockGrid, capacities: Sequence[int], incumbent: int, seeds: Iterable[Pattern]
    ) -> None:
        self.grid = grid
        self.capacities = sorted((c for c in capacities if c), reverse=True)
        self.incumbent = incumbent
        self.classes = sorted(set(self.capacities), reverse=True)
        # Prices above this would overflow a pattern's sum; any price makes a valid bound.
        self.highest = (1 << 57) // (self.classes[0] + 64 * grid.rows)
        self.scale = self._price_scale()
        self.pricer = Pricer(grid.rows, grid.width, self.classes[0], grid.row_weight * self.scale)
        self.norm = float(max(grid.weights))
        self.columns: dict[Pattern, None] = {}  # in the order found
        self.counters: list[Counter] = []
        self.values: list[Ints] = []
        self.lp = ColumnLp([float(grid.width)] * grid.rows)
        self.root = self._root()
        for counter in self.root:
            self._open(counter)
        for seed in seeds:
            self._add(seed)

    def _price_scale(self) -> int:
        """How many price units make one cost unit: as fine as int64 has room for."""
        g = self.grid
        pattern = g.rows * int(g.step.max()) + 2 * g.row_weight * g.width
        return max(1, min(1 << 24, self.highest // max(1, pattern)))

    def _root(self) -> dict[Counter, Range]:
        """What is known of the counters before any decision."""
        g, zones = self.grid, len(self.capacities)
        known = {Counter(WHOLE_GANG, 1): (fewest(self.capacities, g.size), zones)}
        for larger, smaller in zip(self.classes, self.classes[1:], strict=False):
            at_least = sum(c >= larger for c in self.capacities)
            known[Counter(WHOLE_GANG, smaller + 1)] = (0, at_least)
        in_row = fewest([min(c, g.width) for c in self.capacities], g.width)
        for s in range(g.rows):
            known[Counter(s, 1)] = (in_row, zones)
        return known

    def _open(self, counter: Counter) -> None:
        """Give `counter` a row of the master."""
        self.counters.append(counter)
        most = self.classes[0] if counter.row == WHOLE_GANG else self.grid.width
        self.values.append(counter.values(most, self.grid.width))
        self.lp.add_row([self._value(len(self.counters) - 1, p) for p in self.columns])

    def _value(self, i: int, pattern: Pattern) -> float:
        row = self.counters[i].row
        return float(self.values[i][sum(pattern) if row == WHOLE_GANG else pattern[row]])

    def _add(self, pattern: Pattern) -> bool:
        """Make `pattern` a column; False when it is one already."""
        if pattern in self.columns:
            return False
        self.columns[pattern] = None
        entries = [float(n) for n in pattern]
        entries += [self._value(i, pattern) for i in range(len(self.counters))]
        self.lp.add_column(pattern_cost(self.grid, pattern) / self.norm, entries)
        return True

    def run(self, most_nodes: int) -> int:
        """Best-first search; ties to the node made first."""
        proved_leaves: list[int] = []
        heap: list[tuple[int, int, Mapping[Counter, Range]]] = [(0, 0, self.root)]
        made = 0
        for _ in range(most_nodes):
            if not heap or heap[0][0] >= self.incumbent:
                break
            floor, _, node = heapq.heappop(heap)
            proved, solution = self._solve(node, floor)
            children = self._split(node, solution) if solution and proved < self.incumbent else []
            if not children:
                proved_leaves.append(proved)
            for child in children:
                made += 1
                heapq.heappush(heap, (proved, made, child))
        return min([self.incumbent, *proved_leaves, *(floor for floor, _, _ in heap)])

    def _range(self, node: Mapping[Counter, Range], counter: Counter) -> Range:
        if counter.stairs:
            return counter.stairs + 1, 1 << 20
        return node.get(counter, (0, len(self.capacities)))

    def _solve(self, node: Mapping[Counter, Range], floor: int) -> tuple[int, LpSolution | None]:
        """Price columns until none pays. Returns the node's bound and the last LP."""
        for i, counter in enumerate(self.counters):
            low, high = self._range(node, counter)
            self.lp.bound_row(self.grid.rows + i, low, high)
        proved = floor
        solution = self.lp.solve()
        for _ in range(ROUNDS):
            if solution is None:
                break
            value, found = self._price(node, solution)
            proved = max(proved, attainable(self.grid, value))
            if proved >= self.incumbent:
                break
            found += [pattern[::-1] for pattern in found]  # rows are alike from either end
            fresh = [pattern for pattern in found if self._add(pattern)]
            if not fresh and not self._cut(solution):
                break
            solution = self.lp.solve()
        return proved, solution

    def _price(
        self, node: Mapping[Counter, Range], solution: LpSolution
    ) -> tuple[int, list[Pattern]]:
        """The Lagrangian bound at the LP's duals, and one pattern per class that pays."""
        g = self.grid
        duals = np.array(solution.duals) * self.norm * self.scale
        prices = np.rint(np.clip(duals, -self.highest, self.highest)).astype(np.int64).tolist()
        slot = np.maximum(0, np.array(prices[: g.rows], dtype=np.int64))
        cost = np.asarray(g.step * self.scale - slot[:, None] * np.arange(g.width + 1))
        size_price = np.zeros(self.classes[0] + 1, dtype=np.int64)
        fixed = g.width * int(slot.sum())
        for counter, values, price in zip(
            self.counters, self.values, prices[g.rows :], strict=True
        ):
            low, high = self._range(node, counter)
            fixed += price * (low if price > 0 else high)
            if counter.row == WHOLE_GANG:
                size_price += price * values
            else:
                cost[counter.row] -= price * values
        self.pricer.price(cost, size_price)
        best = self.pricer.best
        per_zone = sum(min(0, int(best[c])) for c in self.capacities)
        value = -(-(fixed + per_zone) // self.scale) - g.offset
        return value, [self.pricer.pattern(c) for c in self.classes if best[c] < 0]

    def _cut(self, solution: LpSolution) -> bool:
        """Open the most violated staircase of each row; False when none is violated."""
        patterns, share = self._support(solution)
        opened = False
        for s in range(self.grid.rows):
            counter = self._violated(s, patterns[:, s], share)
            if counter is not None and counter not in self.counters:
                self._open(counter)
                low, high = self._range({}, counter)
                self.lp.bound_row(self.grid.rows + len(self.counters) - 1, low, high)
                opened = True
        return opened

    def _violated(self, row: int, slots: Ints, share: Floats) -> Counter | None:
        width = self.grid.width
        worst, stairs = 0.05, 0
        for k in range(1, min(STAIRS, width - 1) + 1):
            missing = k + 1 - float(share @ staircase(slots, k, width))
            if missing > worst:
                worst, stairs = missing, k
        return Counter(row, stairs=stairs) if stairs else None

    def _split(
        self, node: Mapping[Counter, Range], solution: LpSolution
    ) -> list[Mapping[Counter, Range]]:
        """Children on a fractional counter; none when all are integral."""
        counter, value = self._most_fractional(solution)
        if counter is None:
            return []
        if counter not in self.counters:
            self._open(counter)
        low, high = self._range(node, counter)
        floor = int(np.floor(value))
        halves = ((low, floor), (floor + 1, high))
        return [{**node, counter: (a, b)} for a, b in halves if a <= b]

    def _most_fractional(self, solution: LpSolution) -> tuple[Counter | None, float]:
        """Sizes first, then rows touched, then slots of a row; ties to the first in order.

        A zone of a single host satisfies "six zones" at no cost, and the LP mixes such
        zones in; only a split on sizes tells them from real ones.
        """
        patterns, share = self._support(solution)
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

    def _support(self, solution: LpSolution) -> tuple[Ints, Floats]:
        """Patterns in use, shape (patterns, rows), and how often, shape (patterns,)."""
        share = np.array(solution.columns)
        used = np.flatnonzero(share > 1e-7)
        columns = list(self.columns)
        return np.array([columns[i] for i in used], dtype=np.int64), share[used]


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
