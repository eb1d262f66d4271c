"""Maintenance windows and reservations, through the four functions."""

from typing import Any

import pytest

from placement.fabric import hostset
from scheduler.core import (
    Code,
    Conflict,
    JobState,
    SchedulingOptions,
    State,
    commit,
    decide,
    explain,
)
from scheduler.core.explain.reason import ObstacleKind
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import WindowClosed
from scheduler.core.model.lifecycle import RequeueCause, WindowState
from scheduler.core.model.plan import Plan, Stale, StaleReason
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.rules.calendar import due_transitions, next_edge_ns
from tests.build import (
    HOUR_NS,
    committed,
    exactly,
    fabric,
    fail,
    flat,
    hosts_of,
    job,
    loaded,
    refused,
    repair,
    run,
    running,
    schedule,
    settled,
    submit,
    uncordon,
)
from tests.windows import remove_window, set_window, with_window

HOUR = 3_600
EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
TEAM = Tenants(
    (Tenant("lab"), Tenant("vision", "lab"), Tenant("speech", "lab"), Tenant(DEFAULT_TENANT))
)


def held(state: State, name: str) -> set[str]:
    return set(hosts_of(state, name))


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"start_s": 60, "end_s": 60}, "end_time"),
        ({"start_s": -60, "end_s": 0}, "end_time"),
        ({"jobs": ("a",), "count": -1}, "host_count"),
        ({"count": 2}, "host_count"),
        ({"tenant": "nobody"}, "tenant"),
    ],
)
def test_what_cannot_be_is_refused_by_field(keys: dict[str, Any], field: str) -> None:
    answer = refused(EMPTY, set_window("w", "z0", **keys))
    assert answer.code is Code.INVALID
    assert [violation.field for violation in answer.violations] == [field]


def test_hosts_have_to_be_there() -> None:
    answer = refused(EMPTY, set_window("w", "z0", "z9"))
    assert [violation.field for violation in answer.violations] == ["hosts.1"]
    assert refused(EMPTY, set_window("w")).violations[0].field == "hosts"
    assert refused(EMPTY, set_window("no name", "z0")).violations[0].field == "name"


def test_asking_again_changes_nothing_and_another_of_the_name_is_refused() -> None:
    ask = set_window("w", "z0", start_s=HOUR, end_s=2 * HOUR)
    state = run(EMPTY, ask)
    assert run(state, ask) == state
    other = refused(state, set_window("w", "z1", start_s=HOUR, end_s=2 * HOUR))
    assert other.code is Code.ALREADY_EXISTS


def test_a_window_is_changed_only_if_it_is_there() -> None:
    assert refused(EMPTY, set_window("w", "z0", is_change=True)).code is Code.NOT_FOUND
    assert refused(EMPTY, remove_window("w")).code is Code.NOT_FOUND
    state = run(with_window(EMPTY, "z0"), set_window("w", "z1", end_s=HOUR, is_change=True))
    assert state.windows["w"].window.hosts == EMPTY.loaded_fabric.hosts[4:]
    assert not run(state, remove_window("w")).windows


def test_of_an_open_window_the_end_changes_and_the_hosts_do_not() -> None:
    state = settled(with_window(EMPTY, "z0"), HOUR_NS)
    moved = set_window("w", "z1", start_s=HOUR, end_s=2 * HOUR, is_change=True)
    assert refused(state, moved, HOUR_NS).code is Code.PRECONDITION
    sooner = set_window("w", "z0", start_s=0, end_s=2 * HOUR, is_change=True)
    assert refused(state, sooner, HOUR_NS).code is Code.PRECONDITION
    longer = set_window("w", "z0", start_s=HOUR, end_s=5 * HOUR, is_change=True)
    state = run(state, longer, now_ns=HOUR_NS)
    assert state.windows["w"].state is WindowState.OPEN
    assert next_edge_ns(state) == 5 * HOUR_NS


def test_a_count_is_of_hosts_in_service_that_are_free_by_then() -> None:
    state = run(EMPTY, submit("long", 2, limit_s=5 * HOUR), submit("short", 2, limit_s=HOUR))
    state = run(schedule(state), fail("z1-r1-h1"))
    state = with_window(state, count=4, jobs=("demo",), start_s=2 * HOUR, end_s=3 * HOUR)
    chosen = set(state.windows["w"].window.hosts)
    assert len(chosen) == 4
    assert not chosen & {*held(state, "long"), "z1-r1-h1"}
    near = run(
        run(state, remove_window("w")),
        set_window("w", "z0", count=2, jobs=("demo",), start_s=HOUR, end_s=9 * HOUR),
    )
    assert set(near.windows["w"].window.hosts) == held(state, "short"), "busy now, and free then"


