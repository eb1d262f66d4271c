"""Where and when a waiting job finds room, and what it leaves to others."""

import pickle
import random

import pytest

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core import SchedulingOptions, State, decide, explain
from scheduler.core.capacity.outlook import Outlook, nearest
from scheduler.core.capacity.placer import make_placer
from scheduler.core.capacity.profile import Profile
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.plan import BackfillReservation, Start
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.policies import BUILT_IN
from tests.build import (
    HOUR_NS,
    cordon,
    end,
    fabric,
    fail,
    flat,
    hosts_of,
    job,
    loaded,
    repair,
    run,
    schedule,
    settled,
    started,
    submit,
)
from tests.windows import set_window

HOUR = 3_600
EIGHT = loaded(fabric(2, 2, 2))
TEAM = Tenants((Tenant("team", limit_gpus=4 * 8), Tenant("default")))


def chosen(hosts: list[int], free: list[int], count: int) -> list[int]:
    found = nearest(EIGHT.loaded_fabric, hostset.of(hosts), hostset.of(free), count)
    return hostset.members(found)


def test_the_fullest_domain_that_holds_all_is_reserved() -> None:
    assert chosen([0, 1, 2, 3, 4, 5], [], 2) == [4, 5]
    assert chosen([0, 1, 2, 3, 4, 5], [], 3) == [1, 2, 3]


def test_a_gang_that_no_domain_holds_takes_the_emptiest_whole() -> None:
    assert chosen([0, 1, 4, 5, 6], [], 4) == [1, 4, 5, 6]


def test_busy_hosts_are_reserved_before_free_ones() -> None:
    assert chosen([0, 1, 2, 3], [3, 2], 2) == [0, 1]
    assert chosen([0, 1, 2, 3], [3, 2], 3) == [0, 1, 3]


@pytest.mark.parametrize(
    ("needed", "limit_s", "reserved"),
    [(1, 5 * HOUR, "small"), (2, HOUR, "small"), (2, HOUR + 1, "other")],
)
def test_room_below_a_limit_is_counted_on_beside_who_waits_for_it(
    needed: int, limit_s: int, reserved: str
) -> None:
    """`big` has its room below the limit in two hours, and leaves one host of it."""
    state = run(EIGHT, LoadTenants(TEAM), submit("a", 2, limit_s=2 * HOUR, tenant="team"))
    state = schedule(run(state, submit("b", 6, limit_s=HOUR, tenant="default")))
    state = run(state, submit("big", 3, limit_s=HOUR, tenant="team"))
    state = run(state, submit("small", needed, limit_s=limit_s, tenant="team"))
    plan = decide(
        run(state, submit("other", 2, limit_s=9 * HOUR, tenant="default")), 0, SchedulingOptions()
    )
    (reservation,) = plan.reservations
    assert (reservation.name, reservation.start_ns) == (reserved, HOUR_NS)


def test_hosts_kept_for_another_tenants_shape_are_not_reserved() -> None:
    """r2 is the only rack that is whole; what is left is one host of r0 and one of r1."""
    shaped = Tenants((Tenant("shaped", cells=(GuaranteedCell("rack", 1),)), Tenant("default")))
    state = run(loaded(fabric(1, 3, 2)), LoadTenants(shaped), fail("z0-r0-h0"), fail("z0-r1-h0"))
    state = run(schedule(run(state, submit("a", 1, limit_s=HOUR))), submit("w", 2))
    (reservation,) = decide(state, 0, SchedulingOptions()).reservations
    assert hostset.members(reservation.hosts) == [1, 3]


def test_a_reservation_that_nobody_looks_at_is_not_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under FIFO nobody passes the first that waits, so only who asks when it starts is told."""
    asked: list[str] = []
    reservation = Outlook.reservation

    def counted(outlook: Outlook, job: Job, free: HostSet) -> BackfillReservation | None:
        asked.append(job.name)
        return reservation(outlook, job, free)

    monkeypatch.setattr(Outlook, "reservation", counted)
    state = schedule(run(EIGHT, submit("a", 3, limit_s=HOUR)))
    plan = decide(
        run(state, submit("wide", 6), submit("b", 1)), 0, SchedulingOptions(policy="fifo")
    )
    assert asked == []
    assert [(r.name, r.start_ns) for r in plan.reservations] == [("wide", HOUR_NS)]
    assert len(plan.reservations) == 1
    assert asked == ["wide"]
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert isinstance(again.reservations, tuple)


def team(*more: tuple[str, int, int]) -> State:
    """Two of the team's four hosts are held for two hours; `large` wants all four."""
    state = run(EIGHT, LoadTenants(TEAM), submit("t", 2, tenant="team", limit_s=2 * HOUR))
    state = run(schedule(state), submit("large", 4, tenant="team"))
    jobs = [submit(name, hosts, tenant="team", limit_s=limit_s) for name, hosts, limit_s in more]
    return run(state, *jobs)


