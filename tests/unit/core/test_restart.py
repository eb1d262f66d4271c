"""Ways back to work after a failure: which is taken, what is said, and who is spared."""

import random
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import Mock

import pytest

from placement import measure
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, broken
from placement.objective.cut import cut
from placement.spares.sizing import Sizing
from placement.workload.request import AUTO, Objective, SpareRule
from scheduler.cli.render.restart import shortages_text
from scheduler.core import HostState, JobState, SchedulingOptions, State, decide, explain
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.commands import LoadTenants, MoveHost
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import GiveUp, ReplenishSpares
from scheduler.core.model.records import failure_rates
from scheduler.core.model.restart_option import RestartOption, taken
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN, Preemption, PriorityClass, Restarts
from scheduler.core.restart.prospect import prospect
from scheduler.core.restart.relief import is_short_of_spares, relieved
from scheduler.core.rules.crash_loop import avoided, retry_ns
from scheduler.core.spares.outlook import spare_shortages, spares_outlook
from tests.build import (
    cordon,
    drain,
    exactly,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    repair,
    run,
    running,
    schedule,
    settled,
    spares_of,
    started,
    submit,
)
from tests.cases import case

DAY_NS = 86_400 * SECOND_NS


def often(rate: float) -> LoadTenants:
    """Hosts fail so often, whatever is observed."""
    return LoadTenants(replace(OPEN, spares=SparePolicy(rate, prior_host_days=0)))


def test_hosts_that_are_often_out_are_counted_one_by_one() -> None:
    """Of n + k hosts that are out a third of the time more than k are, seldom enough."""
    k = Sizing(0.5, 1.0, 0.01).size(30)
    sizing = Sizing(0.5, 1.0)
    assert sizing.shortage_share(30, k) <= 0.01 < sizing.shortage_share(30, k - 1)
    assert k > 15  # half as many are out on average


def test_what_is_seen_moves_the_rates() -> None:
    """Gamma posterior: (10 + 30) failures in (10,000 + 5,000) host-days."""
    policy = SparePolicy(0.001, prior_host_days=10_000, prior_repairs=20)
    seen = failure_rates.FailureRates(failures=30, repairs=30, out_ns=0, at_ns=0, since_ns=0)
    found = failure_rates.sizing(policy, seen, 50, 100 * DAY_NS)
    assert found.failures_per_host_day == pytest.approx(40 / 15_000)
    assert found.repair_days == pytest.approx(20 / 50)


def test_the_spread_of_hosts_out_is_seen_zone_by_zone() -> None:
    """Two of z1 out for half of the time, none of z0: d is 2 a quarter of the zone-time."""
    state = started(loaded(fabric()), submit("a", 1))
    for host in ("z1-r0-h0", "z1-r0-h1"):
        state = run(state, fail(host), now_ns=50 * SECOND_NS)
    assert state.faults.by_zone == (0, 2)
    assert state.faults.dispersion(100 * SECOND_NS) == pytest.approx((4 / 4 - 0.5**2) / 0.5)
    for host in ("z1-r0-h0", "z1-r0-h1"):
        state = run(state, repair(host), now_ns=100 * SECOND_NS)
    assert state.faults.by_zone == (0, 0)
    assert state.faults.dispersion(200 * SECOND_NS) == pytest.approx((4 / 8 - 0.25**2) / 0.25)


def test_what_fails_together_counts_by_how_long_it_was_seen() -> None:
    """20 zone-repairs are the prior's, 20 were seen: half of the excess 5 - 1."""
    day = 86_400 * SECOND_NS
    seen = failure_rates.FailureRates(
        failures=8, repairs=8, out_ns=8 * day, by_zone=(0, 0), square_ns=48 * day
    )
    assert seen.dispersion(10 * day) == pytest.approx((48 - 8 * 8 / 20) / 8)
    found = failure_rates.sizing(SparePolicy(0.01, prior_repairs=20), seen, 200, 10 * day)
    mean = 100 * found.failures_per_host_day * found.repair_days
    assert found.clumping * mean == pytest.approx((seen.dispersion(10 * day) - 1) / 2)


