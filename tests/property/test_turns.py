"""The cheapest part of every size round a ring, against every part."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placement.bound import ring_width as turns
from placement.bound.ring_width import least_around
from placement.graph.hypergraph import Hypergraph
from placement.search.graph_slicing import block_orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Limits, Request
from tests.build import request
from tests.every_part import least_of_parts
from tests.property.grids import graph_of, requests

MUCH_WORK = 10**9


def exact(graph: Hypergraph) -> list[int]:
    return least_of_parts(graph)[0].tolist()


@given(
    req=requests(),
    gpus=st.sampled_from([2, 3, 4, 6]),
    share=st.floats(0, 1.5),
    gates=st.tuples(st.integers(1, 4), st.integers(1, 12)),
    seed=st.none() | st.integers(0, 2**32 - 1),
)
def test_no_part_pays_less(
    req: Request, gpus: int, share: float, gates: tuple[int, int], seed: int | None
) -> None:
    """Whatever the budget and the gates, and along whatever order the ring is gone round."""
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 4 <= ranks // gpus <= 12)
    graph = graph_of(req, gpus)
    assume(not len(graph.group))
    least = exact(graph)
    budget = int(share * max(least))
    along = block_orders(req, gpus)
    if seed is not None:
        along = [np.random.default_rng(seed).permutation(graph.blocks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "FEWEST_GATES", gates[0])
        patch.setattr(turns, "MOST_GATES", gates[1])
        for most in (graph.blocks, graph.blocks // 2):
            found = least_around(graph, along, most, budget, -1, MUCH_WORK)
            if found is None:
                continue
            # What is mixed, or beyond the budget, is told by one number, the highest.
            for paid, at_least in zip(least, found.tolist(), strict=False):
                assert at_least <= paid
                assert at_least == paid or at_least == max(found)


def test_too_much_work_is_not_done() -> None:
    graph = graph_of(request(tp=4, cp=3, dp=12, order="tp-cp-dp-pp-ep"), 8)
    assert least_around(graph, [np.arange(18)], 18, 10**9, -1, 100) is None


def test_groups_cut_by_hosts_are_proved_round_the_ring() -> None:
    """Rings of five cells on hosts of two, in nine stages of four replicas: by cells alone half of
    the cut is open."""
    gang = request(
        tp=4,
        cp=5,
        pp=9,
        dp=4,
        traffic={"tp": 7_255_350, "cp": 145_107, "pp": 119_327, "dp": 145_107},
        order="tp-cp-pp-dp-ep",
    )
    _, step = solve_ragged(gang, 8, [57, 43, 37, 22], Limits())
    assert step.bound == step.cost
