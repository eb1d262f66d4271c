"""What a window does when it opens and when it closes: hosts, and the gangs that run on them."""

from typing import Any

import pytest

from placement.fabric import hostset
from scheduler.core import (
    Conflict,
    HostState,
    JobState,
    SchedulingOptions,
    State,
    commit,
    decide,
    replay,
)
from scheduler.core.model.events import JobRequeued, WindowClosed
from scheduler.core.model.lifecycle import RequeueCause, WindowState
from scheduler.core.model.plan import Plan, Stale, StaleReason, Start
from scheduler.core.rules.calendar import due_transitions
from tests.build import (
    HOUR_NS,
    committed,
    cordon,
    end,
    exactly,
    fabric,
    fail,
    flat,
    hosts_of,
    job,
    loaded,
    repair,
    run,
    settled,
    submit,
    uncordon,
)
from tests.windows import remove_window, set_window, with_window

EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
HOUR = 3_600


# --- edges -----------------------------------------------------------------------


def test_a_window_opens_and_closes_by_decisions() -> None:
    state = with_window(EMPTY, "z0")
    assert decide(state, HOUR_NS - 1, SchedulingOptions()).actions == ()
    state = settled(state, HOUR_NS)
    assert state.windows["w"].state is WindowState.OPEN
    assert state.free == EMPTY.free & ~state.windows["w"].hosts
    assert settled(state, 2 * HOUR_NS - 1) == state
    state = settled(state, 2 * HOUR_NS)
    assert not state.windows
    assert state.free == EMPTY.free


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


def test_a_start_that_a_window_came_before_is_a_conflict() -> None:
    state = run(EMPTY, submit("a", 8, limit_s=2 * HOUR))
    plan = decide(state, 0, SchedulingOptions())
    assert isinstance(plan.actions[0], Start)
    assert plan.actions[0].end_ns == 2 * HOUR_NS
    answer = commit(with_window(state, "z0-r0-h0"), plan, 0)
    assert answer == Conflict(
        (Stale(StaleReason.WINDOW, "job a: host z0-r0-h0 is in window w meanwhile"),)
    )
    shorter = with_window(state, "z0-r0-h0", start_s=2 * HOUR, end_s=3 * HOUR)
    assert not isinstance(commit(shorter, plan, 0), Conflict)


def test_an_operators_cordon_outlasts_the_window() -> None:
    state = settled(with_window(EMPTY, "z0-r0"), HOUR_NS)
    assert state.shown(0).state is HostState.CORDONED
    assert state.shown(0).reason == "window w"
    state = settled(run(state, cordon("z0-r0-h0"), now_ns=HOUR_NS), 2 * HOUR_NS)
    assert [state.shown(i).state for i in (0, 1)] == [HostState.CORDONED, HostState.HEALTHY]


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


# --- what runs when it opens -----------------------------------------------------


def in_the_way(leave: str, spare_hosts: int = 0, **keys: Any) -> State:
    """A gang of four that has outrun its limit when the window opens on two of its hosts;
    everything but `spare_hosts` is held."""
    return settled(before_the_window(leave, spare_hosts, **keys), HOUR_NS)


def before_the_window(leave: str, spare_hosts: int = 0, **keys: Any) -> State:
    state = settled(run(EMPTY, submit("a", 4, limit_s=HOUR)))
    rest = 4 - spare_hosts
    state = settled(run(state, submit("rest", rest, limit_s=9 * HOUR)) if rest else state)
    return with_window(state, *hosts_of(state, "a")[:2], leave=leave, **keys)


@pytest.mark.parametrize("leave", ["wait", "move"])
def test_without_room_a_gang_runs_on(leave: str) -> None:
    state = in_the_way(leave)
    assert job(state, "a").attempt == 1
    assert state.shown(job(state, "a").hosts[0]).state is HostState.DRAINING
    freed = run(state, end("a"), now_ns=HOUR_NS)
    assert freed.free.bit_count() == 2, "the other two are under maintenance"


@pytest.mark.parametrize("leave", ["move", "requeue"])
def test_with_room_other_hosts_take_over(leave: str) -> None:
    state = in_the_way(leave, spare_hosts=2)
    assert job(state, "a").attempt == 2
    assert not job(state, "a").allocation & state.index.closed


def test_with_room_a_gang_that_is_waited_for_stays() -> None:
    state = in_the_way("wait", spare_hosts=2)
    assert job(state, "a").attempt == 1


def test_without_room_a_gang_is_requeued_where_the_window_says_so() -> None:
    state = in_the_way("requeue")
    assert job(state, "a").state is JobState.QUEUED
    assert job(state, "a").reason == (
        "window w opened; no host to swap in (2 to leave, 0 to swap in)"
    )


def test_a_requeue_for_a_window_is_no_failure() -> None:
    state = run(before_the_window("requeue"), now_ns=HOUR_NS)
    requeues: list[JobRequeued] = []
    while events := committed(state, decide(state, HOUR_NS, SchedulingOptions()), HOUR_NS):
        requeues += [event for event in events if isinstance(event, JobRequeued)]
        state = replay(events, state)
    assert [(event.name, event.cause) for event in requeues] == [("a", RequeueCause.MAINTENANCE)]


def test_a_gang_that_hosts_are_held_for_is_in_nobodys_way() -> None:
    state = in_the_way("requeue", jobs=("a",))
    assert job(state, "a").attempt == 1


def test_no_gang_is_moved_into_a_window_that_it_would_reach_into() -> None:
    state = in_the_way("move", spare_hosts=2)
    blocked = settled(run(EMPTY, submit("a", 4, limit_s=HOUR)))
    free = set(EMPTY.loaded_fabric.hosts) - set(hosts_of(blocked, "a"))
    blocked = run(blocked, set_window("later", *free, start_s=90 * 60, end_s=3 * HOUR))
    blocked = with_window(blocked, *hosts_of(blocked, "a")[:2], leave="move")
    blocked = settled(blocked, HOUR_NS)
    assert [job(s, "a").attempt for s in (state, blocked)] == [2, 1]


def test_a_spare_under_maintenance_takes_nothing_over() -> None:
    state = settled(
        run(loaded(flat(3, gpus=8)), submit("a", 2, limit_s=9 * HOUR, spares=exactly(1)))
    )
    spare = state.loaded_fabric.names(job(state, "a").spares)[0]
    state = settled(with_window(state, spare), HOUR_NS)
    state = settled(run(state, fail(hosts_of(state, "a")[0]), now_ns=HOUR_NS), HOUR_NS)
    assert job(state, "a").state is JobState.QUEUED
