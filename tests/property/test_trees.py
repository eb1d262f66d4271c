"""Slicing trees: what changes them leaves trees, and parting a part anew is parting it all."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.grid.block_grid import BlockGrid, block_grids
from placement.grid.layout import layout_cost
from placement.search.bands import band_trees
from placement.search.grid_slicing import Slicer, best_of_trees, slice_grid
from placement.search.slicing_trees import NOWHERE, Plan, Tree, _change, comb, plan_of
from placement.workload.request import Collective
from tests.build import request

GPUS = 2
SEEDS = st.integers(0, 100_000)


def leaf_counts(plan: Plan, capacities: list[int]) -> dict[int, int]:
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
    plan = plan_of(comb([Tree(zone=z) for z in range(zones)], axis=0), capacities)
    path, word = np.zeros(len(plan.zone), dtype=np.int64), seed + 1
    touched: set[str] = set()
    for _ in range(200):
        before = [part.copy() for part in plan]
        node, word = _change(plan, axes, path, word)
        changed = [
            name
            for name, old in zip(Plan._fields, before, strict=True)
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
        assert touched >= set(Plan._fields) - {"held"}


@st.composite
def cases(draw: st.DrawFn) -> tuple[BlockGrid, list[int]]:
    sizes = {axis: draw(st.integers(1, 5)) for axis in ("cp", "pp", "dp")}
    gang = request(
        tp=GPUS,
        **sizes,
        traffic={axis: draw(st.integers(1, 9)) for axis in sizes},
        collectives={"dp": draw(st.sampled_from(list(Collective)))},
    )
    (grid, *_) = block_grids(gang, GPUS)
    zones = draw(st.integers(2, 6))
    room = [draw(st.integers(1, grid.size)) for _ in range(zones)]
    room[0] += max(0, grid.size - sum(room))
    return grid, room


@settings(max_examples=60, deadline=None)
@given(case=cases(), seed=SEEDS)
def test_parting_below_a_node_is_parting_everything(
    case: tuple[BlockGrid, list[int]], seed: int
) -> None:
    grid, room = case
    rng = random.Random(seed)
    region = np.array([rng.random() < 0.8 for _ in range(grid.size)]).reshape(grid.rows, -1)
    starts = [comb([Tree(zone=z) for z in range(len(room))], axis) for axis in (0, 1)]
    cost, layout = slice_grid(grid, room, starts, 80, -1, region)
    slicer = Slicer(grid, room, region)
    whole = best_of_trees(
        slicer.layout,
        lambda at: layout_cost(grid, at),
        starts,
        room,
        80,
        -1,
        slicer.seed,
    )
    assert (layout == whole).all()
    assert cost == layout_cost(grid, layout)
    assert (np.bincount(layout[region], minlength=len(room)) <= room).all()
    assert (layout[~region] == -1).all()
    assert (layout[region] >= 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_ragged_pods_are_cut_less_than_by_bands(seed: int) -> None:
    rng = random.Random(seed)
    room = [rng.randint(16, 32) for _ in range(32)]
    width = sum(room) * 9 // 160
    gang = request(tp=GPUS, pp=16, dp=width, traffic={"dp": 3, "pp": 3})
    (grid, *_) = block_grids(gang, GPUS)
    bands, _ = slice_grid(grid, room, band_trees(grid, room), 0, 0)
    found, layout = slice_grid(grid, room, band_trees(grid, room), 10_000, 0)
    assert found == layout_cost(grid, layout)
    assert found < 0.99 * bands
