"""Zones that are full of a gang get room for spares again when it has stopped anyway."""

import random
from dataclasses import replace
from unittest.mock import Mock

import pytest

from placement import measure
from placement.fabric import hostset
from placement.objective.cut import cut
from placement.workload.request import AUTO, Objective
from scheduler.core import State
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.commands import LoadTenants
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN
from scheduler.core.restart.relief import is_short_of_spares, relieved
from tests.build import fabric, fail, hosts_of, loaded, run, schedule, submit
from tests.cases import case

SELDOM = SparePolicy(1e-6, prior_host_days=0)
TOGETHER = SparePolicy(0.03, epsilon=0.05, prior_host_days=0, dispersion=8)


def gang(now: SparePolicy) -> State:
    """A ring of 20 hosts over 3 zones of 8, started when hosts failed seldom."""
    fabric_ = fabric(zones=3, racks=4, hosts=2)
    before = LoadTenants(replace(OPEN, spares=replace(SELDOM, in_zone=True)))
    state = schedule(run(loaded(fabric_), before, submit("a", 20, spares=AUTO)))
    return run(state, LoadTenants(replace(OPEN, spares=now)))


def test_a_zone_without_a_spare_gets_some() -> None:
    state = gang(replace(TOGETHER, in_zone=True))
    job, pools = state.jobs["a"], SparePools(state)
    idle = state.free | hostset.of(job.spares)
    assert is_short_of_spares(pools, job.hosts, idle)
    found = relieved(pools, job, job.hosts, idle)
    assert found is not None
    hosts, cuts = found
    left = (idle | hostset.of(job.hosts)) & ~hostset.of(hosts)
    assert not is_short_of_spares(pools, hosts, left)
    assert len(set(hosts)) == 20
    assert cuts == cut(state.loaded_fabric, job.request, hosts)


def test_spares_that_may_lie_anywhere_move_nobody() -> None:
    state = gang(TOGETHER)
    job = state.jobs["a"]
    assert relieved(SparePools(state), job, job.hosts, state.free) is None


def test_a_gang_placed_by_time_gets_spares_in_each_zone_while_its_steps_stay_as_long() -> None:
    before = LoadTenants(replace(OPEN, spares=replace(SELDOM, in_zone=True)))
    command = submit("a", 20, spares=AUTO)
    by_time = replace(command.spec.request, objective=Objective.TIME, compute_s=100.0)
    command = replace(command, spec=replace(command.spec, request=by_time))
    state = schedule(run(loaded(fabric(zones=3, racks=4, hosts=2)), before, command))
    state = run(state, LoadTenants(replace(OPEN, spares=TOGETHER)))
    job, pools = state.jobs["a"], SparePools(state)
    assert is_short_of_spares(pools, job.hosts, state.free | hostset.of(job.spares))
    found = relieved(pools, job, job.hosts, state.free | hostset.of(job.spares))
    assert found is not None
    hosts, cuts = found
    left = (state.free | hostset.of((*job.hosts, *job.spares))) & ~hostset.of(hosts)
    assert not is_short_of_spares(pools, hosts, left)
    longest = measure(state.loaded_fabric, job.request, job.hosts, job.present.cuts)
    assert measure(state.loaded_fabric, job.request, hosts, cuts) <= longest


def test_more_room_is_made_only_where_it_cuts_about_as_much_as_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Going on without may cut far more than before, and that is no reason to cut as much."""
    state = gang(replace(TOGETHER, in_zone=True))
    job, pools = state.jobs["a"], SparePools(state)
    found = relieved(pools, job, job.hosts, state.free)
    assert found is not None
    near = found[0]
    far = tuple(random.Random(1).sample(near, len(near)))
    for by_room, expected, looks in (
        ((near, far, far), near, 1),
        ((far, near, far), near, 2),
        ((far, far, far), far, 3),
    ):
        shifts = Mock(side_effect=by_room)
        monkeypatch.setattr("scheduler.core.restart.relief.shifted", shifts)
        found = relieved(pools, job, job.hosts, state.free)
        assert found is not None
        assert (found[0], shifts.call_count) == (expected, looks)


def test_zones_with_spares_enough_are_left_alone() -> None:
    state = gang(replace(SELDOM, in_zone=True))
    job = state.jobs["a"]
    assert relieved(SparePools(state), job, job.hosts, state.free) is None


def test_a_block_that_lost_its_host_where_no_spare_is_left_stays_among_its_neighbours() -> None:
    for block in range(20):
        with case(block=block):
            state = gang(replace(TOGETHER, in_zone=True))
            job, lost = state.jobs["a"], hosts_of(state, "a")[block]
            later = schedule(run(state, fail(lost)))
            after = later.jobs["a"]
            assert not is_short_of_spares(
                SparePools(later), after.hosts, later.free | hostset.of(after.spares)
            )
            assert after.present.cuts[0] == job.present.cuts[0]
            assert 0 < sum(a != b for a, b in zip(after.hosts, job.hosts, strict=True)) <= 4
