"""What no placement can beat: column generation and branching on counts of zones.

Theory of operation. By `grid`, the doubled cut is at least a sum over zones of a cost
of the zone's pattern n = (n_1 .. n_S), less a constant. The patterns of all zones
cover every row: sum over zones of n_s >= width. Beside the covering rows stand
*counters*: how many zones have a pattern of at least t hosts, or at least t slots of
row s. Capacities are counters (at most two zones have more than 350 hosts), so is the
least number of zones, and so is every branching decision. Cuts are counters as well: what
zones hold of a row, or of the gang, counts on a staircase (`stairs`).

Relaxing the covering rows with prices u >= 0 and the counters with prices v leaves one
shortest path per zone (`pricing`), hence for *any* prices

    2 cut >= width sum_s u_s + sum_counters (v low, or v high where v < 0)
             + sum over zones min(0, cheapest pattern at these prices) - offset

This is the Dantzig-Wolfe bound when the prices are the duals of the master LP over
columns. The LP is solved in floats; its duals are rounded to integers first and the
right-hand side is then computed in int64, so the bound holds whatever the LP solver
did. It is rounded up to what the weights of whole edges can add up to.

Rows are covered at least once there, which keeps prices of one sign. Where all counts of a
node are whole and some rows are covered more than once, it is solved anew with equal rows.

The root is weak where a counter is fractional, so nodes split on one: at most its
floor, or at least its ceiling (design: placement, 5, branches on k_s, the counters
with t = 1). The bound of the tree is the least over its open leaves. A node in which few
patterns are within the gap is not split but solved, as one integer program (`columns`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor

import numpy as np

from placement.branching import children, parted_alone, rows_alike, split
from placement.columns import least_cover
from placement.cuts import VIOLATED, Stairs, unbalanced
from placement.duals import Duals
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.groups import Parting
from placement.master import (
    WHOLE_GANG,
    Counter,
    Master,
    Pattern,
    Pool,
    Range,
    rectangles,
)
from placement.milp import LpSolution
from placement.pricing import Pricer, Prices
from placement.rounding import attainable, fewest
from placement.zigzag import Ends

ROUNDS = 60  # pricing rounds per node; prices have settled long before
FEW_ROUNDS = 6
QUICK_STATES = 3_000_000  # of the pricing table: some 30 ms a round
# What makes a round of about 10 ms: states priced once, or entries of a linear program solved.
STATES_A_ROUND = 1_000_000
ENTRIES_A_ROUND = 60_000
LEAST_WORK = 0.25  # of a round: what even the smallest case needs to price and solve
CLASSES = 8  # capacity classes that get a pattern each round
MOST_COLUMNS, MOST_AT_ROOT = 400, 500  # of an integer program that settles a node
FEW_COLUMNS = 250  # of one that only looks for what is much better than the incumbent
MORE = 0.2  # deterministic time for the first one that takes longer: half a second
ROUNDS_A_COLUMN = 0.025  # of work: what the program takes for each of them
MOST_SLACK = 1 << 59  # price units, as far as tables go; then nothing is near the incumbent
HALVINGS = 5  # of the gap, until so few are left
SMALL = 160  # columns that a node starts with
FEW_BLOCKS = 64  # of a small gang
HANDFUL = 24  # columns taken from the pool between two pricing rounds
SHORTCUTS = 12  # times in a row
PROBES = 4  # programs whose work it takes to find out on what to split
LEAST_GAP = 1e-6  # in the master's units


@dataclass(frozen=True, slots=True)
class _Node:
    """Ranges of the counters that are bounded here, and the parent's last prices. `is_equal`:
    rows are covered once."""

    ranges: Mapping[Counter, Range]
    slot_price: tuple[float, ...]
    price: Mapping[Counter, float]
    is_equal: bool = False


class Prover:
    """Proves lower bounds on the doubled cut of a grid over zones of given capacities."""

    def __init__(
        self,
        grid: BlockGrid,
        capacities: Sequence[int],
        seeds: Iterable[Pattern],
        lot: int = 1,
        odd: Sequence[int] = (),
        is_exact: bool = True,
        ends: Sequence[Ends] = (),
        parting: Parting | None = None,
    ) -> None:
        """`seeds`: patterns to start from, say those of a good layout. `lot`: slots come in
        lots, whole hosts of several slots, say; capacities are multiples of it. `odd`: how
        many zones at most hold slots of each row that are not whole lots. `is_exact`: whether
        nodes are settled by integer programs where these are small. `ends`: what zones of one
        row pay together. `parting`: what tells zones that part a group.
        Large tables get fewer rounds a node: a round is as dear as many of others."""
        self.grid = grid
        self.capacities = sorted((c for c in capacities if c), reverse=True)
        self.classes = sorted(set(self.capacities), reverse=True)
        steps = max((len(slopes) for slopes in grid.slopes), default=1)
        states = self.states = grid.rows * (grid.width + 1) * self.classes[0] * steps
        self.rounds_a_node = max(FEW_ROUNDS, min(ROUNDS, ROUNDS * QUICK_STATES // states))
        self.norm = float(max(int(grid.step.max()), grid.row_weight, 1))
        self.duals = Duals(grid, self.norm, self.classes[0])
        self.scale = self.duals.scale
        slopes = [tuple((w * self.scale, many) for w, many in each) for each in grid.slopes]
        floors = [floor * self.scale for floor in grid.floors]
        self.pricer = Pricer(grid.rows, grid.width, self.classes[0], slopes, floors, lot)
        self.lot, self.odd, self.is_exact, self.ends = lot, odd, is_exact, ends
        self.parting = parting
        self.mirrored = rows_alike(grid, odd, len(self.capacities))
        self.is_patient = True  # until a node's program was not settled in all its time
        self.cover: list[Pattern] = []  # of least cost in some node
        self.pool = Pool(grid, self.norm)
        self.pool.add(seeds)
        spaced = self.classes[:: max(1, len(self.classes) // 4)]
        self.pool.add(rectangles(grid, spaced, lot))
        self.cuts: dict[Counter, Range] = {}
        self._row_stairs = Stairs(grid.width, self.classes[0])
        self._gang_stairs = Stairs(grid.size, self.classes[0])
        self.in_use: dict[Pattern, None] = {}  # in the last solution of some node
        self.heap: list[tuple[int, int, _Node]] = []
        self.leaves: list[int] = []  # bounds of closed nodes
        self.made = 0
        self.incumbent = 0
        self.rounds_left, self.is_last = 0.0, False
        self.root_prices: Prices | None = None  # at which it was left
        self.priced = 0  # the Lagrangian bound at the last prices, in their unit
        self.pricing = states / STATES_A_ROUND
        self.last_prices: tuple[tuple[float, ...], Mapping[Counter, float]] = (
            (0.0,) * grid.rows,
            {},
        )

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

    def prove(self, incumbent: int, rounds: int, *, is_last: bool = False) -> int:
        """Spend about `rounds` more rounds; the best bound so far, at most `incumbent`.

        A round is an amount of work; large tables and programs take several at once. `is_last`:
        nobody asks for more, and the last node is not split.

        Best-first search; ties to the node made first. A node once begun is finished:
        half of its columns prove next to nothing.
        """
        is_better = incumbent < self.incumbent
        self.incumbent = min([incumbent, *self.leaves])
        self.rounds_left, self.is_last = rounds, is_last
        again = self._again() if is_better and self.heap else 0
        if again >= self.incumbent:
            return min(again, incumbent)
        if not self.made:
            self.made = 1
            self.heap.append((0, 0, self._root()))
        while self.heap and self.heap[0][0] < self.incumbent and self.rounds_left > 0:
            known, _, node = heapq.heappop(self.heap)
            proved, children = self._explore(node, known)
            if not children:
                self.leaves.append(proved)
            for child in children:
                self.made += 1
                heapq.heappush(self.heap, (proved, self.made, child))
        open_ = (known for known, _, _ in self.heap)
        return max(again, min([incumbent, *self.leaves, *open_]))

    def good_patterns(self, most: int) -> list[Pattern]:
        """What a whole cover is made of: the patterns in use where nodes ended, the last
        node first, then the cheapest at the last prices."""
        cheapest = self.pool.cheapest(*self.last_prices, most, np.inf)
        return list(dict.fromkeys([*reversed(self.in_use), *cheapest]))[:most]

    def _explore(self, node: _Node, known: int) -> tuple[int, list[_Node]]:
        """The node's bound, and its children unless it is closed or integral."""
        master = Master(self.grid, {**node.ranges, **self.cuts}, self.norm, is_equal=node.is_equal)
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
            # What is violated is read off the solution before there are more columns.
            is_over = proved >= self._ceiling(solution)
            cuts = self._violated(master, solution) if is_over else {}
            fresh = master.add(found)
            self.pool.add(fresh)
            if not is_over and not fresh:
                is_over, cuts = True, self._violated(master, solution)
            if is_over and not cuts:
                break
            if cuts:
                master.open(cuts)
                self.cuts |= cuts
            solution = self._solved(master)
        if solution is None:
            return proved, []
        self._prefer(tuple(p) for p in master.support(solution)[0].tolist())
        if self.is_exact:
            if self.made == 1:
                self.root_prices = self._prices
            settled, is_all = self._settled(node, self.made == 1)
            proved = max(proved, settled)
            if is_all or proved >= self.incumbent:
                return proved, []
        is_over = self.is_last and self.rounds_left <= 0
        return proved, [node] if is_over else self._split(node, master, solution)

    def _settled(self, node: _Node, is_root: bool) -> tuple[int, bool]:
        """A bound of a node in which few patterns can be part of anything better than the
        incumbent, 0 if it is not known, and whether that is all there is to know of it.

        At the root, where they are many, only covers that cost less are looked for.
        """
        slack = (self.incumbent + self.grid.offset) * self.scale - self.priced - 1
        if slack > MOST_SLACK:
            return 0, False
        patterns = self._promising(slack, MOST_AT_ROOT if is_root else MOST_COLUMNS)
        below = self.incumbent
        if patterns is None and is_root:
            low, high = 0, slack
            for _ in range(HALVINGS):
                half = (low + high) // 2
                fewer = self._promising(half, FEW_COLUMNS)
                low, high = (low, half) if fewer is None else (half, high)
                patterns = patterns if fewer is None else fewer
            below = (low + self.priced + 1) // self.scale - self.grid.offset
        if patterns is None:
            return 0, False
        cost = self.grid.step[patterns].sum(axis=1) + self.grid.between(patterns)
        self.rounds_left -= len(patterns) * ROUNDS_A_COLUMN
        most = below + self.grid.offset
        is_all = below == self.incumbent
        more = MORE if is_all and self.is_patient else 0.0
        ranges = {**node.ranges, **{c: r for c, r in self.cuts.items() if c.turn}}
        least, cover = least_cover(patterns, cost, self.grid.width, ranges, most, more)
        self.cover = cover or self.cover
        if least is None:
            self.is_patient = self.is_patient and not is_all
            return 0, False
        zones = len(self.capacities)
        if cover and parted_alone(
            np.array(cover), np.ones(len(cover)), ranges, zones, self.parting
        ):
            return least - self.grid.offset, False
        # The bound of the tree is no more than that of this leaf.
        self.incumbent = min(self.incumbent, least - self.grid.offset) if cover else self.incumbent
        return least - self.grid.offset, is_all or bool(cover)

    def _again(self) -> int:
        """The root with a better incumbent."""
        if self.root_prices is None:
            return 0
        self._fill(self.root_prices)
        return self._settled(self._root(), True)[0]

    def _promising(self, slack: int, most: int) -> Ints | None:
        """Patterns that cost up to so much more than the cheapest of their zone; None if there
        are more than `most`."""
        sizes = np.arange(self.classes[0] + 1)
        fitting = np.array(self.classes[::-1])[np.searchsorted(self.classes[::-1], sizes)]
        return self.pricer.within(np.minimum(0, self.pricer.best[fitting]) + slack, most)

    def _prefer(self, patterns: Iterable[Pattern]) -> None:
        for pattern in patterns:
            self.in_use.pop(pattern, None)
            self.in_use[pattern] = None

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
        """The Lagrangian bound at the LP's duals, and patterns that pay: for a small gang all of
        them, if they are not many."""
        self._prices = self.duals.prices(master, solution)
        self._fill(self._prices)
        value = -(-self.priced // self.scale) - self.grid.offset
        paying = [c for c in self.classes if self.pricer.best[c] < 0]
        chosen = paying[:: max(1, len(paying) // CLASSES)]
        found = self.pricer.patterns(chosen)
        if found and self.grid.size <= FEW_BLOCKS:
            every = self.pricer.within(np.full(self.classes[0] + 1, -1), SMALL)
            found += [] if every is None else map(tuple, every.tolist())
        return value, found + [pattern[::-1] for pattern in found]  # rows are alike reversed

    def _fill(self, prices: Prices) -> None:
        """The table at these prices, and the bound."""
        self.pricer.price(*prices[:3])
        per_zone = sum(min(0, int(self.pricer.best[c])) for c in self.capacities)
        self.priced = sum(prices.constant) + per_zone

    def _violated(self, master: Master, solution: LpSolution) -> dict[Counter, Range]:
        """The most violated staircase of each row and of the gang, and a count of odd slots
        where too many zones hold some."""
        patterns, share = master.support(solution)
        found: dict[Counter, Range] = {}
        zones = len(self.capacities)
        for s in range(self.grid.rows):
            fallen = self._row_stairs.fallen_short(s, patterns[:, s], share, zones)
            found |= {replace(c, row=r): b for c, b in fallen.items() for r in self._alike(s)}
            if self.ends and not any(c.turn and c.row == s for c in self.cuts):
                found |= unbalanced(s, patterns[:, s], share, self.ends)
            if self.odd and share @ (patterns[:, s] % self.lot > 0) > self.odd[s] + VIOLATED:
                found[Counter(s, lot=self.lot)] = (0, self.odd[s])
        held = patterns.sum(axis=1)
        found |= self._gang_stairs.fallen_short(WHOLE_GANG, held, share, zones)
        return {counter: found[counter] for counter in found if counter not in master.ranges}

    def _alike(self, row: int) -> Iterable[int]:
        """Rows that get the cuts of this one. In a small gang all do, for the next solution
        would break them there, and a round takes longer than a few rows."""
        return range(self.grid.rows) if self.grid.size <= FEW_BLOCKS else (row,)

    def _split(self, node: _Node, master: Master, solution: LpSolution) -> list[_Node]:
        """Children on a fractional counter; none when all are integral."""
        slot_price, price = master.prices(solution)
        gap = max(LEAST_GAP, (self.incumbent + self.grid.offset) / self.norm - solution.cost)
        self.rounds_left -= PROBES * master.entries / ENTRIES_A_ROUND
        found = split(master, solution, node.ranges, len(self.capacities), gap, self.parting)
        if found is None:  # as a rule, patterns are whole as well
            patterns, share = master.support(solution)
            self.cover = [tuple(p) for p in patterns.tolist()]
            is_over = bool(np.any(share @ patterns > self.grid.width + VIOLATED))
            is_new = is_over and not node.is_equal
            return [_Node(node.ranges, slot_price, price, is_equal=True)] if is_new else []
        ranges = children(node.ranges, found, self.mirrored)
        return [_Node(each, slot_price, price, node.is_equal) for each in ranges]
