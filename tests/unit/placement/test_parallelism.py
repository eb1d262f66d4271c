"""Ranks, strides and groups against the published examples."""

import pytest

from placement.workload.parallelism import AXES, Parallelism
from tests.build import coordinates, rank_at


@pytest.mark.parametrize(
    ("order", "strides"),
    [
        ("tp-cp-ep-dp-pp", {"tp": 1, "dp": 8, "pp": 1024}),  # Megatron default
        ("tp-cp-ep-pp-dp", {"tp": 1, "pp": 8, "dp": 128}),  # Llama 3
        ("dp-tp-pp", {"dp": 1, "tp": 128, "pp": 1024}),
        ("tp-dp-pp", {"tp": 1, "dp": 8, "pp": 1024}),  # TorchTitan's mesh [pp, dp, tp], reversed
    ],
)
def test_strides_follow_the_order(order: str, strides: dict[str, int]) -> None:
    parallelism = Parallelism(tp=8, pp=16, dp=128, order=order)
    assert {axis: parallelism.stride(axis) for axis in strides} == strides


@pytest.mark.parametrize("order", ["tp-cp-ep-pp-dp", "dp-pp-ep-cp-tp", "pp-tp-dp-ep-cp"])
def test_coordinates_invert_rank(order: str) -> None:
    parallelism = Parallelism(tp=2, cp=3, ep=1, pp=4, dp=5, order=order)
    at = [coordinates(parallelism, rank) for rank in range(parallelism.world_size)]
    assert [rank_at(parallelism, **c) for c in at] == list(range(120))
    assert all(c[axis] < parallelism.size(axis) for c in at for axis in AXES)


@pytest.mark.parametrize("axis", AXES)
def test_groups_partition_the_ranks(axis: str) -> None:
    parallelism = Parallelism(tp=2, cp=2, ep=3, pp=4, dp=5, order="ep-dp-tp-pp-cp")
    groups = parallelism.groups(axis)
    assert sorted(r for g in groups for r in g) == list(range(240))
    for group in groups:
        others = [
            {a: i for a, i in coordinates(parallelism, r).items() if a != axis} for r in group
        ]
        assert all(o == others[0] for o in others)
        assert [coordinates(parallelism, r)[axis] for r in group] == list(range(len(group)))
    assert [g[0] for g in groups] == sorted(g[0] for g in groups)


def test_an_axis_left_out_of_the_order_has_size_one() -> None:
    parallelism = Parallelism(tp=2, dp=3, order="tp-dp")
    assert parallelism.world_size == 6
    assert parallelism.groups("pp") == [[r] for r in range(6)]
