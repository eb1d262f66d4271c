"""Layouts far from the one that is known."""

import numpy as np
import pytest

from placement import speculative as ahead
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, block_graph
from placement.search.multilevel import SLOW, refine
from tests.build import request

ROOM = [95, 86, 84, 67]
START = np.repeat(np.arange(4), [95, 86, 39, 0])


def staggered() -> Hypergraph:
    """Rings of five cells on hosts of two, eleven stages, sixteen replicas."""
    gang = request(
        tp=2,
        cp=5,
        pp=11,
        dp=16,
        traffic={"tp": 250_000, "cp": 5_000, "pp": 100, "dp": 5_000},
        order="tp-cp-pp-dp-ep",
    )
    graph = block_graph(gang, 8)
    assert graph is not None
    return graph


def put_anew(graph: Hypergraph, start: Ints, proposals: int) -> Ints:
    return refine(graph, ROOM, start, proposals, 0, SLOW)


def test_a_layout_put_anew_is_never_worse_and_fits() -> None:
    graph = staggered()
    found = put_anew(graph, START, 8_640_000)
    assert np.all(np.bincount(found, minlength=4) <= ROOM)
    assert graph.cost(found) < graph.cost(START)
    again = put_anew(graph, found, 1_440_000)
    assert graph.cost(again) <= graph.cost(found)


def test_the_same_layout_on_one_core_and_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = staggered()
    on_two = put_anew(graph, START, 4_320_000)
    monkeypatch.setattr(ahead, "_second_core", lambda: None)
    assert np.array_equal(put_anew(graph, START, 4_320_000), on_two)


def test_nothing_is_put_anew_where_the_target_is_met() -> None:
    graph = staggered()
    assert refine(graph, ROOM, START, 10_000, graph.cost(START)) is START
