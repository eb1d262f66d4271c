"""The linear and integer programs that placement needs, on OR-Tools.

Integer programs go to CP-SAT by pywraplp, because its model builder pulls in pandas (0.4
to 0.9 s of start-up) and this does not. Linear programs go to CLP (`clp`): GLOP stops
"abnormal" on degenerate masters. Callers take prices from those, never bounds; what CP-SAT
proves, over whole numbers, is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ortools.graph.python import linear_sum_assignment
from ortools.linear_solver import pywraplp

from placement.clp import MORE_COLUMNS, OTHER_BOUNDS, Program
from placement.fabric.tree import Ints
from placement.messages import Message, program

Floats = npt.NDArray[np.float64]
INFINITY = pywraplp.Solver.infinity()
FEW = 64  # variables, among which a search is done before cuts are found
MOST_SUM = 1 << 52  # of a row's terms, for CP-SAT to take it as it is
ARTIFICIAL = 1e3  # price of what keeps a program feasible; columns cost about 1 a row


class LpSolution(NamedTuple):
    """The cost, the dual of each row, and the value of each column."""

    cost: float
    duals: tuple[float, ...]
    columns: Floats


class _Row(NamedTuple):
    """Bounds, its entry in each column, and what its two artificial columns add and take away, at
    their price."""

    low: float
    high: float
    entries: Sequence[float]
    unit: float
    price: float


class ColumnLp:
    """min cost x, low <= A x <= high, x >= 0, growing by columns and by rows.

    Every row has artificial columns at a prohibitive price, so that the program is
    feasible from the start.
    """

    def __init__(self, least: Sequence[float], *, is_equal: bool = False) -> None:
        """Rows of at least so much, or of just so much; more come with `add_row`."""
        self._program = Program()
        self._columns: Ints = np.empty(0, dtype=np.int64)  # without artificial ones
        self._new: list[_Row] = []  # that the program does not have yet
        for low in least:
            self.add_row(low, low if is_equal else INFINITY, [])

    def add_columns(self, costs: Floats, entries: Ints | Floats) -> None:
        """One column for each cost, with its entry in each row. Shape: (columns, rows)."""
        self._add_rows()
        before = self._program.columns
        self._program.add_columns(costs, entries)
        self._columns = np.append(self._columns, np.arange(before, self._program.columns))

    def add_row(
        self,
        low: float,
        high: float,
        entries: Sequence[float],
        unit: float = 1.0,
        price: float = ARTIFICIAL,
    ) -> None:
        """One row with its entry in each column. `unit`: what an artificial column adds, at
        its `price`."""
        self._new.append(_Row(low, high, entries, unit, price))

    def _add_rows(self) -> None:
        """Those that are new, all at once."""
        rows, self._new = self._new, []
        if not rows:
            return
        program = self._program
        artificial = program.columns + 2 * np.arange(len(rows))
        prices = np.repeat(np.array([row.price for row in rows], dtype=np.float64), 2)
        program.add_columns(prices, np.zeros((len(prices), program.rows)))
        entries = np.zeros((len(rows), program.columns))
        entries[:, self._columns] = [row.entries for row in rows]
        unit = np.array([row.unit for row in rows])
        number = np.arange(len(rows))
        entries[number, artificial], entries[number, artificial + 1] = unit, -unit
        low, high = np.array([(row.low, row.high) for row in rows], dtype=np.float64).T.copy()
        program.add_rows(low, high, entries)

    def set_bounds(self, row: int, low: float, high: float) -> None:
        """Other bounds of a row."""
        self._add_rows()
        self._program.set_bounds(row, low, high)

    def cost(self) -> float | None:
        """The least cost after a change of bounds; None when the solver gives up."""
        self._add_rows()
        return self._program.cost if self._program.solve(OTHER_BOUNDS) else None

    def solve(self) -> LpSolution | None:
        """None when the solver gives up; then neither values nor prices can be read."""
        self._add_rows()
        program = self._program
        if not program.solve(MORE_COLUMNS):
            return None
        return LpSolution(
            program.cost, tuple(program.duals.tolist()), program.values[self._columns]
        )


@dataclass(frozen=True, slots=True)
class IntegerSolution:
    """Values of the variables; the cost, which is the least there is if `is_optimal`."""

    cost: int
    values: tuple[int, ...]
    is_optimal: bool


class IntegerProgram:
    """min cost x over whole x within ranges of rows, by CP-SAT.

    One worker, fixed seed, deterministic time: the same on any machine. CP-SAT scales a row or
    an objective whose sums may exceed 53 bits, and rounds it: then nothing counts as proved.
    """

    def __init__(self) -> None:
        self._most: list[int] = []  # of each variable
        self._costs: list[int] = []
        self._bounds: list[tuple[float, float]] = []  # of each row
        self._factors: list[tuple[list[int], list[int]]] = []  # after their variables
        self._hint: list[float] = []
        self._is_exact = True  # as far as rows go
        self._has_room = True  # in every row for some whole multiple of its factors
        self.is_impossible = False  # proved by the last solve

    def variable(self, most: int, cost: int) -> int:
        """Number of a new variable in [0, most]."""
        self._most.append(most)
        self._costs.append(cost)
        return len(self._most) - 1

    def row(self, low: float, high: float, entries: Sequence[tuple[int, int]]) -> None:
        """low <= sum of (variable, factor) <= high."""
        unit = gcd(*(factor for _, factor in entries)) or 1
        low, high = _up(low, unit), -_up(-high, unit)
        if low > high:
            self._has_room = False
            return
        self._bounds.append((low, high))
        self._factors.append(([x for x, _ in entries], [factor // unit for _, factor in entries]))
        sums = sum(abs(factor) * self._most[variable] for variable, factor in entries) // unit
        self._is_exact = self._is_exact and sums < MOST_SUM

    def hint(self, values: Sequence[int]) -> None:
        """A solution to begin with, by variable."""
        self._hint = [float(value) for value in values]

    def solve(self, work: float, more: float = 0.0) -> IntegerSolution | None:
        """None when nothing was found in the deterministic time `work`, and `more` after it.

        Half of the programs are settled in a fraction of the time by the search alone, others
        by presolve alone: so there is none in the first try, but in the one with `more`, which
        goes on from the best found.
        """
        if not self._has_room:
            self.is_impossible = True
            return None
        found = self._tried(work, is_presolved=False)
        if not more or self.is_impossible or (found is not None and found.is_optimal):
            return found
        if found is not None:
            self.hint(found.values)
        again = self._tried(more, is_presolved=True)
        if found is None or (again is not None and again.cost <= found.cost):
            return again
        return found

    def _tried(self, work: float, *, is_presolved: bool) -> IntegerSolution | None:
        solver, unit = pywraplp.Solver.CreateSolver("SAT"), gcd(*self._costs) or 1
        solver.LoadModelFromProto(self._message(unit))
        variables = solver.variables()
        if self._hint:
            solver.SetHint(variables, self._hint)
        parameters = (
            f"num_workers:1 random_seed:7 max_deterministic_time:{work}"
            f" cp_model_presolve:{str(is_presolved).lower()} catch_sigint_signal:false"
        )
        if not is_presolved and len(variables) <= FEW:
            parameters += " cut_level:0"
        solver.SetSolverSpecificParametersAsString(parameters)
        status = solver.Solve()
        self.is_impossible = self._is_exact and status == pywraplp.Solver.INFEASIBLE
        if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
            return None
        values = tuple(round(v.solution_value()) for v in variables)
        cost = sum(map(mul, self._costs, values))
        sums = sum(map(mul, map(abs, self._costs), self._most)) // unit
        is_exact = self._is_exact and sums < MOST_SUM
        return IntegerSolution(cost, values, is_exact and status == pywraplp.Solver.OPTIMAL)

    def _message(self, unit: int) -> Message:
        """The program, with costs in units."""
        entries = np.zeros((len(self._bounds), len(self._most)))
        for row, (variables, factors) in zip(entries, self._factors, strict=True):
            row[variables] = factors
        costs = np.array([cost // unit for cost in self._costs], dtype=np.float64)
        return program(costs, self._most, self._bounds, entries)


def _up(bound: float, unit: int) -> float:
    """The least multiple of `unit` from `bound` on, in units."""
    return bound if abs(bound) == INFINITY else -(-ceil(bound) // unit)


def assign(cost: Ints) -> Ints | None:
    """The column of each row, no column twice, at least total cost.

    Shape: (rows, columns), rows <= columns. None when the costs are too large to be
    summed in 64 bits. Cost: 3 ms for 192 x 192.
    """
    rows, columns = cost.shape
    padded = np.zeros((columns, columns), dtype=np.int64)
    padded[:rows] = cost
    row, column = np.divmod(np.arange(columns * columns), columns)
    solver = linear_sum_assignment.SimpleLinearSumAssignment()
    solver.add_arcs_with_cost(row.astype(np.int32), column.astype(np.int32), padded.ravel())
    if solver.solve() != solver.OPTIMAL:
        return None
    return np.array([solver.right_mate(i) for i in range(rows)], dtype=np.int64)
