"""Placements of other schedulers: valid, each by its own rule; and what other layouts would cut."""

from dataclasses import replace

import pytest

from placement.baselines import Choose, at_random, chosen, consecutive
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, Constraints
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.workload.request import NO_SPARES, Placement, SpareRule
from tests.build import exactly, fabric, gang, request

SMALL = fabric(zones=3, racks=2, hosts=2)  # zones of four hosts: 0-3, 4-7, 8-11


def put(
    choose: Choose,
    free: HostSet,
    hosts: int,
    spares: SpareRule = NO_SPARES,
    where: Constraints = ANYWHERE,
) -> Placement:
    request = replace(gang(hosts, dp=hosts, spares=spares), where=where)
    found = chosen(SMALL, free, request, choose, 0)
    assert found is not None
    assert violations(SMALL, free, request, found) == []
    return found


@pytest.mark.parametrize(
    ("free", "gang", "hosts"),
    [
        pytest.param([0, 1, 2, 3, 5, 6, 7, 8, 9], 2, (8, 9), id="the smallest zone that holds it"),
        pytest.param([0, 4, 5, 6, 7, 8, 9], 5, (4, 5, 6, 7, 0), id="the fullest zones, then a gap"),
        pytest.param([0, 2, 3], 2, (2, 3), id="the rack that holds it"),
    ],
)
def test_consecutive_takes(free: list[int], gang: int, hosts: tuple[int, ...]) -> None:
    assert put(consecutive(SMALL), hostset.of(free), gang).hosts == hosts


def test_random_hosts_are_those_of_the_seed() -> None:
    free = hostset.full(12)
    once, again = (put(at_random("7/a"), free, 6).hosts for _ in range(2))
    others = {put(at_random(f"{seed}/a"), free, 6).hosts for seed in range(8)}
    assert once == again
    assert len(others) == 8
    assert {host for hosts in others for host in hosts} == set(range(12))


@pytest.mark.parametrize("choose", [consecutive(SMALL), at_random("1")], ids=["slots", "random"])
def test_constraints_and_spares_hold_for_rivals_too(choose: Choose) -> None:
    found = put(choose, hostset.full(12), 3, spares=exactly(1), where=Constraints(same="zone"))
    zones = {int(SMALL.tiers[0].domain_by_host[h]) for h in found.hosts + found.spares}
    assert len(zones) == len(found.spares) == 1


def test_what_does_not_fit_is_not_placed() -> None:
    assert chosen(SMALL, hostset.of([1, 2]), gang(3, dp=3), consecutive(SMALL), 0) is None


def test_one_tier_machines_are_filled_in_order() -> None:
    machine: Fabric = fabric(zones=1, racks=1, hosts=6)
    found = chosen(machine, hostset.of([1, 3, 4]), gang(2, dp=2), consecutive(machine), 0)
    assert found is not None
    assert found.hosts == (1, 3)


def test_a_job_on_a_part_of_a_host_takes_gpus_of_it() -> None:
    half, free = request(dp=4), hostset.full(SMALL.host_count)
    found = chosen(SMALL, free, half, consecutive(SMALL), 0)
    assert found is not None
    assert found.gpus == (0, 1, 2, 3)
    assert violations(SMALL, free, half, found) == []
