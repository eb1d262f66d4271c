"""What parts of a gang pay by their levels, against every part; and what layouts do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement.blockgraph import BlockGraph, block_graph
from placement.blocks import orders
from placement.fabric import Ints
from placement.kinds import kinds_of
from placement.levels import Levels
from placement.parts import PartBound
from placement.ragged import solve_ragged
from placement.request import Limits, Request
from placement.tiny import best_partition, least_of_parts
from tests.build import request

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


def graph_of(req: Request, gpus: int) -> BlockGraph:
    graph = block_graph(req, gpus)
    assert graph is not None
    return graph


def by_levels(req: Request, gpus: int, most: int, work: int = MUCH_WORK) -> Ints | None:
    kinds = kinds_of(graph_of(req, gpus), orders(req, gpus))
    return None if kinds is None else Levels(kinds).least(most, work)


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
        found = by_levels(gang, 8, most)
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
    found = by_levels(gang, gpus, graph.blocks)
    assert found is not None
    assert found.tolist() == least_of_parts(graph)[0].tolist()


def test_too_much_work_is_not_done() -> None:
    assert by_levels(staggered(3, 2, 4, (9, 1, 2)), 8, 6, 100) is None


@given(
    sizes=st.sampled_from(shapes(most=8)),
    weights=WEIGHTS,
    room=st.lists(st.integers(1, 6), max_size=4),
)
@example((3, 1, 4), (5, 0, 1), [3, 2])
@example((1, 2, 6), (0, 2, 3), [3])
def test_no_layout_cuts_less_than_what_is_shared_out(
    sizes: tuple[int, int, int], weights: tuple[int, int, int], room: list[int]
) -> None:
    gang = staggered(*sizes, weights)
    graph = graph_of(gang, 8)
    zones = [*room, max(1, graph.blocks - sum(room))]
    cut = 2 * graph.cost(best_partition(graph, zones))
    parts = PartBound(graph, orders(gang, 8))
    assert parts.least_by_levels(zones) <= cut
    assert parts.least_shared(zones, 0, cut + 100) <= cut  # whatever it aims at


def test_zones_cannot_all_have_the_end_of_the_pipeline() -> None:
    """Each of three zones would cut least there; by sizes alone a ninth of the cut is open."""
    gang = staggered(5, 6, 36, (900, 900, 100))
    graph = graph_of(gang, 8)
    parts = PartBound(graph, orders(gang, 8))
    _, step = solve_ragged(gang, 8, [362, 175, 3], Limits())
    assert parts.least_by_levels([362, 175, 3]) < step.cost
    assert step.bound == step.cost


@pytest.mark.parametrize(
    ("gang", "room"),
    [
        # Stages in pairs of five hosts, a range of replicas of one pair beside: two kinds of rings.
        (staggered(5, 6, 44, (467_234, 22_895, 467_234)), [362, 309, 176]),
        # A replica is not whole hosts: rings go through every other kind of block.
        (staggered(5, 9, 4, (145_107, 119_327, 145_107)), [57, 43, 37, 22]),
    ],
)
def test_bands_of_stages_are_proved(gang: Request, room: list[int]) -> None:
    """By cells alone a third and half of the cut are open."""
    _, step = solve_ragged(gang, 8, room, Limits())
    assert step.bound == step.cost
