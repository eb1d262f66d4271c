"""Numbers and comparisons of the engine on which an answer turns: each has a case that tells."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from placement.fabric import hostset
from placement.fabric.tree import Fabric, view_for_gpus
from placement.placer import _SegmentPlacer
from placement.tiers.bound_proofs import common_room
from placement.tiers.shape import _slots
from placement.workload.request import Limits, Objective, Placement, StepBound
from tests.build import place_checked, request, two_tiers, unlike

FAST, SLOW = {"nic_gbps": 800, "scale_up_gbps": 7200}, {"nic_gbps": 200, "scale_up_gbps": 1800}


def two_speeds(gpus: int) -> Fabric:
    """Hosts of so many GPUs at two speeds, beside others of 8."""
    fast, slow = ((2, {"gpus_per_host": gpus, **speed}) for speed in (FAST, SLOW))
    return unlike((2, {}), fast, slow)


def test_a_gang_sees_its_slowest_host_and_slots_the_fastest_so_that_bounds_hold() -> None:
    seen = view_for_gpus(two_speeds(4), 4)
    assert (seen.nic_gbps, seen.scale_up_gbps) == (200.0, 1800.0)
    # Slots have the speed of the fastest host so that bounds hold.
    slots = _slots(two_speeds(8), 0, 1).fabric
    assert (slots.nic_gbps, slots.by_host.scale_up_gbps.max()) == (800.0, 7200.0)


def test_two_makes_of_the_single_domain_are_tried_and_the_smaller_cut_wins() -> None:
    """Both zones part three replicas of two stages in two racks: 4 + 2 would cut 26."""
    for zones in ([[4, 2], [3, 3], [1]], [[3, 3], [4, 2], [1]]):
        on = two_tiers(*zones)
        sizes = {"dp": 3, "pp": 2} if zones[0] == [4, 2] else {"dp": 2, "pp": 3}
        free = hostset.of(range(on.host_count))
        answer = place_checked(on, free, request(traffic={"dp": 10, "pp": 3}, **sizes))
        assert [tier.bytes_per_step for tier in answer.cuts] == [0, 9 if sizes["dp"] == 3 else 6]


def test_a_zone_that_the_gang_fills_counts_for_the_common_room() -> None:
    on = two_tiers([3], [2, 2])
    assert common_room(on, np.arange(7), 1, 3) == (3, 2)
    assert common_room(on, np.arange(7), 1, 4) == (2, 2)


@pytest.mark.parametrize(("seconds", "is_as_good"), [(1.0005, True), (1.05, False)])
def test_thinned_segments_may_cost_a_thousandth_of_a_step_and_no_more(
    seconds: float, is_as_good: bool
) -> None:
    asked, unused = replace(request(dp=2), objective=Objective.TIME), cast(Any, None)
    placer = _SegmentPlacer(unused, asked, unused, Limits(), 0, 0, None, unused)
    thinned, whole = (Placement((0, 1), step=StepBound(step, 0.5)) for step in (seconds, 1.0))
    assert placer._as_good(thinned, whole) == is_as_good
