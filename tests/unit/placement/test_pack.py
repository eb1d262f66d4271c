"""Packings whose best cut is known, and what becomes of the parts."""

import numpy as np
import pytest

from placement.fabric import hostset
from placement.placer import place
from placement.tiers.seating import best_fit
from placement.workload.request import Collective, Limits, Placement, Request
from tests.build import everything, place_checked, regular, request, two_tiers


def placed(zones: list[list[int]], job: Request, limits: Limits | None = None) -> Placement:
    fabric = two_tiers(*zones)
    return place_checked(fabric, everything(fabric), job, limits)


def test_parts_go_to_the_tightest_child_if_they_fit_any() -> None:
    fit = best_fit(np.array([5, 5, 5, 7]), [4, 3, 9, 1])
    assert fit is not None
    assert fit.tolist() == [1, 1, 1, 3]
    # Parts that do not fit are told.
    assert best_fit(np.array([0, 0, 1, 1]), [2, 1, 1]) is None
    assert best_fit(np.array([0, 1, 2]), [9, 9]) is None


@pytest.mark.parametrize(
    ("zone", "job", "cut"),
    [
        pytest.param(
            [8] * 6 + [7] * 6,
            request(pp=15, dp=6, traffic={"pp": 25, "dp": 1}),
            {"pp": 6 * 25},
            id="six chains of 15 end where racks do, and are cut once each",
        ),
        pytest.param(
            [8, 8, 8, 8],
            request(cp=5, dp=4, traffic={"cp": 100, "dp": 1}),
            {"cp": 0, "dp": 5 * 4},
            id="groups of five keep to racks of eight of their own",
        ),
        pytest.param(
            [3] * 8,
            request(cp=2, dp=8, traffic={"cp": 1_000, "dp": 1}),
            {"cp": 0},
            id="racks of three hold one heavy pair each and a host that no pair can use",
        ),
        pytest.param(
            [4] * 8,
            request(
                dp=4, pp=8, traffic={"dp": 9, "pp": 1}, collectives={"dp": Collective.HIERARCHICAL}
            ),
            {"dp": 0},
            id="hierarchical groups have racks of their own",
        ),
    ],
)
def test_racks_of_a_zone_are_cut_least(zone: list[int], job: Request, cut: dict[str, int]) -> None:
    by_axis = dict(placed([zone], job).cuts[1].by_axis)
    assert {axis: by_axis.get(axis, 0) for axis in cut} == cut


@pytest.mark.parametrize("seed", range(4))
def test_jobs_without_a_grid_are_packed_by_their_graph(seed: int) -> None:
    """Thirteen stages of two ranks, eight GPUs a host: in order is not good enough."""
    fabric = two_tiers([4, 3, 4, 3, 2], gpus=8)
    job = request(tp=2, pp=13, dp=4, traffic={"tp": 5, "pp": 9, "dp": 1 + seed})
    free = hostset.full(fabric.host_count)
    answer = place_checked(fabric, free, job)
    unsearched = place_checked(fabric, free, job, Limits(rounds=1, trees=0))
    assert answer.cuts[1].bytes_per_step <= unsearched.cuts[1].bytes_per_step
    assert answer == place(fabric, free, job)


def test_the_certificate_meets_what_can_be_reached() -> None:
    job = request(pp=4, dp=6, traffic={"pp": 10, "dp": 3})
    answer = placed([[6, 6, 6, 6], [5, 5, 5, 5]], job)
    assert answer.cuts[0].bytes_per_step == 0
    assert answer.inner is not None
    assert answer.inner.tier == "rack"
    assert answer.inner.bytes_per_step == answer.cuts[1].bytes_per_step


def test_no_certificate_where_a_bound_on_one_zone_does_not_hold() -> None:
    """Silent chains tie no stage to another: two zones would cut nothing outside either. Without a
    search there is none, nor where the outermost tier is cut."""
    chains, ring = request(pp=2, dp=4, traffic={"pp": 0, "dp": 3}), request(dp=6, traffic={"dp": 3})
    assert placed([[3, 3, 3], [3, 3]], chains).inner is None
    assert placed([[3, 3]], ring, Limits(rounds=0)).inner is None
    assert placed([[2, 2], [2, 2]], ring).inner is None


def test_large_regions_of_few_children_are_sliced() -> None:
    """Too many blocks for tables of segments: two bands of zones beat filled ones."""
    fabric = regular(("site", 1), ("zone", 6), ("host", 384), gpus=1)
    free = hostset.full(fabric.host_count)
    job = request(pp=16, dp=128, traffic={"dp": 10, "pp": 3})
    answer = place_checked(fabric, free, job)
    assert answer.cuts[1].bytes_per_step <= 864
    assert answer.inner is not None
    assert answer.inner.bytes_per_step > 700


def test_a_host_set_is_used_up_to_the_last_host() -> None:
    job = request(pp=3, dp=7, traffic={"pp": 2, "dp": 5})
    answer = placed([[4, 4, 4, 4, 5]], job)
    assert np.unique(answer.hosts).tolist() == list(range(21))
