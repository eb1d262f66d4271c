"""One node of a proof: its linear program, the patterns that pay, and what it is split into.

See docs/engine.md, "The proof".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import floor

import numpy as np

from muster.structs import replace, struct
from placement.bound.pricing import Pricer, Prices
from placement.bound.rounding import attainable, stairs
from placement.fabric.tree import Floats, Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import ZonePattern
from placement.proof.branching import split
from placement.proof.master import WHOLE_GANG, Counter, Master, Pool, Range
from placement.search.graph_slicing import SMALL
from placement.solver import ARTIFICIAL, LpSolution

VIOLATED = 0.05  # zones; a cut violated by less is not worth a row
ROUNDS = 60  # pricing rounds per node; prices have settled long before
FEW_ROUNDS = 6
QUICK_STATES = 3_000_000  # of the pricing table: some 30 ms a round
# What makes a round of about 10 ms: states priced once, or entries of a linear program solved.
STATES_A_ROUND = 1_000_000
ENTRIES_A_ROUND = 60_000
LEAST_WORK = 0.25  # of a round: what even the smallest case needs to price and solve
CLASSES = 8  # capacity classes that get a pattern each round
COLUMNS = 160  # columns that a node starts with
HANDFUL = 24  # columns taken from the pool between two pricing rounds
LEAST_GAP = 1e-6  # of a program's cost: a node that is open for rounding alone
PROBES = 4  # programs whose work it takes to find out on what to split


class Duals:
    """Rounds duals for patterns of up to `largest` hosts. Any prices make a valid bound; those
    above `highest` would overflow a pattern's sum."""

    def __init__(self, grid: BlockGrid, norm: float, largest: int) -> None:
        """`norm`: costs of the master are in these."""
        self._grid, self._norm, self._largest = grid, norm, largest
        self._highest = (1 << 57) // (largest + 64 * grid.rows)
        # How many price units make one cost unit: as fine as int64 has room for, with the
        # prices of the master's artificial columns still below `highest`.
        self.scale = max(1, min(1 << 24, int(self._highest / (2 * ARTIFICIAL * norm))))
        self._step = grid.step * self.scale

    def prices(self, master: Master, solution: LpSolution) -> Prices:
        g, highest = self._grid, self._highest
        scaled = np.array(solution.duals) * self._norm * self.scale
        duals = np.rint(np.clip(scaled, -highest, highest)).astype(np.int64)
        slot: Ints = np.maximum(0, duals[: g.rows])
        cost = self._step - slot[:, None] * np.arange(g.width + 1, dtype=np.int64)
        sizes = np.zeros(self._largest + 1, np.int64)
        constant = g.width * int(slot.sum())
        price = duals[g.rows :]
        for k, (counter, (low, high)) in enumerate(master.ranges.items()):
            if not price[k]:
                continue
            values = counter.values(len(sizes) if counter.row == WHOLE_GANG else g.width + 1)
            most = highest // max(1, int(values[-1]))
            price[k] = each = min(max(int(price[k]), -most), most)
            constant += each * (low if each > 0 else high)
            if counter.row == WHOLE_GANG:
                sizes += each * values
            else:
                cost[counter.row] -= each * values
        return Prices(cost, sizes, constant, slot, price)


class Stairs:
    """Staircase functions for zones that cover `target` together, each with at most `most`."""

    def __init__(self, target: int, most: int) -> None:
        self._rise, self._run, self._whole, self._top = stairs(target, most)
        self._most = most

    @cached_property
    def _climbed(self) -> Floats:
        """Steps that n = 0 .. most climb on each. Shape: (most + 1, staircases)."""
        steps, rest = np.divmod(np.arange(self._most + 1)[:, None] * self._rise, self._run)
        return np.asarray(steps + np.minimum(rest / self._top, 1.0))

    def fallen_short(self, row: int, held: Ints, share: Floats, zones: int) -> dict[Counter, Range]:
        """Return the staircase inequality that is violated most, with its range; {} for none.

        `held`: of `row` by each pattern, of which there is so much `share`.
        """
        if not len(self._rise):
            return {}
        missing = self._whole + 1 - share @ self._climbed[held]
        worst = int(np.argmax(missing))
        if missing[worst] <= VIOLATED:
            return {}
        rise, run, part = int(self._rise[worst]), int(self._run[worst]), int(self._top[worst])
        counter = Counter(row, rise=rise, run=run, top=part)
        climbed = int(counter.values(self._most + 1)[-1])
        return {counter: (part * (int(self._whole[worst]) + 1), climbed * zones)}


