"""Uplinks that carry a share, or nothing: what is left, who hangs together, where gangs go."""

import math

import numpy as np
import pytest

from network.failures import links_without
from network.wiring import links
from placement import BadInput, Hint, choose_swaps, place, placed_near
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, Constraints, broken, joinable, usable
from placement.fabric.links import islands, seconds_over, uplink_of, with_links
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.request import Insufficient, Limits, Request
from placement.workload.segments import misplaced
from tests.build import everything, fabric, gang, place_checked, request, two_tiers
from tests.integration.placement.jobs import DENSE, job_with_model

F = fabric(zones=3, racks=2, hosts=2)


def _job(hosts: int, objective: str = "time") -> Request:
    return job_with_model({"tp": 8, "dp": hosts}, hosts, DENSE, objective=objective)


def _names(on: Fabric, mask: int) -> set[str]:
    return {on.hosts[host] for host in hostset.members(mask)}


# --- the fabric as it is ----------------------------------------------------------


def test_a_share_is_taken_of_what_was_built_and_tells_fabrics_apart() -> None:
    half = with_links(F, {"z1": 0.5, "z0-r1": 0.25})
    zone, rack = half.tiers
    np.testing.assert_allclose(zone.uplink_bytes_per_s / F.tiers[0].uplink_bytes_per_s, [1, 0.5, 1])
    assert rack.uplink_bytes_per_s[1] == F.tiers[1].uplink_bytes_per_s[1] / 4
    again = with_links(half, {"z1": 0.75})
    assert again.tiers[0].uplink_bytes_per_s[1] == F.tiers[0].uplink_bytes_per_s[1] * 0.75
    assert again.tiers[1].uplink_bytes_per_s[1] == F.tiers[1].uplink_bytes_per_s[1]
    # Links tell fabrics apart and the digest does not.
    half = with_links(F, {"z1": 0.5})
    assert half != F
    assert half == with_links(F, {"z1": 0.5, "z2": 1.0})
    assert hash(half) == hash(with_links(F, {"z1": 0.5}))
    assert half.digest == F.digest
    assert half != with_links(F, {"z1": 0.5}, ["z1"])
    assert with_links(half, {}) is F


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, True, "x"])
def test_a_share_is_a_number_from_0_to_1(share: float) -> None:
    with pytest.raises(BadInput, match=r"links\.z0: must be a share"):
        with_links(F, {"z0": share})


def test_a_link_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadInput, match="no domain 'z9' in small; they are named like z0 or z0-r0"):
        with_links(F, {"z9": 0.5})
    with pytest.raises(BadInput, match="z0-r0-h0 is a host"):
        uplink_of(F, "z0-r0-h0", "links")


def test_a_gang_across_a_dead_link_never_ends_its_step() -> None:
    found = seconds_over(np.array([0.0, 4.0, 0.0, 4.0]), np.array([2.0, 2.0, 0.0, 0.0]))
    assert found.tolist() == [0, 2, 0, math.inf]
    # A gang across a dead link never ends its step.
    parted = with_links(F, {"z0": 0})
    assert step_time(parted, _job(8), range(8)).seconds == math.inf
    assert step_time(parted, _job(4), range(4)) == step_time(F, _job(4), range(4))


# --- islands ----------------------------------------------------------------------


def test_islands_are_what_dead_links_leave_and_no_gang_crosses_them() -> None:
    parted = with_links(F, {"z1": 0, "z1-r0": 0, "z0": 0.5})
    top, zone, rack = islands(parted)
    assert _names(F, zone) == {"z1-r1-h0", "z1-r1-h1"}
    assert _names(F, rack) == {"z1-r0-h0", "z1-r0-h1"}
    assert top | zone | rack == everything(F)
    assert islands(F) == (everything(F),)
    # Constraints keep a gang on one side.
    parted = with_links(F, {}, ["z1"])
    z1 = hostset.of(range(4, 8))
    assert usable(parted, ANYWHERE, everything(F), 8) == everything(F) & ~z1
    assert usable(parted, ANYWHERE, everything(F), 4) == everything(F)
    assert usable(parted, Constraints(same="rack"), everything(F), 2) == everything(F)
    assert joinable(parted, ANYWHERE, 1) == everything(F) & ~z1
    assert broken(parted, ANYWHERE, 0b10001) == ["crosses the uplink of z1"]
    assert broken(parted, ANYWHERE, 0b110000) == []