def test_two_gangs_share_what_one_would_hold() -> None:
    """Each alone would hold a spare; the second finds one in the zone."""
    state = run(loaded(fabric(1, 4, 4)), often(0.05))
    state = schedule(run(state, submit("a", 4, spares=AUTO)))
    alone = Sizing(0.05, 1.0).size(4)
    assert len(spares_of(state, "a")) == alone
    state = schedule(run(state, submit("b", 4, spares=AUTO)))
    held = len(spares_of(state, "a")) + len(spares_of(state, "b"))
    assert held == Sizing(0.05, 1.0).size(8) < 2 * alone


def test_a_gang_takes_the_spare_of_another_and_the_pool_is_filled_again() -> None:
    state = run(loaded(fabric(1, 3, 2)), often(0.02))
    state = schedule(run(state, submit("a", 2, spares=AUTO)))
    (spare,) = spares_of(state, "a")
    state = schedule(run(state, submit("b", 2, spares=exactly(0)), submit("c", 1, spares=AUTO)))
    assert not state.free
    state = schedule(run(state, fail(hosts_of(state, "c")[0])))
    assert hosts_of(state, "c") == (spare,)
    assert spares_of(state, "a") == ()
    step = taken(state.jobs["c"].restart_options)
    assert (step.option, step.note) == (RestartOption.LENDER, "from a")
    state = run(state, repair(next(h for h in state.loaded_fabric.hosts if _is_out(state, h))))
    (action,) = decide(state, 0, SchedulingOptions()).actions
    assert isinstance(action, ReplenishSpares)
    state = schedule(state)
    assert sum(SparePools(state).spares_by_zone) == 1


def _is_out(state: State, name: str) -> bool:
    return bool(state.index.unhealthy >> state.loaded_fabric.index_by_name[name] & 1)


def test_spares_that_a_job_asked_for_are_its_own() -> None:
    state = run(loaded(fabric(1, 2, 2)), often(0.0001))
    state = schedule(run(state, submit("a", 2, spares=exactly(1)), submit("b", 1, spares=AUTO)))
    state = schedule(run(state, fail(hosts_of(state, "b")[0])))
    assert state.jobs["b"].state is JobState.QUEUED
    assert len(spares_of(state, "a")) == 1


def test_a_bad_host_is_avoided_twice_as_long_each_time() -> None:
    state = started(loaded(fabric(1, 2, 2)), submit("a", 4))
    terms, host, now_ns = Restarts(), hosts_of(state, "a")[0], 0
    for minutes in (10, 20, 40):
        state = run(state, fail(host), repair(host), now_ns=now_ns)
        just_before = now_ns + minutes * 60 * SECOND_NS - 1
        assert avoided(state.jobs["a"], terms, just_before)
        assert not avoided(state.jobs["a"], terms, just_before + 1)
        for _ in range(2):
            plan = decide(state, now_ns, SchedulingOptions())
            now_ns = max(now_ns, plan.next_decision_ns or now_ns, just_before + 1)
            state = schedule(state, now_ns)
        assert state.jobs["a"].state is JobState.RUNNING


