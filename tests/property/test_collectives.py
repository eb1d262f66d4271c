"""What holds for any group in any zones, in any order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from network.collectives.schedules import Algorithm, Operation, algorithms, schedule_of
from placement.objective.cut import cut_by_axis
from placement.workload.request import Collective
from scripts.published.collectives import kappa
from tests.build import request

ZONES = st.lists(st.integers(0, 4), min_size=2, max_size=40).map(np.array)
ALL_REDUCE = Operation.ALL_REDUCE
GATHERED = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)


@given(ZONES)
def test_no_all_reduce_crosses_less_than_the_bound(zones: np.ndarray) -> None:
    bound = 2 * (len(np.unique(zones)) - 1)
    for algorithm in algorithms(ALL_REDUCE):
        assert kappa(schedule_of(ALL_REDUCE, algorithm, zones), zones) >= bound


@given(ZONES)
def test_the_hierarchy_meets_the_bound_wherever_the_ranks_lie(zones: np.ndarray) -> None:
    spanned = len(np.unique(zones))
    plan = schedule_of(ALL_REDUCE, Algorithm.HIERARCHICAL, zones)
    assert kappa(plan, zones) == 2 * (spanned - 1)


@given(ZONES)
def test_a_reduce_scatter_crosses_what_its_all_gather_does(zones: np.ndarray) -> None:
    for algorithm in algorithms(Operation.ALL_GATHER):
        gather, scatter = (schedule_of(half, algorithm, zones) for half in GATHERED)
        assert kappa(gather, zones) == kappa(scatter, zones)


@given(ZONES)
def test_the_referee_counts_rings_and_hierarchies_the_same(zones: np.ndarray) -> None:
    """An edge of w bytes is a payload of w n / 2(n-1)."""
    n = len(zones)
    edge = 2 * (n - 1) * 1_000
    for algorithm, collective in (
        (Algorithm.RING, Collective.RING),
        (Algorithm.HIERARCHICAL, Collective.HIERARCHICAL),
    ):
        req = request(dp=n, traffic={"dp": edge}, collectives={"dp": collective})
        counted = dict(cut_by_axis(req, 1, zones)).get("dp", 0)
        assert counted == kappa(schedule_of(ALL_REDUCE, algorithm, zones), zones) * 1_000 * n
