"""What a failed, draining or repaired host does to a gang: swaps, requeues, and who comes first."""

from placement.fabric import hostset
from scheduler.core import HostState, JobState, SchedulingOptions, State, decide
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Move, ReplenishSpares, Requeue, Swap
from scheduler.core.policies.tenants import Tenant, Tenants
from tests.build import (
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    loaded,
    repair,
    run,
    running,
    schedule,
    spares_of,
    started,
    submit,
)

EIGHT = loaded(fabric(2, 2, 2))  # z0: r0, r1; z1: r0, r1; two hosts a rack
LATER_NS = 600 * SECOND_NS  # a host that stopped a job may be used by it again
TEN = loaded(fabric(1, 1, 10))


def four_in_z0(**job: object) -> State:
    """`a` on the four hosts of one zone, eight hosts in all."""
    state = started(EIGHT, submit("a", 4, **job))
    zones = {name[:2] for name in hosts_of(state, "a")}
    assert len(zones) == 1
    return state


def test_a_failed_host_is_swapped_and_the_rest_stay() -> None:
    state = started(EIGHT, submit("a", 3, spares=exactly(1)))
    before, (spare,) = hosts_of(state, "a"), spares_of(state, "a")
    state = schedule(run(state, fail(before[1])), 5)
    assert state.jobs["a"].state is JobState.RUNNING
    assert state.jobs["a"].attempt == 2
    assert state.jobs["a"].present.start_ns == 5
    assert hosts_of(state, "a") == (before[0], spare, before[2])
    assert spares_of(state, "a") == ()
    assert not hostset.has(state.index.held, state.loaded_fabric.index_by_name[before[1]])


def test_a_gang_without_spares_takes_a_free_host() -> None:
    state = four_in_z0()
    before = hosts_of(state, "a")
    state = schedule(run(state, fail(before[0])))
    after = hosts_of(state, "a")
    assert after[1:] == before[1:]
    assert after[0] not in before
    assert state.jobs["a"].state is JobState.RUNNING


def test_a_lost_spare_stops_nobody() -> None:
    state = started(EIGHT, submit("a", 3, spares=exactly(1)))
    (spare,) = spares_of(state, "a")
    state = run(state, fail(spare))
    assert [type(action) for action in decide(state, 0, SchedulingOptions()).actions] == [
        ReplenishSpares
    ]
    assert state.jobs["a"].state is JobState.RUNNING


def test_two_hosts_of_one_gang_fail_at_once() -> None:
    state = started(EIGHT, submit("a", 4, spares=exactly(1)))
    before = hosts_of(state, "a")
    state = run(state, fail(before[0]), fail(before[3]))
    (action,) = decide(state, 0, SchedulingOptions()).actions
    assert isinstance(action, Swap)
    assert {move.block for move in action.moves} == {0, 3}
    state = schedule(state)
    assert state.jobs["a"].state is JobState.RUNNING
    assert state.jobs["a"].attempt == 2
    assert hosts_of(state, "a")[1:3] == before[1:3]
    assert not state.index.held & state.index.unhealthy


def test_no_host_to_swap_in_requeues() -> None:
    state = started(EIGHT, submit("a", 8))
    state = run(state, fail("z0-r0-h0"))
    (action,) = decide(state, 0, SchedulingOptions()).actions
    assert isinstance(action, Requeue)
    assert action.reason == (
        "host z0-r0-h0 failed: gpu-lost; no host to swap in (1 failed, 0 to swap in)"
    )
    state = schedule(state)
    assert state.jobs["a"].state is JobState.QUEUED
    assert state.index.held == 0


def test_a_requeued_job_starts_as_its_next_attempt() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    state = schedule(run(state, repair("z0-r0-h0")), LATER_NS)
    assert running(state) == {"a"}
    assert state.jobs["a"].attempt == 2


def test_a_job_does_not_start_on_the_host_that_just_stopped_it() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    plan = decide(run(state, repair("z0-r0-h0")), 0, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), LATER_NS)


def test_a_requeued_job_keeps_its_seniority() -> None:
    """Two jobs arrived later; neither takes the hosts that `a` gives back."""
    state = started(EIGHT, submit("a", 8))
    state = run(state, submit("b", 8), submit("c", 8), fail("z0-r0-h0"))
    state = schedule(state)
    assert state.index.queue == ("a", "b", "c")
    state = schedule(run(state, repair("z0-r0-h0")), LATER_NS)
    assert running(state) == {"a"}


