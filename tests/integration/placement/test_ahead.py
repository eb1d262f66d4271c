"""What a second core does ahead changes when a result is there, never what it is."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from placement import speculative as module
from placement.grid.block_grid import block_grid
from placement.proof.branch_and_price import Prover
from placement.proof.node import Exploration
from placement.speculative import run_ahead
from placement.tiers.grid_zones import solve_zones
from placement.workload.request import Collective, Limits
from tests.build import request


@contextmanager
def second_core(is_busy: bool = False) -> Iterator[None]:
    """There is one, whatever machine this is. `is_busy`: it does nothing until all is over."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_second_core", lambda: pool)
        if is_busy:
            pool.submit(over.wait, 20)
        yield
        over.set()


def squares(made: list[int]) -> list[Callable[[], int]]:
    def square(n: int) -> int:
        made.append(n)
        return n * n

    return [partial(square, n) for n in range(6)]


@pytest.mark.parametrize("is_busy", [False, True])
def test_results_come_in_order_and_each_call_is_made_once(is_busy: bool) -> None:
    """Calls that a busy core has not begun are made here, and not again over there."""
    made: list[int] = []
    with second_core(is_busy):
        assert list(run_ahead(squares(made))) == [0, 1, 4, 9, 16, 25]
    assert sorted(made) == [0, 1, 2, 3, 4, 5]


def test_two_calls_run_at_the_same_time() -> None:
    """Each waits for the other, so neither ends if they are made in turn."""
    met = threading.Barrier(2, timeout=20)
    with second_core():
        assert sorted(run_ahead([met.wait, met.wait])) == [0, 1]


def test_one_core_makes_nothing_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_second_core", lambda: None)
    made: list[int] = []
    results = run_ahead(squares(made))
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert made == [0, 1]


def test_calls_that_nobody_asks_for_any_more_are_let_go() -> None:
    made: list[int] = []
    with second_core(is_busy=True):
        results = run_ahead(squares(made))
        assert next(results) == 0
        results.close()
    assert made == [0]


def test_an_error_reaches_who_asks() -> None:
    def fails() -> int:
        raise ValueError("no layout")

    with second_core(), pytest.raises(ValueError, match="no layout"):
        list(run_ahead([lambda: 1, fails]))


def test_a_proof_in_pairs_of_nodes_is_the_same_on_one_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six zones for seven stages of 14 hosts: the same layout, bound, and nodes."""
    gang = request(
        tp=8,
        pp=7,
        dp=14,
        traffic={"dp": 100, "pp": 43},
        collectives={"dp": Collective.HIERARCHICAL},
    )
    grid = block_grid(gang, 8)
    assert grid is not None
    nodes: list[int] = []
    begin = Prover._begun

    def begun(prover: Prover) -> list[Exploration]:
        found = begin(prover)
        nodes.append(len(found))
        return found

    monkeypatch.setattr(Prover, "_begun", begun)
    solved: list[tuple[object, ...]] = []
    with ThreadPoolExecutor(1) as pool:
        for second in (pool, None):
            nodes.clear()
            monkeypatch.setattr(module, "_second_core", lambda second=second: second)
            room = [32, 32, 16, 16, 16, 16]
            step = solve_zones(grid, room, room, Limits())
            solved.append((step.layout.tolist(), step.cost, step.bound))
            assert 2 in nodes
    assert solved[0] == solved[1]