def test_no_host_is_reserved_twice_at_one_time() -> None:
    state = with_window(EMPTY, "z0", jobs=("a",))
    again = set_window("v", "z0-r1", start_s=0, end_s=HOUR + 1, jobs=("b",))
    assert refused(state, again).code is Code.PRECONDITION
    run(state, set_window("v", "z0-r1", start_s=0, end_s=HOUR, jobs=("b",)))
    run(state, set_window("v", "z0-r1", start_s=0, end_s=HOUR + 1))  # maintenance may
    beside = run(state, set_window("v", count=4, jobs=("b",), start_s=0, end_s=HOUR + 1))
    assert not beside.windows["v"].hosts & state.windows["w"].hosts


def test_a_tenant_that_hosts_are_held_for_cannot_go() -> None:
    state = with_window(run(EMPTY, LoadTenants(TEAM)), "z0", tenant="vision")
    answer = refused(state, LoadTenants(Tenants((Tenant(DEFAULT_TENANT),))))
    assert answer.message == "window w is held for tenant vision"


def test_a_job_without_a_limit_is_taken_to_run_as_long_as_is_assumed() -> None:
    state = run(with_window(EMPTY, "z0", "z1", start_s=HOUR), submit("a", 1))
    assert not running(schedule(state))
    assert running(schedule(state, 0, SchedulingOptions(assumed_limit_s=HOUR))) == {"a"}


def test_a_reservation_for_a_tenant_is_for_its_sub_tenants() -> None:
    state = with_window(run(EMPTY, LoadTenants(TEAM)), "z0", "z1", tenant="lab")
    state = run(state, submit("a", 1, tenant="vision"), submit("b", 1))
    assert running(schedule(state)) == {"a"}


def test_nobody_is_held_back_by_a_reservation_on_hosts_it_cannot_use() -> None:
    """The first that waits counts on z1 alone; the demonstration has z0 to itself."""
    state = run(EMPTY, submit("old", 4, limit_s=HOUR))
    state = schedule(state)
    elsewhere = next(z for z in ("z0", "z1") if f"{z}-r0-h0" not in held(state, "old"))
    state = with_window(state, elsewhere, jobs=("demo-*",), start_s=60, end_s=9 * HOUR)
    demos = [submit(name, 2, limit_s=8 * HOUR) for name in ("demo-1", "demo-2")]
    state = schedule(run(state, submit("first", 4, limit_s=HOUR), *demos))
    assert running(state) == {"old", "demo-1", "demo-2"}
    assert explain(state, "first", 0, SchedulingOptions()).start_ns == HOUR_NS


def test_of_hosts_that_count_and_hosts_that_do_not_only_so_many_are_taken() -> None:
    """The first needs three of the four in z0 and z1 in an hour; z2 is the demonstration's
    for the whole day, z0 for the hour. It takes one of z0 beside z2, not both."""
    state = run(loaded(fabric(zones=3, racks=1, hosts=2)), fail("z2-r0-h0"))
    state = run(state, set_window("z0", "z0", end_s=HOUR, jobs=("demo",)))
    state = run(state, set_window("z2", "z2", end_s=24 * HOUR, jobs=("demo",)))
    state = settled(run(state, submit("old", 2, limit_s=HOUR)))
    assert held(state, "old") == {"z1-r0-h0", "z1-r0-h1"}
    state = settled(
        run(state, submit("first", 3, limit_s=HOUR), submit("demo", 2, limit_s=9 * HOUR))
    )
    assert "z2-r0-h1" in held(state, "demo")
    assert explain(state, "first", 0, SchedulingOptions()).start_ns == HOUR_NS


def test_conservative_gives_up_a_promise_that_a_window_breaks() -> None:
    limits = SchedulingOptions(policy="conservative")
    state = run(EMPTY, submit("old", 8, limit_s=HOUR), submit("a", 8, limit_s=HOUR))
    state = settled(state, 0, limits)
    assert state.reserved["a"] == HOUR_NS
    state = settled(with_window(state, "z0"), 1, limits)
    assert state.reserved["a"] == 2 * HOUR_NS