def test_a_gang_that_saves_nothing_waits_longer_and_is_given_up() -> None:
    terms = Restarts(attempts=5, patience=2, backoff_s=30, avoid_s=0)
    state = run(loaded(fabric(1, 4, 2)), LoadTenants(replace(OPEN, restarts=terms)))
    state, now_ns, waits = schedule(run(state, submit("a", 2))), 0, []
    for _ in range(5):
        host = hosts_of(state, "a")[0]
        state = run(state, fail(host), now_ns=now_ns)
        waits.append(max(0, retry_ns(state.jobs["a"], terms) - now_ns) // SECOND_NS)
        told = explain(state, "a", now_ns, SchedulingOptions()).sentence
        assert ("tries again in" in told) is (waits[-1] > 0)
        if state.jobs["a"].failed_attempts == terms.attempts:
            (action,) = decide(state, now_ns, SchedulingOptions()).actions
            assert isinstance(action, GiveUp)
        now_ns += waits[-1] * SECOND_NS
        state = schedule(run(state, repair(host), now_ns=now_ns), now_ns)
    assert waits == [0, 30, 60, 120, 240]
    job = state.find("a")
    assert job.state is JobState.FAILED
    assert "5 attempts in a row failed before anything was saved" in job.reason


def test_what_a_zone_survives_and_what_one_more_buys() -> None:
    state = run(loaded(fabric(2, 4, 4)), often(0.02))
    state = schedule(run(state, submit("a", 8, spares=AUTO)))
    zone, other = spares_outlook(state, 0, SchedulingOptions()).zones
    assert (zone.gang_hosts, zone.held, zone.holders) == (8, zone.wish, (("a", zone.wish),))
    assert zone.short <= 0.01
    assert zone.short_next < zone.short
    assert zone.saved_gpu_hours == 0  # hosts stand free in the zone
    assert (other.gang_hosts, other.held, other.saved_gpu_hours) == (0, 0, 0)


def test_what_would_happen_is_what_happens() -> None:
    """The prospect marks the way that is taken once the host does fail, and changes nothing."""
    fabric_ = fabric(zones=2, racks=2, hosts=2)
    state = schedule(run(loaded(fabric_), submit("a", 4), submit("b", 2)))
    before = prospect(state, "a", 0, SchedulingOptions())
    step = taken(before.restart_options)
    assert step.option is RestartOption.AWAY
    assert {s.option for s in before.restart_options} >= {
        RestartOption.ZONE,
        RestartOption.LENDER,
        RestartOption.RECALL,
        RestartOption.WAIT,
    }
    assert state.jobs["a"].state is JobState.RUNNING
    after = schedule(run(state, fail(before.host)))
    assert taken(after.jobs["a"].restart_options) == step


def test_a_gang_that_waits_has_no_prospect() -> None:
    state = run(loaded(fabric(1, 1, 2)), submit("a", 2))
    assert prospect(state, "a", 0, SchedulingOptions()) is None
    assert prospect(state, "nobody", 0, SchedulingOptions()) is None


@pytest.mark.parametrize("move", [cordon, drain])
def test_a_gang_that_leaves_its_zone_leaves_its_spare_there_behind(
    move: Callable[[str], MoveHost],
) -> None:
    """The spare is out of service when the only other host fails, so the gang goes on in the
    other zone: back in service the spare would be of no use to it."""
    state = loaded(fabric(2, 1, 2))
    inside = Constraints(same="zone")
    state = settled(run(state, submit("a", 1, spares=exactly(1), where=inside)))
    (host,), (spare,) = hosts_of(state, "a"), spares_of(state, "a")
    state = schedule(run(state, move(spare), fail(host)))
    assert running(state) == {"a"}
    assert spares_of(state, "a") == ()
    index = state.loaded_fabric.index_by_name[spare]
    assert state.host(index).state is HostState.CORDONED
    state = settled(state)
    assert len(spares_of(state, "a")) == 1
    assert not broken(state.loaded_fabric, inside, job(state, "a").allocation)


def test_a_spare_saves_nothing_while_hosts_stand_free_beside_it() -> None:
    """With room in the zone a restart costs nothing more; without any, a wait."""
    state = run(loaded(fabric(1, 4, 2)), often(0.3))
    state = schedule(run(state, submit("a", 4, spares=AUTO)))
    assert state.free == 0
    held = spares_outlook(state, 0, SchedulingOptions()).zones[0]
    roomy = run(loaded(fabric(1, 16, 2)), often(0.3))
    roomy = schedule(run(roomy, submit("a", 4, spares=AUTO)))
    assert roomy.free
    assert (
        spares_outlook(roomy, 0, SchedulingOptions()).zones[0].saved_gpu_hours
        == 0
        < held.saved_gpu_hours
    )


CLASSES = (PriorityClass("spot", -5, is_preemptible=True), PriorityClass("urgent", 5))
RIPE = replace(OPEN, classes=CLASSES, preemption=Preemption(min_run_s=0))


def test_nobody_is_sent_away_to_stay_beside_a_spare() -> None:
    """The gang has lost all its hosts. Its zone has but its spare and a host that another is
    on, the other zone is empty: it goes there, and the spare stays behind."""
    inside = Constraints(same="zone")
    state = run(loaded(fabric(2, 1, 4)), LoadTenants(RIPE))
    state = settled(run(state, submit("a", 2, spares=exactly(1), where=inside)))
    state = settled(run(state, submit("s", 1, priority_class="spot")))
    assert {host[:2] for name in "as" for host in hosts_of(state, name)} == {"z0"}
    state = settled(run(state, *map(fail, hosts_of(state, "a"))))
    assert running(state) == {"a", "s"}
    assert {host[:2] for host in hosts_of(state, "a") + spares_of(state, "a")} == {"z1"}
    assert state.jobs["s"].attempt == 1


def test_nobody_is_sent_away_while_a_gang_leaves_hosts() -> None:
    """a finds no two hosts and gives up the one it has left, which b then needs."""
    state = run(loaded(fabric(1, 1, 5)), LoadTenants(RIPE))
    state = settled(run(state, submit("a", 3, priority_class="urgent"), submit("b", 1)))
    state = settled(run(state, submit("s", 1, priority_class="spot")))
    lost = (*hosts_of(state, "a")[:2], *hosts_of(state, "b"))
    (left,) = hosts_of(state, "a")[2:]
    state = settled(run(state, *map(fail, lost)))
    assert running(state) == {"b", "s"}
    assert hosts_of(state, "b") == (left,)
    assert state.jobs["s"].attempt == 1


# --- which zones of a gang lack spares, how often that is felt, and what it then -----

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
    assert shortages_text([first, second]) == (
        f"z0, z1: 0 of {first.target} spares; a failure there finds none {first.missed:.1f} times"
        f" in a month; each then costs {first.gpu_hours:,.0f} GPU-hours"
    )


def test_some_spares_make_it_rarer() -> None:
    state = gang_on(1, 10, AUTO)
    (lacking,) = spare_shortages(state, "a", 0, OPTIONS)
    assert lacking.spares == 2 < lacking.target
    sizing = SparePools(state).sizing
    every = 10 * sizing.failures_per_host_day * 30
    assert lacking.missed == pytest.approx(every * sizing.shortage_share(10, 1))
    assert 0 < lacking.missed < every


def test_a_share_has_its_target_in_each_zone() -> None:
    state = gang_on(3, 24, exactly(4))
    held = {s.domain: (s.spares, s.target) for s in spare_shortages(state, "a", 0, OPTIONS)}
    assert held == {"z0": (0, 2), "z1": (0, 2)}


def test_nothing_is_said_where_nothing_lacks_or_none_is_wanted() -> None:
    assert spare_shortages(gang_on(2, 24, exactly(0)), "a", 0, OPTIONS) == ()
    assert spare_shortages(gang_on(2, 2, AUTO), "a", 0, OPTIONS) == ()
    assert spare_shortages(gang_on(2, 24, AUTO), "nobody", 0, OPTIONS) == ()


# --- zones that are full of a gang get room for spares again ---------------------


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
    hosts, cuts = found
    left = (idle | hostset.of(job.hosts)) & ~hostset.of(hosts)
    assert not is_short_of_spares(pools, hosts, left)
    assert len(set(hosts)) == 20
    assert cuts == cut(state.loaded_fabric, job.request, hosts)


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
        assert (found[0], shifts.call_count) == (expected, looks)


def test_zones_with_spares_enough_are_left_alone() -> None:
    state = gang(replace(SELDOM, in_zone=True))
    job = state.jobs["a"]
    assert relieved(SparePools(state), job, job.hosts, state.free) is None


def test_a_block_that_lost_its_host_where_no_spare_is_left_stays_among_its_neighbours() -> None:
    state = gang(replace(TOGETHER, in_zone=True))
    for block in range(0, 20, 4):
        with case(block=block):
            job, lost = state.jobs["a"], hosts_of(state, "a")[block]
            later = schedule(run(state, fail(lost)))
            after = later.jobs["a"]
            assert not is_short_of_spares(
                SparePools(later), after.hosts, later.free | hostset.of(after.spares)
            )
            assert after.present.cuts[0] == job.present.cuts[0]
            assert 0 < sum(a != b for a, b in zip(after.hosts, job.hosts, strict=True)) <= 4
