"""The cases with known answers of the problem's definition (placement, section 8).

Cuts are counted in block edges; with eight ranks a host the bytes are eight times that.
"""

import pytest

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Collective, Limits, Request
from tests.build import flat, place_checked

SIX_EQUAL = [384] * 6 + [0, 0]
PATIENT = Limits(rounds=600, trees=60_000)  # some proofs take more than the default effort
RAGGED = [384, 380, 350, 301, 290, 190, 97, 56]


def free_in_zones(fabric: Fabric, counts: list[int]) -> HostSet:
    """The first hosts of each zone, as many as `counts` says."""
    zone = fabric.tiers[0].domain_by_host
    chosen: list[int] = []
    for number, count in enumerate(counts):
        chosen += [h for h in range(fabric.host_count) if zone[h] == number][:count]
    return hostset.of(chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("free", "dp", "w_dp", "w_pp", "at_most", "at_least"),
    [
        (SIX_EQUAL, 128, 10, 3, 864, 864),
        (RAGGED, 64, 150, 9, 1152, 1152),
        (RAGGED, 120, 10, 100, 1120, 1120),
        (RAGGED, 64, 10, 3, 384, 384),
        (RAGGED, 120, 10, 3, 910, 887),
        (RAGGED, 120, 150, 9, 6630, 6465),  # 6594 is known
        (RAGGED, 128, 10, 3, 1016, 1000),  # 1013 is known
    ],
)
def test_sixteen_stages(
    free: list[int], dp: int, w_dp: int, w_pp: int, at_most: int, at_least: int
) -> None:
    fabric = preset("roce-24k")
    request = Request(
        Parallelism(tp=8, pp=16, dp=dp), traffic=(("dp", w_dp), ("pp", w_pp)), spares=NO_SPARES
    )
    answer = place_checked(fabric, free_in_zones(fabric, free), request, PATIENT)
    assert answer.cut <= 8 * at_most
    assert answer.lower_bound >= 8 * at_least
    assert answer.is_optimal == (at_most == at_least)


@pytest.mark.slow
def test_two_zones_on_either_side_of_a_stage_that_they_share() -> None:
    """Four strips of all seven stages cut 843,926 bytes; splits on sizes of zones do not tell
    them from what is best, splits on who holds which stage do at once."""
    fabric = preset("roce-24k")
    request = Request(
        Parallelism(tp=8, pp=7, dp=215, order="tp-dp-pp"),
        traffic=(("dp", 5_000), ("pp", 300)),
        collectives=(("dp", Collective.HIERARCHICAL),),
        spares=NO_SPARES,
    )
    answer = place_checked(fabric, free_in_zones(fabric, [384] * 8), request, PATIENT)
    assert answer.cut == 837_496
    assert answer.is_optimal


def test_whole_stages_on_four_zones_are_proved() -> None:
    """Halves of seven sets of stages cover all for less: three and a half zones."""
    fabric, stages, replicas = preset("roce-24k"), 20, 34
    request = Request(
        Parallelism(tp=8, pp=stages, dp=replicas, order="tp-dp-pp"),
        traffic=(("dp", 30), ("pp", 1)),
        spares=NO_SPARES,
    )
    free = free_in_zones(fabric, [250, 234, 234, 228, 226, 222, 210, 210])
    answer = place_checked(fabric, free, request)
    assert (answer.cut, answer.is_optimal) == (3 * 8 * replicas, True)


def test_tensor_groups_of_two_hosts_stay_whole() -> None:
    """DLRover 1746: PP=2 with slots of two hosts on segments of 4, 2 and 2."""
    request = Request(
        Parallelism(tp=16, pp=2, dp=2), traffic=(("tp", 1000), ("pp", 1)), spares=NO_SPARES
    )
    answer = place_checked(flat(4, 2, 2, gpus=8, tier="zone"), hostset.full(8), request, PATIENT)
    pairs_of_hosts = 2
    assert answer.cuts[0].by_axis == (("pp", 8 * pairs_of_hosts),)
    assert answer.is_optimal
