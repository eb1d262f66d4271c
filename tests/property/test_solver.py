"""The solver's parts against plain counting, on instances small enough to try them all."""

from collections.abc import Mapping
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.bound.pricing import Pricer, pattern_cost
from placement.bound.rounding import attainable, stairs
from placement.bound.size_relaxation import SizeBound
from placement.grid.block_grid import BlockGrid, joint_cost, shared
from placement.grid.layout import counts, layout_cost
from placement.kernels import INFINITE
from placement.objective.cut import cut_by_axis
from placement.proof import branching, node
from placement.proof.branch_and_price import Prover
from placement.proof.branching import Decision
from placement.proof.master import Counter, Master, Range
from placement.replace.swaps import added_cut
from placement.solver import LpSolution
from placement.tiers.grid_zones import solve_zones
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.property.grids import assignments, grid_of, requests


@given(req=requests(), seed=st.integers(0, 2**32 - 1))
def test_a_layouts_cost_is_what_the_referee_counts(req: Request, seed: int) -> None:
    grid = grid_of(req)
    layout = np.random.default_rng(seed).integers(0, 3, (grid.rows, grid.width))
    domain_by_block = np.empty(grid.size, dtype=np.int64)
    domain_by_block[grid.block] = layout
    counted = sum(b for _, b in cut_by_axis(req, 2, domain_by_block))
    # hierarchical axes carry w n/(n-1), which the referee rounds to whole bytes by axis
    assert abs(float(grid.to_bytes(layout_cost(grid, layout))) - counted) <= 2


@given(req=requests(), seed=st.integers(0, 2**32 - 1))
def test_zones_pay_at_least_what_the_grid_says(req: Request, seed: int) -> None:
    """The inequality that every bound rests on, for any layout."""
    grid = grid_of(req)
    layout = np.random.default_rng(seed).integers(0, 3, (grid.rows, grid.width))
    patterns = [tuple(int(n) for n in rows) for rows in counts(layout, 3)]
    cost = layout_cost(grid, layout)
    assert sum(pattern_cost(grid, pattern) for pattern in patterns) - grid.offset <= cost
    other = shared(grid)
    if other is not None:
        assert sum(pattern_cost(other, pattern) for pattern in patterns) - other.offset <= 2 * cost


def test_what_a_zone_misses_of_every_group_is_paid_for() -> None:
    """Two zones of which one lacks three of 48 hosts a stage: it cannot lack whole groups of
    one axis while the other zone holds few groups of the other axis."""
    gang = request(
        tp=2,
        cp=16,
        pp=2,
        dp=3,
        traffic={"cp": 900, "dp": 100, "pp": 900},
        collectives={"cp": Collective.HIERARCHICAL},
        order="tp-cp-pp-dp-ep",
    )
    grid = grid_of(gang)
    step = solve_zones(grid, [90, 40], [90, 40], Limits())
    assert step.bound == step.cost
    other = shared(grid)
    assert other is not None
    whole = np.ones((grid.rows, grid.width), dtype=np.bool_)
    by_sizes = [SizeBound(each).least_cut(whole, [90, 40]) for each in (grid, other)]
    assert 2 * by_sizes[0] < by_sizes[1] == 2 * step.cost


@given(zones=st.lists(st.integers(1, 40), min_size=1, max_size=8), missing=st.integers(0, 5))
def test_zones_climb_every_staircase(zones: list[int], missing: int) -> None:
    """Whatever sizes cover the target, rows and gangs alike."""
    target = max(1, sum(zones) - missing)
    for rise, run, whole, rest in zip(*stairs(target, max(zones)), strict=True):
        counter = Counter(0, rise=int(rise), run=int(run), top=int(rest))
        climbed = counter.values(max(zones) + 1)[zones].sum()
        assert climbed >= (whole + 1) * rest


@given(req=requests(most=9))
def test_a_slice_costs_at_least_its_step(req: Request) -> None:
    """Against every subset of one row: step[n] is never above the cheapest n slots."""
    grid = grid_of(req)
    for chosen in product((0, 1), repeat=grid.width):
        layout = np.tile(np.array(chosen), (grid.rows, 1))
        zones = counts(layout, 2)[:, 0]
        paid = grid.rows * int(grid.step[zones].sum()) - grid.offset
        assert paid <= layout_cost(grid, layout)


