"""Linear programs on HiGHS, integer programs and assignments on OR-Tools, which no other file
imports.

A master program of column generation grows by columns and by rows, so the solver keeps it, and
the simplex method goes on from the last basis. Callers take prices from linear programs, and
layouts from integer programs, never bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from highspy import Highs, HighsModelStatus
from ortools.graph.python import linear_sum_assignment

# What `cp_model` is built on. That one imports pandas, which takes 0.3 s or more.
from ortools.sat.python import cp_model_helper as cp_sat

from placement.fabric.tree import Floats, Ints

ARTIFICIAL: Final = 1e3  # price of what keeps a program feasible; columns cost about 1 a row
LP_OPTIONS: Final = {
    "output_flag": False,
    "threads": 1,
    "solver": "simplex",
    "presolve": "off",  # or the last basis would be lost
    "simplex_strategy": 0,  # primal while the basis is feasible (new columns), else dual (bounds)
    "simplex_scale_strategy": 4,  # by largest entries; the default goes round in circles at times
}
MOST_STEPS: Final = 10  # of the simplex method for each row and column; one or fewer as a rule
INFINITY: Final = (1 << 63) - 1  # bound of an integer program's row that has none
FEW: Final = 64  # variables, among which a search is over before cuts are found


class LpSolution(NamedTuple):
    """The cost, the dual of each row, and the value of each column."""

    cost: float
    duals: tuple[float, ...]
    columns: Floats


class ColumnLp:
    """min cost x, low <= A x <= high, x >= 0, growing by columns and by rows.

    Every row has two artificial columns, which add to it and take away from it at a prohibitive
    price, so that the program is feasible from the start.
    """

    def __init__(self) -> None:
        self._highs = Highs()
        for option, value in LP_OPTIONS.items():
            self._highs.setOptionValue(option, value)
        self._columns: Ints = np.empty(0, dtype=np.int64)  # without artificial ones

    def add_columns(self, costs: Floats, entries: Ints | Floats) -> None:
        """One column for each cost, with its entry in each row. Shape: (columns, rows)."""
        column, row = np.nonzero(entries)
        first = self._highs.getNumCol()
        self._add_columns(costs, column, row, entries[column, row])
        self._columns = np.append(self._columns, np.arange(first, first + len(costs)))

    def add_rows(
        self,
        low: Ints | Floats,
        high: Ints | Floats,
        entries: Ints | Floats | None = None,
        unit: Ints | float = 1,
    ) -> None:
        """Rows with these bounds, and an entry in each column; none by default. `unit`: what an
        artificial column adds. Shapes: (rows,), of entries (rows, columns)."""
        first, many = self._highs.getNumRow(), len(low)
        if entries is None:
            entries = np.zeros((many, len(self._columns)))
        row, column = np.nonzero(entries)
        vectors = _vectors(many, row, self._columns[column], entries[row, column])
        self._highs.addRows(many, low, high, *vectors)
        units = np.multiply.outer(np.broadcast_to(unit, many), [1, -1]).ravel()
        prices = np.full(2 * many, ARTIFICIAL)
        own = np.repeat(np.arange(first, first + many), 2)
        self._add_columns(prices, np.arange(2 * many), own, units)

    def _add_columns(self, costs: Floats, column: Ints, row: Ints, values: Ints | Floats) -> None:
        many = len(costs)
        at_least, at_most = np.zeros(many), np.full(many, np.inf)
        vectors = _vectors(many, column, row, values)
        self._highs.addCols(many, costs, at_least, at_most, *vectors)

    def set_bounds(self, row: int, low: float, high: float) -> None:
        """Other bounds of a row."""
        self._highs.changeRowBounds(row, low, high)

    def cost(self) -> float | None:
        """The least cost; None when the solver gives up, from the first basis as well."""
        if not self._is_solved():
            self._highs.clearSolver()
            if not self._is_solved():
                return None
        return float(self._highs.getObjectiveValue())

    def _is_solved(self) -> bool:
        size = self._highs.getNumRow() + self._highs.getNumCol()
        self._highs.setOptionValue("simplex_iteration_limit", MOST_STEPS * size)
        self._highs.run()
        return bool(self._highs.getModelStatus() == HighsModelStatus.kOptimal)

    def solve(self) -> LpSolution | None:
        """The same with the dual of each row and the value of each column."""
        cost = self.cost()
        if cost is None:
            return None
        solution = self._highs.getSolution()
        values = np.array(solution.col_value)[self._columns]
        return LpSolution(cost, tuple(solution.row_dual), values)


def _vectors(
    many: int, vector: Ints, place: Ints, values: Ints | Floats
) -> tuple[int, Ints, Ints, Ints | Floats]:
    """Sparse rows or columns as HiGHS takes them: how many values there are, where each vector
    begins, and the values with their places. `vector`: of each value, ascending."""
    return len(values), np.searchsorted(vector, np.arange(many)), place, values


class IntegerProgram:
    """min cost x over whole x within ranges of rows, by CP-SAT.

    One worker, fixed seed, deterministic time: the same on any machine.
    """

    def __init__(self) -> None:
        self._model = cp_sat.CpModelProto()

    def variable(self, most: int, cost: int) -> int:
        """Number of a new variable in [0, most]."""
        number = len(self._model.variables)
        self._model.variables.add().domain.extend([0, most])
        self._model.objective.vars.append(number)
        self._model.objective.coeffs.append(cost)
        return number

    def row(self, low: int, high: int, entries: Sequence[tuple[int, int]]) -> None:
        """low <= sum of (variable, factor) <= high."""
        row = self._model.constraints.add().linear
        row.vars.extend([variable for variable, _ in entries])
        row.coeffs.extend([factor for _, factor in entries])
        row.domain.extend([low, high])

    def hint(self, values: Sequence[int]) -> None:
        """A solution to begin with, by variable."""
        self._model.solution_hint.vars.extend(range(len(values)))
        self._model.solution_hint.values.extend(values)

    def solve(self, work: float) -> tuple[int, ...] | None:
        """The best values found in the deterministic time `work`, by variable; None if there are
        none, or sums may exceed 63 bits. Without presolve, for it takes longer than most searches.
        """
        parameters, solver = cp_sat.SatParameters(), cp_sat.SolveWrapper()
        parameters.num_workers, parameters.random_seed = 1, 7
        parameters.max_deterministic_time = work
        parameters.cp_model_presolve = False
        parameters.catch_sigint_signal = False  # or a later Ctrl-C would kill the process
        if len(self._model.variables) <= FEW:
            parameters.cut_level = 0
        solver.set_parameters(parameters)
        response, status = solver.solve(self._model), cp_sat.CpSolverStatus
        is_solved = response.status in (status.OPTIMAL, status.FEASIBLE)
        return tuple(response.solution) if is_solved else None


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
