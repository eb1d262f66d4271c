"""Linear programs that grow, what counts as proved by an integer program, Ctrl-C beside both."""

from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest
from ortools.math_opt import result_pb2
from pybind11_abseil import status

from placement import solver
from placement.solver import ColumnLp, IntegerProgram


def knapsack(scale: int, least: int, extra: int = 0) -> IntegerProgram:
    """At least so many of 3 x + 5 y, each at most 4, where x costs 2 and y costs 3."""
    program = IntegerProgram()
    x, y = program.variable(4, 2 * scale), program.variable(4, 3 * scale + extra)
    program.row(least, 100, [(x, 3), (y, 5)])
    return program


@pytest.mark.parametrize("scale", [1, 10**9, 1 << 45])
@pytest.mark.parametrize("extra", [0, 1])
def test_values_cost_the_least(scale: int, extra: int) -> None:
    values = knapsack(scale, 14, extra).solve(1)
    cost = {
        (x, y): 2 * scale * x + (3 * scale + extra) * y
        for x, y in product(range(5), repeat=2)
        if 3 * x + 5 * y >= 14
    }
    assert values is not None
    assert cost[values[0], values[1]] == min(cost.values())


def test_what_cannot_be_and_sums_too_large_have_no_values(
    capfd: pytest.CaptureFixture[str],
) -> None:
    odd, large = knapsack(2, 7), knapsack(1 << 61, 14)
    odd.row(7, 7, [(0, 2), (1, 2)])
    for program in (knapsack(1, 100), odd, large):
        assert program.solve(1) is None
    assert not capfd.readouterr().err


def test_a_hint_that_is_optimal_is_what_comes_out() -> None:
    """Of many that cost the same."""
    for hint in ([0, 1, 2], [3, 0, 0], [1, 1, 1]):
        program = IntegerProgram()
        program.row(3, None, [(program.variable(3, 5), 1) for _ in range(3)])
        program.hint(hint)
        assert program.solve(1) == tuple(hint)


@pytest.mark.parametrize("seed", range(6))
def test_a_program_that_grows_costs_what_one_made_at_once_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(2, 20)), int(rng.integers(3, 60))
    entries = rng.integers(0, 5, (columns, rows)) * (rng.random((columns, rows)) < 0.5)
    costs, low, high = rng.random(columns), np.full(rows, 3), np.full(rows, inf)
    whole, grown = ColumnLp(), ColumnLp()
    for program in (whole, grown):
        program.add_rows(low, high)
    whole.add_rows(np.zeros(1), np.full(1, 9), unit=2)
    whole.add_columns(costs, np.hstack([entries, np.ones((columns, 1), dtype=np.int64)]))
    for part in (slice(0, 2), slice(2, columns)):
        grown.add_columns(costs[part], entries[part])
        assert grown.solve() is not None
    grown.add_rows(np.zeros(1), np.full(1, 9), np.ones((1, columns)), unit=2)
    for first in ((2.0, inf), (3.0, inf), (1.0, 2.0)):
        whole.set_bounds(0, *first)
        grown.set_bounds(0, *first)
        expected, solution = whole.solve(), grown.solve()
        assert expected is not None
        assert solution is not None
        assert solution.cost == pytest.approx(expected.cost)
        assert grown.cost() == pytest.approx(expected.cost)


@pytest.mark.parametrize("seed", range(6))
def test_prices_prove_the_cost(seed: int) -> None:
    """By duality: no column pays at them, and bounds at these prices add up to the cost."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(2, 20)), int(rng.integers(3, 60))
    entries = rng.integers(0, 5, (columns, rows)) * (rng.random((columns, rows)) < 0.5)
    costs, low = rng.random(columns), rng.integers(1, 9, rows)
    high = np.where(rng.random(rows) < 0.3, inf, low + rng.integers(0, 3, rows))
    unit, price = rng.integers(1, 4, rows), np.full(rows, solver.ARTIFICIAL)
    program = ColumnLp()
    program.add_rows(low, high, unit=unit)
    program.add_columns(costs, entries)
    solution = program.solve()
    assert solution is not None
    dual = np.array(solution.duals)
    assert (costs - entries @ dual > -1e-6).all()
    assert (np.abs(dual) * unit < price + 1e-6).all()
    bounds = np.where(dual > 0, low, np.where(dual < 0, high, 0))
    assert dual @ bounds == pytest.approx(solution.cost)
    held = solution.columns @ entries
    off = np.maximum(0, np.maximum(low - held, held - high)) / unit
    assert costs @ solution.columns + off @ price == pytest.approx(solution.cost)


@pytest.mark.parametrize("fault", ["stopped", "error"])
@pytest.mark.parametrize(("faults", "is_solved"), [(0, True), (1, True), (2, False)])
def test_a_program_that_gives_up_begins_again_and_never_answers_unsolved(
    monkeypatch: pytest.MonkeyPatch, fault: str, faults: int, is_solved: bool
) -> None:
    program = ColumnLp()
    program.add_rows(np.ones(4), np.full(4, inf))
    program.add_columns(np.ones(4), np.eye(4, dtype=np.int64))
    assert program.cost() == pytest.approx(4)
    runs: list[object] = []

    class Faulty:
        """A solver that gives up in its first runs."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def update(self, changes: object) -> bool:
            return bool(self.real.update(changes))

        def solve(self, parameters: Any, *more: object) -> object:
            runs.append(self)
            if len(runs) <= faults and fault == "error":
                raise solver.StatusNotOk(status.internal_error("numbers got out of hand"))
            result = self.real.solve(parameters, *more)
            if len(runs) <= faults:
                result.termination.reason = result_pb2.TERMINATION_REASON_FEASIBLE
            return result

    begun = solver._begun
    monkeypatch.setattr(solver, "_begun", lambda model: Faulty(begun(model)))
    program._solver = Faulty(program._solver)  # type: ignore[assignment]
    program.add_columns(np.ones(1), np.ones((1, 4), dtype=np.int64))
    assert program.cost() == (pytest.approx(1) if is_solved else None)
    assert len(runs) == min(faults, 1) + 1