@given(
    rows=st.integers(1, 4),
    width=st.integers(1, 4),
    capacity=st.integers(1, 9),
    row_weight=st.integers(0, 9),
    dearer=st.integers(0, 9),
    reach=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    floor=st.integers(0, 5),
    lot=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_prices_of_all_patterns(
    rows: int,
    width: int,
    capacity: int,
    row_weight: int,
    dearer: int,
    reach: tuple[int, int],
    floor: int,
    lot: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.integers(-20, 30, (rows, width + 1))
    size_price = rng.integers(-9, 9, capacity + 1)
    bent = ((row_weight, reach[0]), (row_weight + dearer, reach[1]))
    slopes = [bent if s % 2 else ((row_weight, width),) for s in range(rows - 1)]
    joint = [joint_cost(each, width) for each in slopes]
    pricer = Pricer(rows, width, capacity, slopes, [floor] * (rows - 1), lot)
    for _ in range(2):  # the tables are used again
        pricer.price(cost, size_price)

    def price(pattern: tuple[int, ...]) -> int:
        between = sum(
            int(joint[s][abs(a - b)]) + floor * (a != b or a not in (0, width))
            for s, (a, b) in enumerate(pairwise(pattern))
        )
        slots = sum(int(cost[s, n]) for s, n in enumerate(pattern))
        return slots + between - int(size_price[sum(pattern)])

    every = [p for p in product(range(width + 1), repeat=rows) if sum(p) and sum(p) % lot == 0]
    for most in range(1, capacity + 1):
        if prices := [price(p) for p in every if sum(p) == most]:
            assert pricer.by_used[most] == min(prices)
        least = min((price(p) for p in every if sum(p) <= most), default=INFINITE)
        assert (pricer.best[most] == least) or (least >= INFINITE // 2 < pricer.best[most])
        if least < INFINITE // 2:
            [found] = pricer.patterns([most])
            assert least == price(found)
            assert 1 <= sum(found) <= most


def cheapest(grid: BlockGrid, capacities: list[int]) -> int:
    """The least doubled cut over every layout that the capacities allow."""
    every = (np.array(at).reshape(grid.rows, -1) for at in assignments(grid.size, capacities))
    return min(layout_cost(grid, layout) for layout in every)


def test_a_split_leaves_out_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tree of some sixty nodes: the two ranges follow each other, and make up the parent's."""
    splits = list[tuple[Mapping[Counter, Range], tuple[Decision, Decision] | None]]()

    def watched(
        master: Master,
        solution: LpSolution,
        ranges: Mapping[Counter, Range],
        zones: int,
        gap: float,
    ) -> tuple[Decision, Decision] | None:
        splits.append((ranges, branching.split(master, solution, ranges, zones, gap)))
        return splits[-1][1]

    monkeypatch.setattr(node, "split", watched)
    grid = grid_of(request(tp=2, pp=8, dp=12, traffic={"pp": 1, "dp": 4}))
    Prover(grid, [30, 26, 20, 14, 9], []).prove(10**6, 60)
    parted = [(ranges, halves) for ranges, halves in splits if halves is not None]
    assert len(parted) > 20
    for ranges, ((counter, (low, below)), (other, (above, high))) in parted:
        assert counter == other
        assert above == below + 1
        assert ranges.get(counter, (0, 5)) == (low, high)


@settings(max_examples=60)
@given(
    req=requests(most=8),
    capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    reserve=st.integers(0, 1),
)
def test_the_zone_step_encloses_the_optimum(
    req: Request, capacities: list[int], reserve: int
) -> None:
    """Every stage of it: sizes, trees, patterns, the small program, refinement."""
    grid = grid_of(req)
    if sum(capacities) < grid.size or not grid.weights or max(capacities) >= grid.size:
        return
    reserved = [max(0, c - reserve) for c in capacities]
    step = solve_zones(grid, capacities, reserved, Limits(rounds=30, trees=60))
    assert np.all(np.bincount(step.layout.ravel(), minlength=len(capacities)) <= capacities)
    assert step.bound <= cheapest(grid, capacities) <= step.cost == layout_cost(grid, step.layout)


@given(req=requests(), doubled=st.integers(0, 500))
def test_attainable_is_the_next_sum_of_edges(req: Request, doubled: int) -> None:
    grid = grid_of(req)
    weights = sorted({2 * w for w in grid.weights})
    up = attainable(grid, doubled)
    assert up >= doubled
    if not 1 <= len(weights) <= 3:
        return
    reachable = {0}
    for weight in weights:
        most = 600 // weight + 2
        reachable = {value + i * weight for value in reachable for i in range(most)}
    assert up == min(value for value in reachable if value >= doubled)


@given(req=requests(), block=st.integers(0, 23), seed=st.integers(0, 2**32 - 1))
def test_added_cut_is_the_referees_difference(req: Request, block: int, seed: int) -> None:
    blocks = req.hosts_needed(2)
    block %= blocks
    domains = np.random.default_rng(seed).integers(0, 4, blocks)
    added = added_cut(req, 2, domains, block, 4)
    cuts = []
    for domain in range(4):
        domains[block] = domain
        cuts.append(sum(b for _, b in cut_by_axis(req, 2, domains)))
    for a, b in product(range(4), repeat=2):
        assert abs((added[a] - added[b]) - (cuts[a] - cuts[b])) <= 2
