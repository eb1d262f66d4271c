"""Sequences of runs: who stands beside whom."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.blockgraph import BlockGraph, block_graph
from placement.request import Collective
from placement.sequences import annealed_runs, best_sequence
from tests.build import request


def groups_of_five(groups: int) -> BlockGraph:
    """A chain of blocks: to part a group costs ten, to part two groups one."""
    blocks = 5 * groups
    tail = np.arange(blocks - 1)
    nothing = np.zeros(0, dtype=np.int64)
    weight = np.where(tail % 5 == 4, 1, 10)
    return BlockGraph(blocks, 1, tail, tail + 1, weight, nothing, nothing, nothing)


def test_zones_that_add_up_to_whole_groups_stand_side_by_side() -> None:
    """Eight zones that fill four groups: each group is parted once."""
    graph, room = groups_of_five(4), [4, 4, 3, 3, 2, 2, 1, 1]
    layout = annealed_runs(graph, np.arange(20), room, 20_000, 0)
    assert np.bincount(layout).tolist() == room
    assert graph.cost(layout) == 4 * 10 + 3


def test_the_order_that_looks_best_is_taken() -> None:
    graph, room = groups_of_five(4), [5, 5, 5, 5]
    orders = [np.arange(20).reshape(4, 5).T.ravel(), np.arange(20)]
    layout = best_sequence(graph, orders, room, 4_000, 100, 0)
    assert layout is not None
    assert graph.cost(layout) == 3


def test_what_is_far_from_a_known_layout_is_not_pursued() -> None:
    graph, room = groups_of_five(4), [4, 4, 3, 3, 2, 2, 1, 1]
    assert best_sequence(graph, [np.arange(20)], room, 4_000, 10, 0) is None


@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.lists(st.integers(0, 9), min_size=2, max_size=5),
    st.sampled_from([Collective.RING, Collective.HIERARCHICAL]),
)
@settings(max_examples=40, deadline=None)
def test_no_zone_holds_more_than_it_can(
    dp: int, pp: int, room: list[int], kind: Collective
) -> None:
    asked = request(tp=2, dp=dp, pp=pp, traffic={"dp": 3, "pp": 1}, collectives={"dp": kind})
    graph = block_graph(asked, 2)
    assert graph is not None
    if sum(room) < graph.blocks:
        return
    layout = annealed_runs(graph, np.arange(graph.blocks), room, 300, 0)
    assert (np.bincount(layout, minlength=len(room)) <= room).all()
