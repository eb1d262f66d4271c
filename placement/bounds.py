"""What no placement can beat: column generation and branching on k_s.

Theory of operation. By `grid`, the doubled cut is at least a sum over zones of a cost
of the zone's pattern n = (n_1 .. n_S), less a constant. The patterns of all zones
cover every row: sum over zones of n_s >= width. Relaxing these covering rows with
prices u >= 0 leaves one shortest path per zone (`pricing`), hence for *any* prices

    2 cut >= width sum_s u_s + zones_min kappa + sum_s k_s v_s
             + sum over zones min(0, cheapest pattern at these prices) - offset

with kappa the price of "at least zones_min zones are used" and v_s that of a bound on
k_s, the number of zones that touch row s. This is the Dantzig-Wolfe bound when the
prices are the duals of the master LP over columns. The LP is solved in floats; its
duals are rounded to integers first and the right-hand side above is then computed in
int64, so the bound holds whatever the LP solver did.

The root bound is weak where k_s is fractional, so nodes split on k_s <= floor and
k_s >= ceil (design: placement, 5). The bound of the tree is the least over its open
leaves. Values are rounded up to what the weights can add up to.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.grid import BlockGrid
from placement.milp import INFINITY, ColumnLp, LpSolution
from placement.pricing import PricingTable, pattern_cost

Pattern = tuple[int, ...]
ROUNDS = 60  # pricing rounds per node; prices have settled long before
SETTLED = 1e-7


@dataclass(frozen=True, slots=True)
class _Node:
    """Bounds on k_s, and what the parent proved."""

    low: tuple[int, ...]
    high: tuple[int, ...]


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
    """The best bound that `most_nodes` nodes prove; it stops early at `incumbent`.

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
        self.zones_min = fewest(self.capacities, grid.size)
        row_min = fewest([min(c, grid.width) for c in self.capacities], grid.width)
        zones = len(self.capacities)
        self.root = _Node((row_min,) * grid.rows, (zones,) * grid.rows)
        self.scale = self._price_scale()
        self.norm = float(max(grid.weights))
        self.columns: list[Pattern] = []
        self.lp = self._empty_master()
        self.known: set[Pattern] = set()
        for seed in seeds:
            self._add(seed)

    def _price_scale(self) -> int:
        """How many price units make one cost unit: as fine as int64 has room for."""
        g = self.grid
        worst = 4 * (int(g.step.max()) + g.row_weight * g.width) * g.rows * len(self.capacities)
        return max(1, min(1 << 24, (1 << 58) // max(1, worst * max(1, g.width // 8))))

    # Rows of the master: 0..S-1 cover, S zones used, S+1.. k_s, then nested capacities:
    # patterns too large for class j+1 number at most the zones of classes 0..j.
    def _empty_master(self) -> ColumnLp:
        g = self.grid
        rows = [(float(g.width), INFINITY)] * g.rows
        rows.append((float(self.zones_min), INFINITY))
        rows += [(0.0, INFINITY)] * g.rows
        rows += [
            (-INFINITY, float(sum(c >= size for c in self.capacities))) for size in self.classes
        ]
        lp = ColumnLp(rows)
        for s in range(g.rows):  # artificial slots and touches keep every node feasible
            lp.add(1e4, [(s, 1.0)])
            lp.add(1e4, [(g.rows + 1 + s, 1.0)])
            lp.add(1e4, [(g.rows + 1 + s, -1.0)])
        lp.add(1e4, [(g.rows, 1.0)])
        return lp

    def _add(self, pattern: Pattern) -> bool:
        """Make `pattern` a column; False when it is one already."""
        if pattern in self.known:
            return False
        self.known.add(pattern)
        self.columns.append(pattern)
        g = self.grid
        entries = [(s, float(n)) for s, n in enumerate(pattern) if n]
        entries += [(g.rows + 1 + s, 1.0) for s, n in enumerate(pattern) if n]
        entries.append((g.rows, 1.0))
        hosts = sum(pattern)
        for j in range(len(self.classes)):
            smaller = self.classes[j + 1] if j + 1 < len(self.classes) else 0
            if hosts > smaller:
                entries.append((2 * g.rows + 1 + j, 1.0))
        self.lp.add(pattern_cost(g, pattern) / self.norm, entries)
        return True

    def run(self, most_nodes: int) -> int:
        """Best-first search; ties to the node made first."""
        proved_leaves: list[int] = []
        heap: list[tuple[int, int, _Node]] = [(0, 0, self.root)]
        made = 0
        for _ in range(most_nodes):
            if not heap or heap[0][0] >= self.incumbent:
                break
            floor, _, node = heapq.heappop(heap)
            proved, solution = self._solve(node, floor)
            split = self._split(node, solution) if solution and proved < self.incumbent else None
            if split is None:
                proved_leaves.append(proved)
            for child in split or ():
                made += 1
                heapq.heappush(heap, (proved, made, child))
        return min([self.incumbent, *proved_leaves, *(floor for floor, _, _ in heap)])

    def _solve(self, node: _Node, floor: int) -> tuple[int, LpSolution | None]:
        """Price columns until none pays. Returns the node's bound and the last LP."""
        for s, (low, high) in enumerate(zip(node.low, node.high, strict=True)):
            self.lp.bound_row(self.grid.rows + 1 + s, float(low), float(high))
        proved = floor
        solution = self.lp.solve()
        for _ in range(ROUNDS):
            if solution is None:
                break
            value, found = self._price(node, solution)
            proved = max(proved, attainable(self.grid, value))
            if proved >= self.incumbent or not any([self._add(p) for p in found]):
                break
            solution = self.lp.solve()
        return proved, solution

    def _price(self, node: _Node, solution: LpSolution) -> tuple[int, list[Pattern]]:
        """The Lagrangian bound at the LP's duals, and one pattern per class that pays."""
        g = self.grid
        scaled = [round(d * self.norm * self.scale) for d in solution.duals]
        slot = np.maximum(0, np.array(scaled[: g.rows], dtype=np.int64))
        kappa = max(0, scaled[g.rows])
        touch = np.array(scaled[g.rows + 1 : 2 * g.rows + 1], dtype=np.int64)
        table = PricingTable(g, self.classes[0], g.step * self.scale, slot, touch)
        table.fill(g.row_weight * self.scale)
        k = np.where(touch > 0, np.array(node.low), np.array(node.high))
        fixed = g.width * int(slot.sum()) + self.zones_min * kappa + int((k * touch).sum())
        per_zone = sum(min(0, int(table.best[c]) - kappa) for c in self.capacities)
        value = -(-(fixed + per_zone) // self.scale) - g.offset
        found = [table.pattern(c) for c in self.classes if int(table.best[c]) < kappa]
        return value, found

    def _split(self, node: _Node, solution: LpSolution) -> tuple[_Node, _Node] | None:
        """Children on the most fractional k_s; None when every k_s is integral."""
        touched = np.zeros(self.grid.rows)
        artificial = len(solution.primal) - len(self.columns)
        for pattern, x in zip(self.columns, solution.primal[artificial:], strict=True):
            if x > SETTLED:
                touched += x * (np.array(pattern) > 0)
        distance = np.abs(touched - np.round(touched))
        s = int(np.argmax(np.round(distance, 6)))
        if distance[s] < 1e-5:
            return None
        low, high = list(node.low), list(node.high)
        high[s] = int(np.floor(touched[s]))
        low[s] = high[s] + 1
        return replace(node, high=tuple(high)), replace(node, low=tuple(low))
