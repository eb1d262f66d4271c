"""What parts of a gang with a cyclic symmetry pay at least, against every part."""

from collections.abc import Sequence
from itertools import product
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement.bound.orbits import least_by_orbits
from placement.fabric.tree import Ints
from placement.search.graph_slicing import block_orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Limits, Request
from tests.build import request
from tests.every_part import least_of_parts
from tests.property.grids import graph_of

MUCH_WORK = 10**9
ORDER = ("cp", "pp", "dp", "ep")
WEIGHTS = st.tuples(*[st.integers(0, 12)] * 3)


def shapes(most: int) -> list[tuple[int, int, int]]:
    """Context groups, stages and replicas on four to so many hosts of two ranks each."""
    return [
        sizes
        for sizes in product(range(1, 6), range(1, 5), range(2, 9))
        if 8 <= prod(sizes) <= 2 * most and prod(sizes) % 2 == 0
    ]


def by_orbits(req: Request, gpus: int, most: int, work: int = MUCH_WORK) -> Ints | None:
    return least_by_orbits(graph_of(req, gpus), block_orders(req, gpus), most, work)


def staggered(
    cp: int, pp: int, dp: int, weights: tuple[int, int, int], order: Sequence[str] = ORDER
) -> Request:
    """A host may end inside a stage, or every second one."""
    traffic = dict(zip(("cp", "pp", "dp"), weights, strict=True))
    along = "-".join(("tp", *order))
    return request(tp=4, cp=cp, pp=pp, dp=dp, traffic=traffic, order=along)


@given(
    sizes=st.sampled_from(shapes(most=14)),
    weights=WEIGHTS,
    order=st.permutations(["cp", "pp", "dp", "ep"]),
)
@example((3, 1, 8), (5, 0, 1), ["cp", "pp", "dp", "ep"])
@example((3, 2, 4), (1, 1, 1), ["cp", "pp", "dp", "ep"])
@example((5, 1, 4), (1, 0, 3), ["cp", "pp", "dp", "ep"])
def test_no_part_pays_less(
    sizes: tuple[int, int, int], weights: tuple[int, int, int], order: list[str]
) -> None:
    gang = staggered(*sizes, weights, order)
    graph = graph_of(gang, 8)
    for most in (graph.blocks, graph.blocks // 2):
        found = by_orbits(gang, 8, most)
        if found is not None:
            least = least_of_parts(graph)[0][: most + 1]
            assert (found <= least).all()
            assert len(found) == most + 1


@pytest.mark.parametrize(
    ("gang", "gpus"),
    [
        (request(tp=2, pp=3, dp=4, traffic={"pp": 2, "dp": 3}, order="tp-pp-dp-cp-ep"), 2),
        (staggered(3, 2, 4, (9, 1, 2)), 8),
        (staggered(3, 1, 8, (5, 0, 1)), 8),
    ],
)
def test_often_they_pay_no_more(gang: Request, gpus: int) -> None:
    graph = graph_of(gang, gpus)
    found = by_orbits(gang, gpus, graph.blocks)
    assert found is not None
    assert found.tolist() == least_of_parts(graph)[0].tolist()


def test_too_much_work_is_not_done() -> None:
    assert by_orbits(staggered(3, 2, 4, (9, 1, 2)), 8, 6, 100) is None


def test_replicas_of_two_and_a_half_hosts_are_proved_close() -> None:
    """A context group is two and a half hosts, and every other replica begins inside one."""
    gang = request(
        tp=4,
        cp=5,
        pp=7,
        dp=14,
        traffic={"tp": 250_000, "cp": 25_000, "pp": 300, "dp": 5_000},
        order="tp-cp-pp-dp-ep",
    )
    _, step = solve_ragged(gang, 8, [135, 89, 61, 20], Limits())
    assert step.bound >= 0.95 * step.cost