def test_a_reason_names_the_window_and_the_limit_that_would_do() -> None:
    state = with_window(EMPTY, "z0", "z1", reason="firmware")
    state = schedule(run(state, submit("a", 2, limit_s=2 * HOUR)))
    found = explain(state, "a", 0, SchedulingOptions())
    assert found.cause is WaitReason.WINDOW
    assert found.sentence == (
        "needs 2 hosts; 8 are free, 8 in window w (firmware), which opens in 1 h 00 min,"
        " before the 2 h 00 min are over that it states; window w ends in 2 h 00 min;"
        " with a time limit of 1 h 00 min it would start now"
    )
    assert found.passes_s == HOUR
    assert running(schedule(run(state, submit("b", 2, limit_s=found.passes_s)))) == {"b"}
    (obstacle,) = found.obstacles
    assert (obstacle.kind, obstacle.name, obstacle.hosts) == (ObstacleKind.WINDOW, "w", 8)
    assert obstacle.clear_ns == found.start_ns == 2 * HOUR_NS


def test_a_reason_says_for_whom_hosts_are_held() -> None:
    state = with_window(EMPTY, "z0", "z1", jobs=("demo",), start_s=0)
    state = settled(run(state, submit("a", 2)))
    sentence = explain(state, "a", 0, SchedulingOptions()).sentence
    assert "8 in window w, which holds them for job demo; window w ends in 2 h" in sentence


def test_a_window_that_passed_unseen_never_opens() -> None:
    state = with_window(EMPTY, "z0")
    events = commit(state, decide(state, 3 * HOUR_NS, SchedulingOptions()), 3 * HOUR_NS)
    assert events == (WindowClosed(3 * HOUR_NS, "w"),)


def test_an_edge_that_was_moved_meanwhile_is_a_conflict() -> None:
    state = with_window(EMPTY, "z0")
    plan = Plan(state.version, due_transitions(state, HOUR_NS))
    later = set_window("w", "z0", start_s=2 * HOUR, end_s=3 * HOUR, is_change=True)
    answer = commit(run(state, later, now_ns=HOUR_NS), plan, HOUR_NS)
    assert answer == Conflict((Stale(StaleReason.WINDOW, "window w has changed meanwhile"),))
    assert isinstance(commit(run(state, remove_window("w")), plan, HOUR_NS), Conflict)


def test_nothing_lifts_a_window_but_its_end() -> None:
    state = settled(with_window(EMPTY, "z0-r0"), HOUR_NS)
    events = (uncordon("z0-r0-h0"), fail("z0-r0-h1"), repair("z0-r0-h1"))
    again = run(state, *events, now_ns=HOUR_NS)
    assert not again.free & state.windows["w"].hosts


def test_of_two_windows_on_a_host_the_last_frees_it() -> None:
    state = run(with_window(EMPTY, "z0"), set_window("v", "z0-r0", start_s=0, end_s=3 * HOUR))
    state = settled(state, 2 * HOUR_NS)
    assert [state.windows[name].state for name in state.windows] == [WindowState.OPEN]
    assert hostset.members(EMPTY.free & ~state.free) == [0, 1]


def test_a_requeue_for_a_window_is_no_failure_and_spares_whom_hosts_are_held_for() -> None:
    """A gang has outrun its limit when the window opens on two of its hosts; no other is free."""
    jobs = (submit("a", 4, limit_s=HOUR), submit("rest", 4, limit_s=9 * HOUR))
    state = settled(run(EMPTY, *jobs))
    among = hosts_of(state, "a")[:2]
    held = settled(with_window(state, *among, leave="requeue", jobs=("a",)), HOUR_NS)
    assert job(held, "a").attempt == 1
    state = schedule(with_window(state, *among, leave="requeue"), HOUR_NS)
    (event,) = committed(state, decide(state, HOUR_NS, SchedulingOptions()), HOUR_NS)
    assert (event.name, event.cause) == ("a", RequeueCause.MAINTENANCE)


def test_a_spare_under_maintenance_takes_nothing_over() -> None:
    state = settled(
        run(loaded(flat(3, gpus=8)), submit("a", 2, limit_s=9 * HOUR, spares=exactly(1)))
    )
    spare = state.loaded_fabric.names(job(state, "a").spares)[0]
    state = settled(with_window(state, spare), HOUR_NS)
    state = settled(run(state, fail(hosts_of(state, "a")[0]), now_ns=HOUR_NS), HOUR_NS)
    assert job(state, "a").state is JobState.QUEUED
