"""What counts as proved by an integer program."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from math import inf

import numpy as np
import pytest
from ortools.linear_solver.linear_solver_pb2 import MPModelProto

from placement.messages import program
from placement.milp import INFINITY, MOST_SUM, ColumnLp, IntegerProgram


def knapsack(scale: int, least: int, extra: int = 0) -> IntegerProgram:
    """At least so many of 3 x + 5 y, each at most 4, where x costs 2 and y costs 3."""
    program = IntegerProgram()
    x, y = program.variable(4, 2 * scale), program.variable(4, 3 * scale + extra)
    program.row(least, 100, [(x, 3), (y, 5)])
    return program


@pytest.mark.parametrize("scale", [1, 10**9, MOST_SUM])
def test_the_least_cost_is_proved(scale: int) -> None:
    solution = knapsack(scale, 14).solve(1)
    assert solution is not None
    x, y = solution.values
    assert 3 * x + 5 * y >= 14
    assert (
        (solution.cost, solution.is_optimal) == ((2 * x + 3 * y) * scale, True) == (9 * scale, True)
    )


def test_nothing_is_proved_of_sums_that_are_rounded() -> None:
    solution = knapsack(MOST_SUM // 4, 14, extra=1).solve(1)
    assert solution is None or not solution.is_optimal
    program = knapsack(1, 100)
    assert program.solve(1) is None
    assert program.is_impossible
    program.row(0, MOST_SUM * 4.0, [(0, MOST_SUM)])
    assert program.solve(1) is None
    assert program.is_impossible
    program.row(0, MOST_SUM * 8.0, [(0, MOST_SUM), (1, MOST_SUM + 1)])
    assert program.solve(1) is None
    assert not program.is_impossible


def test_a_row_that_no_whole_multiple_meets_is_impossible(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Seven slots in zones of two; said without the solver, which complains on standard error."""
    program = knapsack(2, 7)
    program.row(7, 7, [(0, 2), (1, 2)])
    assert program.solve(1) is None
    assert program.is_impossible
    assert not capfd.readouterr().err


@pytest.mark.parametrize("seed", range(6))
def test_a_message_says_what_it_was_made_of(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(0, 20)), int(rng.integers(0, 300))
    entries = rng.integers(-2, 5, (rows, columns)) * (rng.random((rows, columns)) < 0.5) / 4
    costs, most = rng.random(columns), rng.integers(1, 9, columns).astype(np.float64)
    bounds = [(float(low), float(low) + 2 if k % 2 else inf) for k, low in enumerate(range(rows))]
    message = program(costs, most.tolist(), bounds, entries)
    read = MPModelProto.FromString(message.SerializeToString())
    assert [(v.lower_bound, v.upper_bound, v.objective_coefficient) for v in read.variable] == [
        (0.0, *each) for each in zip(most, costs, strict=True)
    ]
    assert all(v.is_integer for v in read.variable)
    assert [(row.lower_bound, row.upper_bound) for row in read.constraint] == bounds
    for row, factors in zip(read.constraint, entries, strict=True):
        assert list(row.var_index) == np.flatnonzero(factors).tolist()
        assert list(row.coefficient) == factors[factors != 0].tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_program_that_grows_costs_what_one_made_at_once_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(2, 20)), int(rng.integers(3, 60))
    entries = rng.integers(0, 5, (columns, rows)) * (rng.random((columns, rows)) < 0.5)
    costs, more = rng.random(columns), [1.0] * columns
    whole, grown = ColumnLp([3.0] * rows), ColumnLp([3.0] * rows)
    whole.add_row(0.0, 9.0, [], 2.0, 5.0)
    whole.add_columns(costs, np.hstack([entries, np.ones((columns, 1), dtype=np.int64)]))
    for part in (slice(0, 2), slice(2, columns)):
        grown.add_columns(costs[part], entries[part])
        assert grown.solve() is not None
    grown.add_row(0.0, 9.0, more, 2.0, 5.0)
    for low, high in ((2.0, INFINITY), (3.0, INFINITY), (1.0, 2.0)):
        whole.set_bounds(0, low, high)
        grown.set_bounds(0, low, high)
        found, other = whole.solve(), grown.solve()
        assert found is not None
        assert other is not None
        assert found.cost == pytest.approx(other.cost)
        assert grown.cost() == pytest.approx(found.cost)


def solve_some() -> None:
    program = ColumnLp([1.0] * 40)
    program.add_columns(np.ones(40), np.eye(40, dtype=np.int64))
    for k in range(200):
        program.add_columns(np.array([0.99 - k / 1000]), np.ones((1, 40), dtype=np.int64))
        assert program.solve() is not None


def test_ctrl_c_is_heard_after_programs_were_solved_side_by_side() -> None:
    """Each of them catches it while it is solved, and puts back what it found."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(solve_some) for _ in range(2)]:
            done.result()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_programs_are_solved_whatever_ctrl_c_stops() -> None:
    heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    before = signal.signal(signal.SIGINT, hear)
    try:
        with ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(solve_some) for _ in range(6)]
            while not all(each.done() for each in busy):
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.001)
            for each in busy:
                each.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard


def test_ctrl_c_is_heard_after_an_integer_program() -> None:
    assert knapsack(1, 11).solve(1.0) is not None
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
