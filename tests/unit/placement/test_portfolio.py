"""Portfolios run techniques by name, in turns, until no layout costs less."""

from collections.abc import Callable

import numpy as np
import pytest

from placement.search.portfolio import ONCE, Incumbent, Technique, run_turns
from placement.workload.request import Limits

START = Incumbent(np.zeros(1, dtype=np.int64), 100, 0)
Improve = Callable[[Incumbent, int], Incumbent]


def noting(calls: list[tuple[str, int]], name: str, bound: int = 0) -> Improve:
    def improve(best: Incumbent, share: int) -> Incumbent:
        calls.append((name, share))
        return best.raise_bound(bound)

    return improve


@pytest.mark.parametrize(
    ("turns", "called"),
    [
        (1, [("search", 25), ("once", 1)]),
        (2, [("search", 25), ("once", 1), ("search", 4), ("late", 4)]),
        (
            3,
            [
                *[("search", 25), ("once", 1), ("search", 4), ("late", 4)],
                *[("search", 1), ("late", 1), ("late", 1)],
            ],
        ),
    ],
)
def test_techniques_run_in_turns_of_their_shares(turns: int, called: list[tuple[str, int]]) -> None:
    calls: list[tuple[str, int]] = []
    portfolio = [
        Technique("search", noting(calls, "search")),
        Technique("once", noting(calls, "once"), ONCE),
        Technique("late", noting(calls, "late"), (0, 4, 1, 1)),
    ]
    assert run_turns(START, portfolio, Limits(turns=turns)) == START
    assert calls == called


def test_a_technique_is_left_out_by_name() -> None:
    calls: list[tuple[str, int]] = []
    portfolio = [Technique(name, noting(calls, name), ONCE) for name in ("search", "prove")]
    run_turns(START, portfolio, Limits(without=frozenset({"search"})))
    assert calls == [("prove", 1)]
    assert Limits(without=frozenset({"search"})).first.without == {"search"}  # in each turn


def test_no_technique_runs_once_no_layout_costs_less() -> None:
    calls: list[tuple[str, int]] = []
    portfolio = [
        Technique("prove", noting(calls, "prove", bound=100)),
        Technique("search", noting(calls, "search")),
    ]
    assert run_turns(START, portfolio, Limits()).is_closed
    assert calls == [("prove", 25)]