def test_nobody_slips_in_between_a_failure_and_the_requeue() -> None:
    """Two hosts fail, one is free: no plan that requeues `a` gives that host away,
    for `a` comes first."""
    state = started(loaded(fabric(1, 1, 7)), submit("a", 6, priority=1))
    a = hosts_of(state, "a")
    state = run(state, fail(a[0]), fail(a[1]), submit("late", 1))
    assert [type(action) for action in decide(state, 0, SchedulingOptions()).actions] == [Requeue]


def test_a_gang_whose_host_was_repaired_in_time_starts_again() -> None:
    """Failed and repaired before any decision: it keeps its hosts until it may use that one."""
    state = started(EIGHT, submit("a", 8))
    before = hosts_of(state, "a")
    state = run(state, fail("z0-r0-h0"), repair("z0-r0-h0"))
    assert state.jobs["a"].state is JobState.INTERRUPTED
    plan = decide(state, 0, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), LATER_NS)
    state = schedule(state, LATER_NS)
    assert state.jobs["a"].state is JobState.RUNNING
    assert state.jobs["a"].attempt == 2
    assert hosts_of(state, "a") == before


def test_the_important_gang_gets_the_last_host() -> None:
    state = loaded(fabric(1, 1, 7))
    state = started(state, submit("low", 3), submit("high", 3, priority=1))
    low, high = hosts_of(state, "low"), hosts_of(state, "high")
    plan = decide(run(state, fail(low[0]), fail(high[0])), 0, SchedulingOptions())
    assert [(type(a), a.name) for a in plan.actions] == [(Swap, "high"), (Requeue, "low")]


def test_a_host_swapped_in_is_not_given_away_too() -> None:
    state = loaded(fabric(1, 1, 4))
    state = started(state, submit("a", 3))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 1))
    plan = decide(state, 0, SchedulingOptions())
    assert [type(a) for a in plan.actions] == [Swap]


# --- draining ------------------------------------------------------------------------


def test_a_draining_host_is_left_for_a_spare() -> None:
    state = started(EIGHT, submit("a", 3, spares=exactly(1)))
    before, (spare,) = hosts_of(state, "a"), spares_of(state, "a")
    state = schedule(run(state, drain(before[2])))
    assert hosts_of(state, "a") == (*before[:2], spare)
    host = state.loaded_fabric.index_by_name[before[2]]
    assert state.host(host).state is HostState.CORDONED
    assert not state.holders(host)


def test_a_draining_host_with_nowhere_to_go_waits_for_the_end() -> None:
    state = run(started(EIGHT, submit("a", 8)), drain("z0-r0-h0"))
    assert decide(state, 0, SchedulingOptions()).actions == ()
    state = run(state, end("a"))
    assert state.host(0).state is HostState.CORDONED


def test_a_draining_host_is_left_as_soon_as_there_is_room() -> None:
    state = started(EIGHT, submit("a", 6), submit("b", 2))
    left = hosts_of(state, "a")[0]
    state = run(state, drain(left))
    assert decide(state, 0, SchedulingOptions()).actions == ()
    state = schedule(run(state, end("b")))
    assert left not in hosts_of(state, "a")
    assert state.jobs["a"].attempt == 2


def test_failed_hosts_come_before_draining_ones() -> None:
    """One host is left: the gang starts again on it and the draining one."""
    state = started(loaded(fabric(1, 1, 5)), submit("a", 4))
    before = hosts_of(state, "a")
    (last,) = set(state.loaded_fabric.hosts) - set(before)
    state = run(state, drain(before[0]), fail(before[3]))
    index = state.loaded_fabric.index_by_name
    (action,) = decide(state, 0, SchedulingOptions()).actions
    assert isinstance(action, Swap)
    assert action.moves == (Move(3, index[before[3]], index[last]),)


def test_a_cordoned_host_is_not_left() -> None:
    state = started(EIGHT, submit("a", 4))
    state = run(state, cordon(hosts_of(state, "a")[0]))
    assert decide(state, 0, SchedulingOptions()).actions == ()


def test_nobody_starts_on_what_a_swap_makes_due_to_another_tenant() -> None:
    """A gang that swaps in its spare holds one host less: that is promised to its tenant."""
    tenants = Tenants((Tenant("lab", guaranteed_gpus=16), Tenant("shop"), Tenant("default")))
    state = run(loaded(fabric(1, 1, 5)), LoadTenants(tenants))
    state = schedule(run(state, submit("a", spares=exactly(1), tenant="lab")))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 3, tenant="shop"))
    plan = decide(state, 0, SchedulingOptions())
    assert [type(action) for action in plan.actions] == [Swap]
    assert "b" not in running(schedule(state))
