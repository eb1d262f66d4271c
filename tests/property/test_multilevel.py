"""Layouts far from the one that is known."""

from __future__ import annotations

import numpy as np
import pytest

from placement import speculative as ahead
from placement.search.graph_portfolio import Blocks
from placement.search.multilevel import refined
from tests.build import request


def staggered() -> Blocks:
    """Rings of five cells on hosts of two, eleven stages, sixteen replicas, on four zones."""
    gang = request(
        tp=2,
        cp=5,
        pp=11,
        dp=16,
        traffic={"tp": 250_000, "cp": 5_000, "pp": 100, "dp": 5_000},
        order="tp-cp-pp-dp-ep",
    )
    return Blocks(gang, 8, [95, 86, 84, 67])


def test_a_layout_put_anew_is_never_worse_and_fits() -> None:
    job = staggered()
    start = np.repeat(np.arange(4), [95, 86, 39, 0])
    found = job.put_anew(start, 2_400, 0)
    assert np.all(np.bincount(found, minlength=4) <= job.capacities)
    assert job.cost(found) < job.cost(start)
    again = job.put_anew(found, 400, 0)
    assert job.cost(again) <= job.cost(found)


def test_the_same_layout_on_one_core_and_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    job = staggered()
    start = np.repeat(np.arange(4), [95, 86, 39, 0])
    on_two = job.put_anew(start, 1_200, 0)
    monkeypatch.setattr(ahead, "_second_core", lambda: None)
    assert np.array_equal(job.put_anew(start, 1_200, 0), on_two)


def test_nothing_is_put_anew_where_the_target_is_met() -> None:
    job = staggered()
    assert job.graph is not None
    start = np.repeat(np.arange(4), [95, 86, 39, 0])
    cost = job.graph.cost(start)
    assert refined(job.graph, job.capacities, start, 10_000, cost) is start
