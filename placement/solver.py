"""Linear and integer programs, assignments and flows on OR-Tools, which no other file imports.

A master program of column generation grows by columns and by rows, so the solver keeps it, and
the simplex method goes on from the last basis. Callers take prices from linear programs, and
layouts from integer programs; a bound they compute in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from ortools.graph.python import linear_sum_assignment
from ortools.graph.python import max_flow as ortools_max_flow
from ortools.math_opt import (
    callback_pb2,
    model_parameters_pb2,
    parameters_pb2,
    result_pb2,
    solution_pb2,
    sparse_containers_pb2,
)
from ortools.math_opt.core.python import solver as mathopt

# MathOpt's model takes arrays here; `mathopt.Model` takes one coefficient at a time, and its
# results are dictionaries by variable: twice the time of the simplex method.
from ortools.math_opt.elemental.python import cpp_elemental
from ortools.math_opt.elemental.python.enums import DoubleAttr1, DoubleAttr2, ElementType

# What `cp_model` is built on. That one imports pandas, which takes 0.3 s or more.
from ortools.sat.python import cp_model_helper as cp_sat
from pybind11_abseil.status import StatusNotOk

from placement.fabric.tree import Floats, Ints

ARTIFICIAL: Final = 1e3  # price of what keeps a program feasible; columns cost about 1 a row
MOST_STEPS: Final = 10  # of the simplex method for each row and column; one or fewer as a rule
_UNBOUNDED: Final = (1 << 63) - 1
FEW: Final = 64  # variables, among which a search is over before cuts are found

ROW, COLUMN = ElementType.LINEAR_CONSTRAINT, ElementType.VARIABLE
LOW, HIGH = DoubleAttr1.LINEAR_CONSTRAINT_LOWER_BOUND, DoubleAttr1.LINEAR_CONSTRAINT_UPPER_BOUND
ENTRY = DoubleAttr2.LINEAR_CONSTRAINT_COEFFICIENT
NOTHING: Final = sparse_containers_pb2.SparseVectorFilterProto(filter_by_ids=True)
WANTED: Final = model_parameters_pb2.ModelSolveParametersProto(reduced_costs_filter=NOTHING)


class LpSolution(NamedTuple):
    """The cost, the dual of each row, and the value of each column."""

    cost: float
    duals: tuple[float, ...]
    columns: Floats


class ColumnLp:
    """A linear program, min cost x, low <= A x <= high, x >= 0, that grows by columns and by rows,
    solved by GLOP.

    Every row has two artificial columns, which add to it and take away from it at a prohibitive
    price, so that the program is feasible from the start.
    """

    def __init__(self) -> None:
        self._model = cpp_elemental.CppElemental()
        self._changes = self._model.add_diff()  # since the solver has last seen the model
        self._solver: mathopt.Solver | None = None
        self._columns: Ints = np.empty(0, dtype=np.int64)  # without artificial ones

    def add_columns(self, costs: Floats, entries: Ints | Floats) -> None:
        """Add one column for each cost, with its entry in each row. Shape: (columns, rows)."""
        column, row = np.nonzero(entries)
        fresh = self._add_columns(costs, column, row, entries[column, row])
        self._columns = np.append(self._columns, fresh)

    def add_rows(
        self,
        low: Ints | Floats,
        high: Ints | Floats,
        entries: Ints | Floats | None = None,
        unit: Ints | float = 1,
    ) -> None:
        """Add rows with these bounds, and an entry in each column, 0 by default. `unit`: what an
        artificial column adds. Shapes: (rows,), of entries (rows, columns)."""
        many = len(low)
        rows = self._model.add_elements(ROW, many)
        self._model.set_attrs(LOW, rows[:, None], np.asarray(low, dtype=np.float64))
        self._model.set_attrs(HIGH, rows[:, None], np.asarray(high, dtype=np.float64))
        if entries is not None:
            row, column = np.nonzero(entries)
            self._set_entries(rows[row], self._columns[column], entries[row, column])
        units = np.multiply.outer(np.broadcast_to(unit, many), [1, -1]).ravel()
        prices = np.full(2 * many, ARTIFICIAL)
        self._add_columns(prices, np.arange(2 * many), np.repeat(rows, 2), units)

    def _add_columns(self, costs: Floats, column: Ints, row: Ints, values: Ints | Floats) -> Ints:
        columns = self._model.add_elements(COLUMN, len(costs))
        self._model.set_attrs(
            DoubleAttr1.VARIABLE_LOWER_BOUND, columns[:, None], np.zeros(len(costs))
        )
        self._model.set_attrs(DoubleAttr1.OBJECTIVE_LINEAR_COEFFICIENT, columns[:, None], costs)
        self._set_entries(row, columns[column], values)
        return np.asarray(columns)

    def _set_entries(self, row: Ints, column: Ints, values: Ints | Floats) -> None:
        at = np.stack([row, column], axis=1)
        self._model.set_attrs(ENTRY, at, np.asarray(values, dtype=np.float64))

    def set_bounds(self, row: int, low: float, high: float) -> None:
        """Replace the bounds of a row."""
        self._model.set_attrs(LOW, np.array([[row]]), np.array([low], dtype=np.float64))
        self._model.set_attrs(HIGH, np.array([[row]]), np.array([high], dtype=np.float64))

    def cost(self) -> float | None:
        """Return the least cost; None when the solver gives up, from the first basis as well."""
        solution = self._solved()
        return None if solution is None else float(solution.primal_solution.objective_value)

    def solve(self) -> LpSolution | None:
        """Return the least cost with the dual of each row and the value of each column."""
        solution = self._solved()
        if solution is None:
            return None
        primal, duals = solution.primal_solution, solution.dual_solution.dual_values.values
        values = np.array(primal.variable_values.values)[self._columns]
        return LpSolution(float(primal.objective_value), tuple(duals), values)

    def _solved(self) -> solution_pb2.SolutionProto | None:
        """The optimal solution from the last basis, or else from none. Only a status of optimal
        counts: a solver that stopped early has proved nothing."""
        steps = self._model.get_num_elements(ROW) + self._model.get_num_elements(COLUMN)
        parameters = parameters_pb2.SolveParametersProto(
            threads=1,
            presolve=parameters_pb2.EMPHASIS_OFF,  # or the last basis would be lost
            iteration_limit=MOST_STEPS * steps,
        )
        # Primal while the basis is feasible (new columns), else dual (bounds, new rows).
        parameters.glop.allow_simplex_algorithm_change = True
        for solver in (self._updated(), None):
            self._solver = solver or _begun(self._model)
            no_callback = callback_pb2.CallbackRegistrationProto()
            try:
                result = self._solver.solve(parameters, WANTED, None, no_callback, None, None)
            except StatusNotOk:  # numbers got out of hand
                continue
            if result.termination.reason == result_pb2.TERMINATION_REASON_OPTIMAL:
                return result.solutions[0]
        return None

    def _updated(self) -> mathopt.Solver | None:
        """The solver with all changes of the model; None where there is none yet."""
        changes = self._model.export_model_update(self._changes)
        self._model.advance_diff(self._changes)
        if self._solver is None or changes is None or self._solver.update(changes):
            return self._solver
        return None


def _begun(model: cpp_elemental.CppElemental) -> mathopt.Solver:
    nothing = parameters_pb2.SolverInitializerProto()
    return mathopt.new(parameters_pb2.SOLVER_TYPE_GLOP, model.export_model(), nothing)


class IntegerSolution(NamedTuple):
    """The value of each variable, and a cost that no values go below; None where nothing is
    known. No values and a bound: it is proved that there are none."""

    values: tuple[int, ...] | None
    bound: int | None


class IntegerProgram:
    """An integer program, min cost x over whole x within ranges of rows, solved by CP-SAT.

    One worker, fixed seed, deterministic time: the same on any machine.
    """

    def __init__(self) -> None:
        self._model = cp_sat.CpModelProto()

    def variable(self, most: int, cost: int) -> int:
        """Add a variable in [0, most], and return its number."""
        number = len(self._model.variables)
        self._model.variables.add().domain.extend([0, most])
        self._model.objective.vars.append(number)
        self._model.objective.coeffs.append(cost)
        return number

    def row(self, low: int | None, high: int | None, entries: Sequence[tuple[int, int]]) -> None:
        """Add a row, low <= sum of (variable, factor) <= high; None: without that bound."""
        row = self._model.constraints.add().linear
        row.vars.extend([variable for variable, _ in entries])
        row.coeffs.extend([factor for _, factor in entries])
        row.domain.append(-_UNBOUNDED if low is None else low)
        row.domain.append(_UNBOUNDED if high is None else high)

    def hint(self, values: Sequence[int]) -> None:
        """Give a solution to begin with, by variable."""
        self._model.solution_hint.vars.extend(range(len(values)))
        self._model.solution_hint.values.extend(values)

    def solve(self, work: float) -> tuple[int, ...] | None:
        """Return the best values found in the deterministic time `work`, by variable; None if there
        are none, or sums may exceed 63 bits. Without presolve, which takes longer than most
        searches."""
        return self.solve_with_bound(work, presolve=False).values

    def solve_with_bound(self, work: float, *, presolve: bool = True) -> IntegerSolution:
        """Return the best values found in the deterministic time `work`, and a cost that no values
        go below, which CP-SAT computes in whole numbers; no bound unless it says feasible or
        optimal."""
        parameters, solver = cp_sat.SatParameters(), cp_sat.SolveWrapper()
        parameters.num_workers, parameters.random_seed = 1, 7
        parameters.max_deterministic_time = work
        parameters.cp_model_presolve = presolve
        parameters.linearization_level = 2 if presolve else 1
        parameters.catch_sigint_signal = False  # or a later Ctrl-C would kill the process
        if len(self._model.variables) <= FEW:
            parameters.cut_level = 0
        solver.set_parameters(parameters)
        response, status = solver.solve(self._model), cp_sat.CpSolverStatus
        if response.status == status.INFEASIBLE:
            return IntegerSolution(None, _UNBOUNDED)
        if response.status not in (status.OPTIMAL, status.FEASIBLE):
            return IntegerSolution(None, None)
        return IntegerSolution(tuple(response.solution), response.inner_objective_lower_bound)


def assign(cost: Ints) -> Ints | None:
    """Assign rows to columns at least total cost, no column twice.

    Shape: (rows, columns), rows <= columns. None when the costs are too large to be summed in 64
    bits. Cost: 3 ms for 192 x 192.
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


def max_flow(tails: Ints, heads: Ints, capacities: Ints, source: int, sink: int) -> int:
    """Return the most that arcs carry from one node to another. Shape of each: (arcs,)."""
    network = ortools_max_flow.SimpleMaxFlow()
    network.add_arcs_with_capacity(tails.astype(np.int32), heads.astype(np.int32), capacities)
    status = network.solve(source, sink)
    assert status == network.OPTIMAL, status  # sums of a few million cables do not overflow
    return int(network.optimal_flow())
