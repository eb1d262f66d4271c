"""Which zones of a gang lack spares, how often that is felt, and what it then costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.workload.request import AUTO, SpareRule
from scheduler.cli.render.restart import shortages_text
from scheduler.core import SchedulingOptions, State
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.commands import LoadTenants
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN
from scheduler.core.spares.shortage import spare_shortages
from tests.build import exactly, fabric, loaded, run, started, submit

OPTIONS = SchedulingOptions()


def gang_on(zones: int, hosts: int, spares: SpareRule) -> State:
    """A gang of `hosts` on zones of 12 hosts each, which fail about daily in each zone."""
    policy = SparePolicy(0.08, prior_host_days=0)
    state = loaded(fabric(zones=zones, racks=6, hosts=2))
    state = run(state, LoadTenants(replace(OPEN, spares=policy)))
    return started(state, submit("a", hosts, spares=spares))


def test_a_full_zone_is_named_with_what_its_failures_cost() -> None:
    state = gang_on(2, 24, AUTO)
    sizing, wishes = SparePools(state).sizing, SparePools(state).wishes
    first, second = spare_shortages(state, "a", 0, OPTIONS)
    assert (first.domain, first.spares, first.target) == ("z0", 0, wishes[0])
    # Nothing stands by: every failure of the twelve hosts finds none, and the gang waits a day.
    assert first.missed == pytest.approx(12 * sizing.failures_per_host_day * 30)
    assert first.gpu_hours == pytest.approx(24 * 8 * 24 * sizing.repair_days)
    assert second.domain == "z1"
    assert shortages_text([first]) == (
        f"z0: 0 of {first.target} spares; a failure there finds none {first.missed:.1f} times in a"
        f" month; each then costs {first.gpu_hours:,.0f} GPU-hours"
    )


def test_some_spares_make_it_rarer() -> None:
    state = gang_on(1, 10, AUTO)
    (lacking,) = spare_shortages(state, "a", 0, OPTIONS)
    assert lacking.spares == 2 < lacking.target
    sizing = SparePools(state).sizing
    every = 10 * sizing.failures_per_host_day * 30
    assert lacking.missed == pytest.approx(every * sizing.short(10, 1))
    assert 0 < lacking.missed < every


def test_a_share_has_its_target_in_each_zone() -> None:
    state = gang_on(3, 24, exactly(4))
    held = {s.domain: (s.spares, s.target) for s in spare_shortages(state, "a", 0, OPTIONS)}
    assert held == {"z0": (0, 2), "z1": (0, 2)}


def test_nothing_is_said_where_nothing_lacks_or_none_is_wanted() -> None:
    assert spare_shortages(gang_on(2, 24, exactly(0)), "a", 0, OPTIONS) == ()
    assert spare_shortages(gang_on(2, 2, AUTO), "a", 0, OPTIONS) == ()
    assert spare_shortages(gang_on(2, 24, AUTO), "nobody", 0, OPTIONS) == ()
