"""What a part of a gang pays at least, by each of three bounds, against every part of a small
graph."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from placement.bound import ring_width
from placement.bound.orbits import least_by_orbits
from placement.bound.pathwidth import Walk, least_parts
from placement.bound.ring_width import least_around
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.search.graph_slicing import block_orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.cases import case
from tests.property.grids import graph_of, requests

MUCH_WORK = 10**9
GPUS = st.sampled_from([2, 3, 4, 6])
SEEDS = st.integers(0, 2**32 - 1)
# Context groups, stages and replicas on 4 to 14 hosts of two ranks each.
STAGGERED = [
    sizes
    for sizes in product(range(1, 6), range(1, 5), range(2, 9))
    if 8 <= prod(sizes) <= 28 and prod(sizes) % 2 == 0
]


def least_of_parts(graph: Hypergraph) -> tuple[Ints, int]:
    """What a zone with n = 0 .. all blocks pays at least, doubled, and what all zones
    together pay too much: 2 cut >= sum over zones of least[n] - offset.

    A zone pays each of its cut edges, and twice the weight of each group that it touches.
    For up to some 16 blocks. Shape: (blocks + 1,).
    """
    graph = graph.pairwise()
    near = np.zeros((graph.blocks, graph.blocks), dtype=np.int64)
    np.add.at(near, (graph.tail, graph.head), graph.weight)
    near += near.T
    paid = np.zeros(1, dtype=np.int64)
    for block, weights in enumerate(near):
        saved = np.zeros(1, dtype=np.int64)  # twice what goes to blocks of the part
        for weight in weights[:block].tolist():
            saved = np.concatenate([saved, saved + 2 * weight])
        paid = np.concatenate([paid, paid + int(weights.sum()) - saved])
    every = np.arange(1 << graph.blocks)
    for group, weight in enumerate(graph.group_weight):
        members = np.bitwise_or.reduce(1 << graph.members[graph.group == group])
        paid += 2 * weight * (every & members != 0)
    size = np.bitwise_count(every)
    least = np.array([paid[size == n].min() for n in range(graph.blocks + 1)])
    return least, 2 * int(graph.group_weight.sum())


def staggered(cp: int, pp: int, dp: int, weights: tuple[int, ...], order: list[str]) -> Request:
    """A host of eight GPUs may end inside a stage, or every second one."""
    traffic = dict(zip(("cp", "pp", "dp"), weights, strict=True))
    return request(tp=4, cp=cp, pp=pp, dp=dp, traffic=traffic, order="-".join(["tp", *order]))


ORDER = ["cp", "pp", "dp", "ep"]


@given(req=requests(), gpus=GPUS, seed=SEEDS)
def test_along_any_order_each_size_pays_what_its_cheapest_part_does(
    req: Request, gpus: int, seed: int
) -> None:
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 2 <= ranks // gpus <= 12)
    graph = graph_of(req, gpus)
    exact, offset = least_of_parts(graph)
    shuffled = np.random.default_rng(seed).permutation(graph.blocks)
    for each in ([shuffled], [np.arange(graph.blocks)], block_orders(req, gpus)):
        for most in (graph.blocks, graph.blocks // 2, 1):
            found = least_parts(graph, each, most, MUCH_WORK)
            if found is None:  # a handful of hosts may share a score of groups
                assert not any(Walk(graph, order.tolist()).is_narrow for order in each)
                continue
            assert found[1] == offset
            assert found[0].tolist() == exact[: most + 1].tolist()


@given(
    req=requests(),
    gpus=GPUS,
    share=st.floats(0, 1.5),
    gates=st.tuples(st.integers(1, 4), st.integers(1, 12)),
    seed=st.none() | SEEDS,
)
def test_round_a_ring_no_part_pays_less(
    req: Request, gpus: int, share: float, gates: tuple[int, int], seed: int | None
) -> None:
    """Whatever the budget and the gates, and along whatever order the ring is gone round."""
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 4 <= ranks // gpus <= 12)
    graph = graph_of(req, gpus)
    assume(not len(graph.group))
    least = least_of_parts(graph)[0].tolist()
    budget = int(share * max(least))
    along = block_orders(req, gpus)
    if seed is not None:
        along = [np.random.default_rng(seed).permutation(graph.blocks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring_width, "FEWEST_GATES", gates[0])
        patch.setattr(ring_width, "MOST_GATES", gates[1])
        for most in (graph.blocks, graph.blocks // 2):
            found = least_around(graph, along, most, budget, -1, MUCH_WORK)
            if found is None:
                continue
            # What is mixed, or beyond the budget, is told by one number, the highest.
            for paid, at_least in zip(least, found.tolist(), strict=False):
                assert at_least <= paid
                assert at_least == paid or at_least == max(found)


@given(
    sizes=st.sampled_from(STAGGERED),
    weights=st.tuples(*[st.integers(0, 12)] * 3),
    order=st.permutations(ORDER),
)
@example((3, 1, 8), (5, 0, 1), ORDER)
@example((3, 2, 4), (1, 1, 1), ORDER)
@example((5, 1, 4), (1, 0, 3), ORDER)
def test_by_orbits_no_part_pays_less(
    sizes: tuple[int, int, int], weights: tuple[int, ...], order: list[str]
) -> None:
    gang = staggered(*sizes, weights, order)
    graph = graph_of(gang, 8)
    for most in (graph.blocks, graph.blocks // 2):
        found = least_by_orbits(graph, block_orders(gang, 8), most, MUCH_WORK)
        if found is not None:
            assert (found <= least_of_parts(graph)[0][: most + 1]).all()
            assert len(found) == most + 1


@pytest.mark.parametrize(
    ("gang", "gpus"),
    [
        (request(tp=2, pp=3, dp=4, traffic={"pp": 2, "dp": 3}, order="tp-pp-dp-cp-ep"), 2),
        (staggered(3, 2, 4, (9, 1, 2), ORDER), 8),
        (staggered(3, 1, 8, (5, 0, 1), ORDER), 8),
    ],
)
def test_by_orbits_some_part_often_pays_no_more(gang: Request, gpus: int) -> None:
    graph = graph_of(gang, gpus)
    found = least_by_orbits(graph, block_orders(gang, gpus), graph.blocks, MUCH_WORK)
    assert found is not None
    assert found.tolist() == least_of_parts(graph)[0].tolist()


def test_too_much_work_is_not_done() -> None:
    path = graph_of(request(tp=2, pp=4, dp=4, traffic={"pp": 1, "dp": 1}), 2)
    assert least_parts(path, [np.arange(16)], 16, 1_000) is None
    ring = graph_of(request(tp=4, cp=3, dp=12, order="tp-cp-dp-pp-ep"), 8)
    assert least_around(ring, [np.arange(18)], 18, 10**9, -1, 100) is None
    gang = staggered(3, 2, 4, (9, 1, 2), ORDER)
    assert least_by_orbits(graph_of(gang, 8), block_orders(gang, 8), 6, 100) is None


@pytest.mark.parametrize(
    ("pp", "dp", "sent", "zones", "share", "collectives"),
    [
        pytest.param(
            *(7, 2, (50_000, 1_000, 300, 1_000), [26, 24, 2], 1, list(Collective)),
            id="along the stages few pairs are open",
        ),
        pytest.param(
            *(9, 4, (7_255_350, 145_107, 119_327, 145_107), [57, 43, 37, 22], 1),
            [Collective.RING],
            id="round the ring groups are cut by hosts",
        ),
        pytest.param(
            *(7, 14, (250_000, 25_000, 300, 5_000), [135, 89, 61, 20], 0.95, [Collective.RING]),
            id="every second replica begins inside a host",
        ),
    ],
)
def test_groups_of_two_and_a_half_hosts_are_proved(
    pp: int,
    dp: int,
    sent: tuple[int, ...],
    zones: list[int],
    share: float,
    collectives: list[Collective],
) -> None:
    """By cells alone half of the cut is open."""
    for collective in collectives:
        with case(collective=collective):
            gang = request(
                tp=4,
                cp=5,
                pp=pp,
                dp=dp,
                traffic=dict(zip(("tp", "cp", "pp", "dp"), sent, strict=True)),
                collectives={"dp": collective},
                order="tp-cp-pp-dp-ep",
            )
            _, step = solve_ragged(gang, 8, zones, Limits())
            assert step.bound >= share * step.cost