@struct(frozen=True, slots=True)
class Witness:
    """Whole prices at which a bound holds: of a slot of each row, and of counters."""

    of_slot: tuple[int, ...]
    of_counter: tuple[tuple[Counter, int], ...]


@struct(frozen=True, slots=True)
class Node:
    """A node of the tree: ranges of the counters that are bounded here, and the parent's last
    prices."""

    ranges: Mapping[Counter, Range]
    slot_price: tuple[float, ...]
    price: Mapping[Counter, float]


class Case:
    """The grid, capacities and limits that all nodes of a proof share."""

    def __init__(self, grid: BlockGrid, capacities: Sequence[int], lot: int) -> None:
        """As of a `branch_and_price.Prover`."""
        self.grid, self.lot = grid, lot
        self.capacities = sorted((c for c in capacities if c), reverse=True)
        self.classes = sorted(set(self.capacities), reverse=True)
        steps = max((len(slopes) for slopes in grid.slopes), default=1)
        self.states = grid.states(self.capacities) * steps
        # Large tables get fewer rounds a node: a round is as dear as many of others.
        self.rounds = max(FEW_ROUNDS, min(ROUNDS, ROUNDS * QUICK_STATES // self.states))
        self.norm = float(max(int(grid.step.max()), grid.row_weight, 1))
        self.row_stairs = Stairs(grid.width, self.classes[0])
        self.gang_stairs = Stairs(grid.size, self.classes[0])


class PricingTables:
    """Tables in which patterns are priced, for one node at a time."""

    def __init__(self, case: Case) -> None:
        grid, largest = case.grid, case.classes[0]
        self.duals = Duals(grid, case.norm, largest)
        self.scale = self.duals.scale
        slopes = [tuple((w * self.scale, many) for w, many in each) for each in grid.slopes]
        floors = [floor * self.scale for floor in grid.floors]
        self.pricer = Pricer(grid.rows, grid.width, largest, slopes, floors, case.lot)
        self._capacities = case.capacities
        self.priced = 0  # the Lagrangian bound at the last prices, in their unit

    def fill(self, prices: Prices) -> None:
        """Price all patterns at these prices, and compute the bound."""
        self.pricer.price(prices.slots, prices.sizes)
        per_zone = sum(min(0, int(self.pricer.best[c])) for c in self._capacities)
        self.priced = prices.constant + per_zone


class Exploration:
    """A node being explored, with the patterns and the cuts that were known when that began; and
    its result.

    `proved`: a bound of the node. `witness`: prices at which it holds, if it is above what was
    known before. `children`: what is left of it, none if it is closed. `fresh`: patterns that paid;
    `in_use`: those of the last solution. `cuts`: rows for any node, those known before among them.
    `cover`: patterns of a whole solution, if there is one. `rounds`: of work. `last`: the last
    prices.
    """

    def __init__(
        self,
        case: Case,
        tables: PricingTables,
        pool: Pool,
        cuts: Mapping[Counter, Range],
        node: Node,
        known: int,
        incumbent: int,
    ) -> None:
        """`pool`: where patterns are looked for that pay here. `known`: a bound of the node.
        `incumbent`: what costs so much is of no interest."""
        self._case, self._tables, self._pool, self.node = case, tables, pool, node
        self.witness: Witness | None = None
        self.cuts = dict(cuts)
        self.proved, self.incumbent = known, incumbent
        self.children: list[Node] = []
        self.fresh: list[ZonePattern] = []
        self.in_use: list[ZonePattern] = []
        self.cover: list[ZonePattern] = []
        self.rounds = 0.0
        self.last: tuple[tuple[float, ...], Mapping[Counter, float]] | None = None

    def explore(self, most: float) -> Exploration:
        """Solve the node's linear program, and split the node unless that took `most` rounds.
        Return self."""
        node, case = self.node, self._case
        ranges = {**node.ranges, **self.cuts}
        master = Master(case.grid, ranges, case.norm)
        master.add(self._pool.cheapest(node.slot_price, node.price, COLUMNS, np.inf))
        solution = self._generated(master)
        if solution is None:
            return self
        self.in_use = [tuple(p) for p in master.support(solution)[0].tolist()]
        if self.rounds < most:
            self._split(master, solution)
        else:
            self.children = [node]
        return self

    def _generated(self, master: Master) -> LpSolution | None:
        """The master with all patterns and cuts that it takes; None if it gives up, or the node
        is closed."""
        case = self._case
        solution = self._solved(master)
        for _ in range(case.rounds):
            if solution is None:
                break
            self.rounds += LEAST_WORK + case.states / STATES_A_ROUND
            patterns = self._price(master, solution)
            if self.proved >= self.incumbent:
                return None
            # What is violated is read off the solution before there are more columns.
            is_over = self.proved >= self._ceiling(solution)
            cuts = self._violated(master, solution) if is_over else {}
            fresh = master.add(patterns)
            self.fresh += fresh
            if not is_over and not fresh:
                is_over, cuts = True, self._violated(master, solution)
            if is_over and not cuts:
                break
            if cuts:
                master.open(cuts)
                self.cuts |= cuts
            solution = self._solved(master)
        return solution

    def _solved(self, master: Master) -> LpSolution | None:
        """The master over its columns and those of the pool that pay: cheaper than a
        pricing round, and most of what one would find has been met before."""
        solution = self._solve(master)
        while solution is not None:
            self.last = master.prices(solution)
            if not master.add(self._pool.cheapest(*self.last, HANDFUL, -1e-7)):
                break
            solution = self._solve(master)
        return solution

    def _solve(self, master: Master) -> LpSolution | None:
        self.rounds += master.entries / ENTRIES_A_ROUND
        return master.solve()

    def _ceiling(self, solution: LpSolution) -> int:
        """Return the master's own cost, which the node's bound cannot exceed before it is
        rounded."""
        return floor(solution.cost * self._case.norm + 1e-6) - self._case.grid.offset

    def _price(self, master: Master, solution: LpSolution) -> list[ZonePattern]:
        """Patterns that pay at the LP's duals; the Lagrangian bound there is proved."""
        case, tables = self._case, self._tables
        prices = tables.duals.prices(master, solution)
        tables.fill(prices)
        value = -(-tables.priced // tables.scale) - case.grid.offset
        if value > self.proved and (proved := attainable(case.grid, value)) > self.proved:
            counters = zip(master.ranges, prices.of_counter.tolist(), strict=True)
            paid = tuple((counter, price) for counter, price in counters if price)
            self.proved, self.witness = proved, Witness(tuple(prices.of_slot.tolist()), paid)
        paying = [c for c in case.classes if tables.pricer.best[c] < 0]
        chosen = paying[:: max(1, len(paying) // CLASSES)]
        patterns = tables.pricer.patterns(chosen)
        return patterns + [pattern[::-1] for pattern in patterns]  # rows are alike reversed

    def _violated(self, master: Master, solution: LpSolution) -> dict[Counter, Range]:
        """The most violated staircase of each row and of the gang."""
        case = self._case
        patterns, share = master.support(solution)
        ranges: dict[Counter, Range] = {}
        zones = len(case.capacities)
        for s in range(case.grid.rows):
            fallen = case.row_stairs.fallen_short(s, patterns[:, s], share, zones)
            ranges |= {replace(c, row=r): b for c, b in fallen.items() for r in self._alike(s)}
        held = patterns.sum(axis=1)
        ranges |= case.gang_stairs.fallen_short(WHOLE_GANG, held, share, zones)
        return {counter: ranges[counter] for counter in ranges if counter not in master.ranges}

    def _alike(self, row: int) -> Iterable[int]:
        """Rows that get the cuts of this one. In a small gang all do, for the next solution
        would break them there, and a round takes longer than a few rows."""
        grid = self._case.grid
        return range(grid.rows) if grid.size <= SMALL else (row,)

    def _split(self, master: Master, solution: LpSolution) -> None:
        """Children on a fractional counter; none when all are integral."""
        case, node = self._case, self.node
        slot_price, price = master.prices(solution)
        norm, zones = case.norm, len(case.capacities)
        gap = max(LEAST_GAP, (self.incumbent + case.grid.offset) / norm - solution.cost)
        self.rounds += PROBES * master.entries / ENTRIES_A_ROUND
        children = split(master, solution, node.ranges, zones, gap)
        if children is None:  # as a rule, patterns are whole as well
            patterns, _ = master.support(solution)
            self.cover = [tuple(p) for p in patterns.tolist()]
            return
        self.children = [
            Node({**node.ranges, counter: half}, slot_price, price)
            for counter, half in children
            if half[0] <= half[1]
        ]