def test_no_swap_leads_across_a_dead_link() -> None:
    parted, four = with_links(F, {"z1": 0}), gang(4)
    z1 = hostset.of(range(4, 8))
    across = choose_swaps(parted, four, [0, 1, 2, 3], [3], 0, z1)
    assert across is None
    assert choose_swaps(F, four, [0, 1, 2, 3], [3], 0, z1) is not None
    found = choose_swaps(parted, four, [0, 1, 4, 5], [2, 3], 0, 1 << 2 | 1 << 3)
    assert found is not None
    assert {host for _, host in found.joined} == {2, 3}


# --- placement --------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["time", "cut", "spread"])
def test_domains_behind_a_dead_link_hold_only_gangs_that_fit_inside(objective: str) -> None:
    parted = with_links(F, {"z0": 0})
    four = place_checked(parted, hostset.of([0, 1, 2, 3]), _job(4, objective))
    assert set(four.hosts) == {0, 1, 2, 3}
    eight = place_checked(parted, everything(F), _job(8, objective))
    assert set(eight.hosts) == set(range(4, 12))
    answer = place(parted, everything(F), _job(9, objective))
    assert isinstance(answer, Insufficient)
    assert (
        answer.reason == "needs 9 hosts; free: 12 in all, at most 8 on one side of the uplink of z0"
    )


def test_the_bound_holds_for_both_sides() -> None:
    """One side holds the gang at a cost, the other in one domain."""
    uneven = two_tiers([2, 2], [2], [4], gpus=8)
    parted = with_links(uneven, {"z2": 0})
    answer = place_checked(parted, everything(uneven), _job(4))
    assert answer.cut == 0
    assert answer.is_optimal
    assert answer.step is not None
    assert answer.step.least_seconds <= answer.step.seconds


def test_a_weak_uplink_is_left_alone_where_that_is_faster() -> None:
    # Eight hosts need two zones; two of three have their whole uplink.
    job = _job(8)
    weak = with_links(F, {"z0": 0.1})
    answer = place_checked(weak, everything(F), job)
    assert set(answer.hosts) == set(range(4, 12))
    assert answer.step is not None
    assert answer.step.seconds == step_time(weak, job, answer.hosts).seconds
    assert step_time(weak, job, range(8)).seconds > 1.5 * answer.step.seconds
    least = place_checked(weak, hostset.of(range(8)), job).step
    assert least is not None
    assert least.seconds >= least.least_seconds > answer.step.seconds
    # By price, not by rule: nothing leaves the zone that holds the gang.
    weak = with_links(F, {"z0": 0.1})
    answer = place_checked(weak, hostset.of([0, 1, 2, 3, 4, 5]), _job(4))
    assert set(answer.hosts) == {0, 1, 2, 3}


def test_a_gang_near_where_it_was_stays_on_its_side() -> None:
    parted = with_links(F, {"z0": 0})
    answer = place_checked(parted, everything(F), _job(6), hint=Hint((4, 5, 6, 7, 8, 0)))
    assert not broken(parted, ANYWHERE, answer.allocation)
    assert answer.moved == 1
    # Zones sliced anew would take the rack behind the uplink that is down.
    racks = fabric(zones=2, racks=3, hosts=2)
    down = with_links(racks, {racks.tiers[1].domains[0]: 0.0})
    asked = request(tp=8, pp=2, dp=4, traffic={"pp": 3, "dp": 10**9})
    room = everything(racks) & ~hostset.of([8, 3])
    near = placed_near(down, asked, room, Hint((6, 2, 7, 3, 8, 4, 9, 5)), Limits(1, 50))
    assert near is not None
    assert not misplaced(down, asked, near)


# --- switches ---------------------------------------------------------------------


def test_switches_lose_as_many_cables_as_their_domain() -> None:
    whole = links(F)
    weak = links(with_links(F, {"z1": 0.5}))
    assert len(weak.layers[1].uplinks) == len(whole.layers[1].uplinks)
    left = links_without(weak, ())
    zones = left.layers[1].domain_by_switch[left.layers[1].uplinks.lower]
    before = whole.layers[1].domain_by_switch[whole.layers[1].uplinks.lower]
    assert np.bincount(zones).tolist()[1] == np.bincount(before).tolist()[1] // 2
    assert np.bincount(zones).tolist()[::2] == np.bincount(before).tolist()[::2]
