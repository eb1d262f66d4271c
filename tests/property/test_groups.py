"""Groups that lie whole, or what layouts cost at least by how many groups they part."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.grid.groups import Groups, groups_of
from placement.grid.layout import Layout, layout_cost
from placement.proof.split_groups import Parted, lane_rooms
from placement.tiers.grid_zones import solve_zones
from placement.workload.request import Limits, Request
from tests.build import request
from tests.property.grids import assignments, grid_of, requests


@given(req=requests(), seed=st.integers(0, 2**32 - 1), is_whole=st.booleans())
def test_groups_lie_whole_or_are_paid_for(req: Request, seed: int, is_whole: bool) -> None:
    """What `groups` rests on: a layout of groups cuts the same as one of blocks, and any other
    pays what has been taken off."""
    grid = grid_of(req)
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


def lanes_of(groups: Groups, layout: Layout) -> list[Layout]:
    """The first blocks of all groups, the second ones, and so on."""
    members = [np.flatnonzero(groups.group == g) for g in range(groups.whole.width)]
    return [layout[:, lane] for lane in np.array(members).T]


def parted_in(groups: Groups, layout: Layout) -> int:
    """How many groups lie in several zones."""
    lanes = np.array(lanes_of(groups, layout))
    return int(np.count_nonzero((lanes != lanes[0]).any(axis=0)))


@given(
    req=requests(),
    changed=st.integers(0, 24),
    spare=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_lane_costs_less_and_nearly_fits(
    req: Request, changed: int, spare: int, seed: int
) -> None:
    """What the bound by lanes rests on, for whole groups of which some blocks lie elsewhere."""
    grid = grid_of(req)
    groups = groups_of(grid)
    if groups is None:
        return
    rng = np.random.default_rng(seed)
    layout = groups.laid_out(rng.integers(0, 3, (grid.rows, groups.whole.width)))
    for _ in range(changed):
        layout[rng.integers(0, grid.rows), rng.integers(0, grid.width)] = rng.integers(0, 4)
    held = np.bincount(layout.ravel(), minlength=4)
    capacities = [int(n) + int(rng.integers(0, spare + 1)) for n in held]
    parted = parted_in(groups, layout)
    rooms = lane_rooms(capacities, groups.size, parted)
    lanes = lanes_of(groups, layout)
    for lane in lanes:
        used = sorted((int(n) for n in np.bincount(lane.ravel()) if n), reverse=True)
        assert len(used) <= len(rooms)
        assert all(n <= room for n, room in zip(used, rooms, strict=False))
    least = min(layout_cost(groups.whole, lane) for lane in lanes)
    assert layout_cost(grid, layout) >= least + parted * groups.price


@settings(max_examples=25)
@given(
    req=requests(most=8),
    capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    least=st.integers(0, 200),
)
def test_no_layout_that_parts_a_group_costs_less(
    req: Request, capacities: list[int], least: int
) -> None:
    grid = grid_of(req)
    groups = groups_of(grid)
    if groups is None or sum(groups.room(capacities)) < groups.whole.size:
        return
    parted, whole = [], []
    for zones in assignments(grid.size, capacities):
        layout = np.array(zones).reshape(grid.rows, grid.width)
        cost = layout_cost(grid, layout)
        (parted if parted_in(groups, layout) else whole).append((cost, layout))
    optimum, other = min((c for c, _ in parted), default=1 << 40), min(c for c, _ in whole)
    start = next(layout for cost, layout in whole if cost == other)
    bound = Parted(groups, capacities, lanes_of(groups, start)[0])
    for rounds in (1, 20):
        proved = bound.prove(2 * other + 20, least, rounds)
        assert proved <= max(optimum, least - 1)
        assert bound.prove(other, 0, rounds) <= min(optimum, other)
    if bound.prove(least + 1, least + 1, 1) > least:
        assert optimum > least


def test_groups_over_many_pods_are_proved_lane_by_lane() -> None:
    """Sequences split over eight hosts, on 24 pods of sixteen groups each: no part of a group makes
    up for what it costs, which less weight on the groups tells to 14 %."""
    gang = request(
        tp=2, cp=8, pp=30, dp=6, traffic={"cp": 25, "pp": 3, "dp": 10}, order="tp-cp-dp-pp-ep"
    )
    grid = grid_of(gang)
    capacities = [128] * 24
    step = solve_zones(grid, capacities, capacities, Limits(rounds=25, trees=2_500))
    assert step.bound == step.cost == 4_032


def test_few_zones_round_a_ring_are_mended_by_single_moves() -> None:
    """Slicing trees end at 814, for one zone would have to be two leaves; the best known is 748."""
    gang = request(tp=2, pp=16, dp=89, traffic={"dp": 10, "pp": 3})
    grid = grid_of(gang)
    capacities = [819, 567, 521, 254]
    step = solve_zones(grid, capacities, capacities, Limits(rounds=10))
    assert step.cost <= 752
