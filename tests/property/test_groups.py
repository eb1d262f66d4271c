"""Groups that lie whole, or what parting one costs."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.grid.block_grid import block_grid, shared
from placement.grid.groups import groups_of, parting_of
from placement.grid.layout import layout_cost
from placement.proof.branch_and_price import Prover
from placement.search.bands import band_trees
from placement.search.grid_slicing import slice_grid
from placement.tiers.grid_zones import solve_zones
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.property.grids import requests


@given(req=requests(), seed=st.integers(0, 2**32 - 1), is_whole=st.booleans())
def test_groups_lie_whole_or_are_paid_for(req: Request, seed: int, is_whole: bool) -> None:
    """What `groups` rests on: a layout of groups cuts the same as one of blocks, and any other
    pays what has been taken off."""
    grid = block_grid(req, 2)
    assert grid is not None
    groups = groups_of(grid)
    if groups is None:
        return
    rng = np.random.default_rng(seed)
    layout = rng.integers(0, 3, (grid.rows, grid.width))
    if is_whole:
        of_groups = rng.integers(0, 3, (grid.rows, groups.whole.width))
        layout = groups.laid_out(of_groups)
        assert layout_cost(groups.whole, of_groups) == layout_cost(grid, layout)
        assert np.array_equal(grid.block[:, groups.group == 0][:, 0], groups.whole.block[:, 0])
        row = rng.integers(0, 2)  # one block of one group elsewhere
        layout[row % grid.rows, rng.integers(0, grid.width)] = 3
    by_group = [layout[:, groups.group == g] for g in range(groups.whole.width)]
    if any(np.any(part != part[:, :1]) for part in by_group):
        loose = layout_cost(groups.loose, layout)
        assert layout_cost(grid, layout) >= loose + groups.parted


def test_groups_that_are_dear_to_part_are_proved_to_lie_whole() -> None:
    """Pairs of hosts under TP 16, on zones of which some hold an odd number of hosts."""
    gang = request(
        tp=4,
        pp=6,
        dp=20,
        traffic={"tp": 5000, "dp": 700, "pp": 100},
        collectives={"dp": Collective.HIERARCHICAL},
        order="tp-dp-pp-cp-ep",
    )
    grid = block_grid(gang, 2)
    assert grid is not None
    assert grid.width == 40
    capacities = [101, 75, 49, 31, 5]
    step = solve_zones(grid, capacities, capacities, Limits())
    assert step.bound == step.cost == layout_cost(grid, step.layout)
    groups = groups_of(grid)
    assert groups is not None
    assert groups.size == 2
    assert all((step.layout[:, groups.group == g].std(axis=1) == 0).all() for g in range(20))


@settings(max_examples=200)
@given(req=requests(most=9), is_charged=st.booleans())
def test_no_zone_parts_a_group_alone(req: Request, is_charged: bool) -> None:
    """Against every way to part a row in two: zones pay what one of the two counters says."""
    grid = block_grid(req, 2)
    assert grid is not None
    charged = shared(grid) if is_charged else grid
    parting = None if charged is None else parting_of(charged)
    groups = None if charged is None else groups_of(charged)
    if charged is None or parting is None or groups is None:
        return
    some, more = np.array(parting.some), np.array(parting.more)
    beyond = (1 - some) * parting.price, more * parting.unit
    for chosen in product((0, 1), repeat=grid.width):
        held = np.bincount(chosen, minlength=2)
        of_group = np.bincount(groups.group, chosen)
        is_whole = bool(np.all((of_group == 0) | (of_group == groups.size)))
        paid = grid.rows * (charged.step[held] + beyond[is_whole][held]).sum() - charged.offset
        layout = np.tile(np.array(chosen), (grid.rows, 1))
        assert paid <= layout_cost(grid, layout) * (2 if is_charged else 1)


def test_a_split_on_who_parts_a_group_closes_the_proof() -> None:
    """Ten groups of eight hosts on four zones of 24: the step lets one zone alone hold parts."""
    gang = request(
        tp=2,
        cp=8,
        dp=10,
        traffic={"cp": 661, "dp": 341},
        collectives={"dp": Collective.HIERARCHICAL},
        order="tp-cp-pp-dp-ep",
    )
    grid = block_grid(gang, 2)
    assert grid is not None
    capacities = [24] * 4
    cost, _ = slice_grid(grid, capacities, band_trees(grid, capacities), 300, 0)
    assert Prover(grid, capacities, []).prove(cost, 400) < cost
    assert Prover(grid, capacities, [], parting=parting_of(grid)).prove(cost, 400) == cost
