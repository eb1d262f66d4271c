"""Parts priced by the kind of their blocks, and bounds from them, against every part and layout."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from placement.bound import part_master as held
from placement.bound.frontier import Walk
from placement.bound.part_master import least_by_held
from placement.bound.part_pricing import Course, PartPricer, kinds_by_edges
from placement.bound.part_sizes import PartBound
from placement.bound.ring_width import courses_around
from placement.bound.size_relaxation import least_sizes, least_sum
from placement.fabric.tree import Ints
from placement.graph.exhaustive import best_partition
from placement.graph.hypergraph import Hypergraph, block_graph
from placement.grid.isoperimetry import MUCH
from placement.search.graph_portfolio import orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.property.grids import requests

MUCH_WORK = 10**9


def graph_of(req: Request, gpus: int) -> Hypergraph:
    graph = block_graph(req, gpus)
    assert graph is not None
    return graph


def paid_by_all(graph: Hypergraph) -> tuple[Ints, Ints]:
    """Every part, and what it pays. Shapes: (parts, blocks), (parts,)."""
    parts = np.arange(1 << graph.blocks)[:, None] >> np.arange(graph.blocks) & 1
    paid = (parts[:, graph.tail] != parts[:, graph.head]) @ graph.weight
    for group, weight in enumerate(graph.group_weight.tolist()):
        paid = paid + 2 * weight * parts[:, graph.members[graph.group == group]].any(axis=1)
    return parts, paid


def check_prices(
    graph: Hypergraph, courses: list[Course], mixed: int, budget: int, slope: int, seed: int
) -> None:
    """No part pays less; whoever is known pays just that, and holds what it says."""
    parts, paid = paid_by_all(graph)
    most = graph.blocks
    kind = kinds_by_edges(graph, most)
    held = parts @ np.eye(int(kind.max()) + 1, dtype=np.int64)[kind]
    highest = int(paid.max()) // most + 1
    price = np.random.default_rng(seed).integers(-highest, highest + 1, held.shape[1])
    found = PartPricer(kind, most, courses, mixed).least(price, slope, budget, MUCH_WORK)
    assert found is not None
    for size in range(1, most + 1):
        of_size = parts.sum(axis=1) == size
        least = (paid - held @ price)[of_size].min()
        assert found.cost[size] <= least
        if mixed < MUCH:
            continue
        assert found.is_known[size] == (least <= budget - slope * size)
        if found.is_known[size]:
            assert found.cost[size] == least
            is_such = of_size & (held == found.held[size]).all(axis=1)
            assert paid[is_such].min() - found.held[size] @ price == least


@given(
    req=requests(),
    gpus=st.sampled_from([2, 3, 4, 6]),
    share=st.floats(-1, 2),
    slope=st.integers(-10, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_parts_are_the_cheapest(
    req: Request, gpus: int, share: float, slope: int, seed: int
) -> None:
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 2 <= ranks // gpus <= 12)
    graph = graph_of(req, gpus)
    _, paid = paid_by_all(graph)
    budget = int(share * paid.max())
    for order in orders(req, gpus):
        walk = Walk(graph, order.tolist())
        if walk.is_narrow:
            check_prices(graph, [Course(walk)], int(MUCH), budget, slope, seed)
    around = courses_around(graph, orders(req, gpus), MUCH_WORK)
    if around is not None:
        check_prices(graph, around[0], around[1], budget, slope, seed)


@given(
    req=requests(),
    gpus=st.sampled_from([2, 3, 4, 6]),
    room=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_layout_cuts_less(req: Request, gpus: int, room: list[int], seed: int) -> None:
    """Whatever layout the prices begin with; and sizes alone tell no more."""
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 2 <= ranks // gpus <= 8)
    graph = graph_of(req, gpus)
    assume(sum(room) >= graph.blocks)
    best = graph.cost(best_partition(graph, room))
    zones = np.repeat(np.arange(len(room)), room)[: graph.blocks]
    layout = np.random.default_rng(seed).permutation(zones)
    along = [np.arange(graph.blocks), *orders(req, gpus)]
    found, is_all = least_by_held(graph, along, room, layout, 0, MUCH_WORK)
    assert found <= 2 * best
    if is_all and not courses_around(graph, along, MUCH_WORK):
        by_sizes = PartBound(graph, along).least_cut(room, MUCH_WORK)
        assert found >= min(by_sizes, 2 * graph.cost(layout)) * (1 - 2 * held.CLOSED)


@given(
    blocks=st.integers(1, 30),
    room=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_sizes_are_those_of_the_least_sum(blocks: int, room: list[int], seed: int) -> None:
    assume(sum(room) >= blocks)
    cost = np.random.default_rng(seed).integers(0, 100, max(room) + 1)
    cost[0] = 0
    least, sizes = least_sizes(blocks, room, cost)
    assert least == least_sum(blocks, room, cost) == sizes @ cost
    assert sizes @ np.arange(len(sizes)) == blocks
    largest = np.repeat(np.arange(len(sizes)), sizes)[::-1]
    assert all(size <= most for size, most in zip(largest, sorted(room)[::-1], strict=False))


def test_too_much_work_is_not_done() -> None:
    graph = graph_of(request(tp=2, pp=4, dp=4), 2)
    layout = np.repeat([0, 1], 8)
    assert least_by_held(graph, [np.arange(16)], [8, 8], layout, 3, 100) == (3, False)


def test_stages_of_two_replicas_a_host_are_proved() -> None:
    """What zones of these sizes cut at least is three quarters of what is needed, for the cheapest
    parts all hold the first stages."""
    gang = request(
        tp=1,
        pp=16,
        dp=9,
        traffic={"tp": 6_966_300, "pp": 139_326, "dp": 83_282},
        order="tp-cp-pp-dp-ep",
    )
    _, step = solve_ragged(gang, 8, [7, 3, 3, 2, 2, 2, 1, 1], Limits())
    assert step.bound == step.cost


def test_groups_on_odd_zones_are_proved_closer() -> None:
    gang = request(
        tp=2,
        pp=7,
        dp=52,
        traffic={"tp": 250_000, "pp": 300, "dp": 5_000},
        collectives={"dp": Collective.HIERARCHICAL},
    )
    _, step = solve_ragged(gang, 8, [29, 23, 19, 19, 18, 16, 13, 13], Limits())
    assert step.bound >= 0.97 * step.cost
