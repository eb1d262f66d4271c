"""The linear and integer programs that placement needs, on OR-Tools.

The only module that imports ortools. pywraplp is used for both, because the CP-SAT
model builder pulls in pandas (0.8 s of start-up) and this does not. GLOP can stop
"abnormal" on degenerate masters: callers take prices from here, never bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortools.linear_solver import pywraplp

INFINITY = pywraplp.Solver.infinity()


@dataclass(frozen=True, slots=True)
class LpSolution:
    """Value of each column, and dual of each row."""

    primal: tuple[float, ...]
    duals: tuple[float, ...]


class ColumnLp:
    """min cost x, low <= A x <= high, x >= 0, to which columns are added as they come."""

    def __init__(self, rows: Sequence[tuple[float, float]]) -> None:
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._rows = [self._solver.Constraint(low, high) for low, high in rows]
        self._objective = self._solver.Objective()
        self._objective.SetMinimization()
        self._columns: list[Any] = []

    def add(self, cost: float, coefficients: Sequence[tuple[int, float]]) -> None:
        """One column: its cost and (row, coefficient) pairs."""
        column = self._solver.NumVar(0.0, INFINITY, "")
        self._objective.SetCoefficient(column, cost)
        for row, value in coefficients:
            self._rows[row].SetCoefficient(column, value)
        self._columns.append(column)

    def bound_row(self, row: int, low: float, high: float) -> None:
        self._rows[row].SetBounds(low, high)

    def bound_column(self, column: int, high: float) -> None:
        self._columns[column].SetUb(high)

    def solve(self) -> LpSolution | None:
        """None when GLOP gives up; then neither values nor prices can be read."""
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        return LpSolution(
            tuple(c.solution_value() for c in self._columns),
            tuple(r.dual_value() for r in self._rows),
        )


def solve_integer(
    rows: Sequence[tuple[float, float]],
    columns: Sequence[tuple[int, Sequence[tuple[int, int]]]],
    most: int,
    work: float,
) -> tuple[int, ...] | None:
    """Integer multiplicities in [0, most] of least cost; None when none was found.

    CP-SAT, one worker, fixed seed, deterministic time `work`: the same on any machine.
    """
    solver = pywraplp.Solver.CreateSolver("SAT")
    solver.SetSolverSpecificParametersAsString(
        f"num_workers:1 random_seed:7 max_deterministic_time:{work}"
    )
    constraints = [solver.Constraint(low, high) for low, high in rows]
    variables = []
    for cost, coefficients in columns:
        variable = solver.IntVar(0, most, "")
        solver.Objective().SetCoefficient(variable, cost)
        for row, value in coefficients:
            constraints[row].SetCoefficient(variable, value)
        variables.append(variable)
    solver.Objective().SetMinimization()
    status = solver.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return None
    return tuple(round(v.solution_value()) for v in variables)