def begun(state: State, policy: str = "production") -> list[str]:
    plan = decide(state, 0, SchedulingOptions(policy=policy))
    return [action.name for action in plan.actions if isinstance(action, Start)]


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_large_job_of_a_tenant_is_not_passed_for_ever(policy: str) -> None:
    assert begun(team(("short", 2, 2 * HOUR)), policy) == ["short"]
    assert begun(team(("long", 1, 2 * HOUR + 1)), policy) == []


def test_only_so_many_are_reserved() -> None:
    limits = SchedulingOptions(policy="conservative", most_reservations=2)
    state = schedule(run(EIGHT, submit("a", 8, limit_s=HOUR)), 0, limits)
    state = run(state, *(submit(f"w{i}", 8, limit_s=HOUR) for i in range(4)))
    assert dict(schedule(state, 0, limits).reserved).keys() == {"w0", "w1"}


def test_a_profile_against_counting_every_second() -> None:
    rng = random.Random(3)
    for _ in range(200):
        ends = [(rng.randint(1, 20), rng.randint(1, 4)) for _ in range(4)]
        profile = Profile(0, 2, ends)
        free = [2 + sum(n for at, n in ends if at <= second) for second in range(150)]
        for _ in range(5):
            hosts, lasts = rng.randint(1, 10), rng.randint(1, 12)
            fits = (s for s in range(120) if min(free[s : s + lasts]) >= hosts)
            start = profile.earliest(hosts, lasts)
            assert start == next(fits, None)
            if start is not None:
                assert profile.least(start, start + lasts) == min(free[start : start + lasts])
                profile.book(start, start + lasts, hosts)
                free[start : start + lasts] = [n - hosts for n in free[start : start + lasts]]


def test_on_a_fabric_of_one_tier() -> None:
    one = flat(5)
    assert hostset.members(nearest(one, 0b11111, 0b00011, 2)) == [3, 4]


def broken_cluster(*jobs: Command) -> State:
    """Eight hosts of which one failed; a gang of all eight waits behind one of two hosts."""
    state = started(loaded(fabric(1, 2, 4)), submit("runs", 2, limit_s=3_600))
    host = next(h for h in state.loaded_fabric.hosts if h not in hosts_of(state, "runs"))
    return run(state, fail(host), submit("all", 8, limit_s=3_600), *jobs)


def test_hosts_under_repair_count_where_nothing_else_makes_room() -> None:
    """Small jobs no longer take every host that comes free before the one that is missing is
    back: a repair is taken to take a day, as the tenants file says without any other."""
    state = broken_cluster(submit("long", 1, limit_s=48 * 3_600), submit("short", 1, limit_s=3_600))
    plan = decide(state, 0, SchedulingOptions())
    (reservation,) = plan.reservations
    assert (reservation.name, reservation.start_ns, reservation.repairs) == ("all", 24 * HOUR_NS, 1)
    assert [a.name for a in plan.actions if isinstance(a, Start)] == ["short"]
    text = str(explain(state, "all", 0, SchedulingOptions()))
    assert "it can start in 24 h 00 min: 1 host should be repaired by then, and runs ends" in text


def test_a_gang_that_waits_for_repairs_has_a_reservation_under_conservative_too() -> None:
    state = broken_cluster(submit("long", 1, limit_s=48 * 3_600), submit("short", 1, limit_s=3_600))
    plan = decide(state, 0, SchedulingOptions(policy="conservative"))
    assert [a.name for a in plan.actions if isinstance(a, Start)] == ["short"]
    assert [r.start_ns for r in plan.reservations if r.name == "all"] == [24 * HOUR_NS]


def test_a_repair_that_takes_long_is_given_more_time_and_a_cordon_none() -> None:
    late_ns = 30 * HOUR_NS
    state = broken_cluster()
    state = run(state, end("runs"), now_ns=late_ns)
    (reservation,) = decide(state, late_ns, SchedulingOptions()).reservations
    assert late_ns < reservation.start_ns <= late_ns + 12 * HOUR_NS
    (host,) = (state.loaded_fabric.hosts[index] for index in state.hosts)
    held = run(state, repair(host), cordon(host), now_ns=late_ns)
    assert not decide(held, late_ns, SchedulingOptions()).reservations


def test_a_running_gang_that_may_not_grow_holds_no_later_time() -> None:
    """All that is free is held for b in a while. What a would take before is nothing, and
    after it a has no place in the plan that b would have to go round."""
    limits = SchedulingOptions(policy="conservative")
    state = settled(run(loaded(fabric(1, 1, 5)), submit("a"), submit("b")), 0, limits)
    free = state.loaded_fabric.names(hostset.members(state.free))
    state = run(state, set_window("w", *free, start_s=100, end_s=200, jobs=("b",)))
    a, b, end_ns = job(state, "a"), job(state, "b"), 1_000 * SECOND_NS
    find = make_placer(state, limits)
    cycle = SchedulingCycle(state, 0, limits, state.free, find, find)
    assert cycle.spare_room(a, end_ns) == (0, 0)
    assert cycle.spare_room(b, end_ns) == (state.free, 3)
    cycle.record_growth(b, state.free & -state.free, end_ns)
    assert cycle.spare_room(b, end_ns)[1] == 2
