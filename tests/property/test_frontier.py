"""The cheapest part of every size, against every part."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placement.bound.pathwidth import Walk, least_parts
from placement.search.graph_slicing import block_orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.every_part import least_of_parts
from tests.property.grids import graph_of, requests


@given(req=requests(), gpus=st.sampled_from([2, 3, 4, 6]), seed=st.integers(0, 2**32 - 1))
def test_parts_are_told_along_any_order(req: Request, gpus: int, seed: int) -> None:
    ranks = req.parallelism.world_size
    assume(ranks % gpus == 0 and 2 <= ranks // gpus <= 12)
    graph = graph_of(req, gpus)
    exact, offset = least_of_parts(graph)
    shuffled = np.random.default_rng(seed).permutation(graph.blocks)
    for each in ([shuffled], [np.arange(graph.blocks)], block_orders(req, gpus)):
        for most in (graph.blocks, graph.blocks // 2, 1):
            found = least_parts(graph, each, most, 10**9)
            if found is None:  # a handful of hosts may share a score of groups
                assert not any(Walk(graph, order.tolist()).is_narrow for order in each)
                continue
            assert found[1] == offset
            assert found[0].tolist() == exact[: most + 1].tolist()


def test_what_takes_too_long_is_not_told() -> None:
    graph = graph_of(request(tp=2, pp=4, dp=4, traffic={"pp": 1, "dp": 1}), 2)
    assert least_parts(graph, [np.arange(16)], 16, 1_000) is None


@pytest.mark.parametrize("collective", list(Collective))
def test_staggered_replicas_on_two_zones_are_proved(collective: Collective) -> None:
    """Rings of two and a half hosts, of which pairs share a host: along the stages few are open."""
    gang = request(
        tp=4,
        cp=5,
        pp=7,
        dp=2,
        traffic={"tp": 50_000, "cp": 1_000, "pp": 300, "dp": 1_000},
        collectives={"dp": collective},
        order="tp-cp-pp-dp-ep",
    )
    _, step = solve_ragged(gang, 8, [26, 24, 2], Limits())
    assert step.bound == step.cost
