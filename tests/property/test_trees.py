"""Slicing trees: what changes them leaves trees, and parting a part anew is parting it all; and
layouts far from the one that is known."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import speculative
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.grid.layout import layout_cost
from placement.search.graph_slicing import slice_grid
from placement.search.multilevel import SLOW, refine
from placement.search.slicing_trees import NOWHERE, TreeArrays, _change, plan_of
from placement.workload.request import Collective
from tests.build import request
from tests.property.grids import COLLECTIVE, graph_of, grid_of

GPUS = 2
SEEDS = st.integers(0, 100_000)


def leaf_counts(plan: TreeArrays, capacities: list[int]) -> dict[int, int]:
    """Capacity below each node, told from the root; fails on what is no tree."""
    held: dict[int, int] = {}

    def walk(node: int, above: int) -> int:
        assert node not in held
        assert plan.above[node] == above
        held[node] = 0
        if plan.zone[node] >= 0:
            held[node] = capacities[plan.zone[node]]
        else:
            held[node] = walk(plan.first[node], node) + walk(plan.second[node], node)
        return held[node]

    walk(0, NOWHERE)
    return held


@settings(max_examples=60, deadline=None)
@given(zones=st.integers(2, 9), axes=st.integers(1, 4), seed=SEEDS)
def test_a_changed_tree_is_a_tree_over_the_same_zones(zones: int, axes: int, seed: int) -> None:
    rng = random.Random(seed)
    capacities = [rng.randint(1, 9) for _ in range(zones)]
    plan = plan_of(range(zones), capacities, [0])
    path, word = np.zeros(len(plan.zone), dtype=np.int64), seed + 1
    touched: set[str] = set()
    for _ in range(200):
        before = [part.copy() for part in plan]
        node, word = _change(plan, axes, path, word)
        changed = [
            name
            for name, old in zip(TreeArrays._fields, before, strict=True)
            if (getattr(plan, name) != old).any()
        ]
        touched.update(changed)
        if node == NOWHERE:
            assert not changed
            continue
        assert leaf_counts(plan, capacities) == dict(enumerate(plan.held))
        assert sorted(z for z in plan.zone if z >= 0) == list(range(zones))
        assert set(plan.axis) <= set(range(axes))
        assert set(plan.lean) <= {0, 1, 2}
    if zones > 3 and axes > 1:
        assert touched >= set(TreeArrays._fields) - {"held"}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)),
    weights=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    pattern=COLLECTIVE,
    seed=SEEDS,
)
def test_a_part_of_a_grid_is_sliced_within_its_room(
    sizes: tuple[int, int, int], weights: tuple[int, int, int], pattern: Collective, seed: int
) -> None:
    axes = ("cp", "pp", "dp")
    gang = request(
        tp=GPUS,
        **dict(zip(axes, sizes, strict=True)),
        traffic=dict(zip(axes, weights, strict=True)),
        collectives={"dp": pattern},
    )
    grid = grid_of(gang)
    rng = random.Random(seed)
    room = [rng.randint(1, grid.size) for _ in range(rng.randint(2, 6))]
    room[0] += max(0, grid.size - sum(room))
    region = np.array([rng.random() < 0.8 for _ in range(grid.size)]).reshape(grid.rows, -1)
    region[0, 0] = True
    layout = slice_grid(grid, room, 80, 0, region=region)
    assert (np.bincount(layout[region], minlength=len(room)) <= room).all()
    assert (layout[~region] == -1).all()
    assert (layout[region] >= 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_ragged_pods_are_cut_less_by_a_search(seed: int) -> None:
    rng = random.Random(seed)
    room = [rng.randint(16, 32) for _ in range(32)]
    width = sum(room) * 9 // 160
    gang = request(tp=GPUS, pp=16, dp=width, traffic={"dp": 3, "pp": 3})
    grid = grid_of(gang)
    first, found = (layout_cost(grid, slice_grid(grid, room, trees, 0)) for trees in (0, 10_000))
    assert found < 0.99 * first


# --- layouts far from the one that is known --------------------------------------------

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
    return graph_of(gang, 8)


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
    monkeypatch.setattr(speculative, "_second_core", lambda: None)
    assert np.array_equal(put_anew(graph, START, 4_320_000), on_two)


def test_nothing_is_put_anew_where_the_target_is_met() -> None:
    graph = staggered()
    assert refine(graph, ROOM, START, 10_000, graph.cost(START)) is START
