"""Who runs next: order, gangs, backfill around a promise, and what a failure does."""

from __future__ import annotations

import pytest

from placement import hostset
from placement.check import violations
from placement.request import SpareRule
from scheduler.core import HostState, JobState, Limits, Policy, State, decide
from scheduler.core.commands import LoadTenants
from scheduler.core.job import SECOND_NS
from scheduler.core.plan import Move, Plan, Refill, Requeue, Start, Swap
from scheduler.core.queue.order import Line
from scheduler.core.queue.reserve import Outlook
from scheduler.core.tenancy.admission import Quotas
from scheduler.core.tenancy.tenants import Tenant, Tenants
from tests.build import (
    HOUR_NS,
    cancel,
    cordon,
    drain,
    end,
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
    spares_of,
    started,
    submit,
)

HOUR = 3_600
EIGHT = loaded(fabric(2, 2, 2))  # z0: r0, r1; z1: r0, r1; two hosts a rack
LATER_NS = 600 * SECOND_NS  # a host that stopped a job may be used by it again
TEN = loaded(fabric(1, 1, 10))


def starts(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Start)]


def reserved(
    state: State, hosts: int, now_ns: int = 0, limits: Limits | None = None
) -> tuple[int, int] | None:
    """(start, hosts free then) of a job of so many hosts, as if it were the first to wait."""
    limits, quotas = limits or Limits(), Quotas(state)
    probe = job(run(state, submit("probe", hosts)), "probe")
    outlook = Outlook(state, now_ns, limits, quotas)
    found = outlook.reservation(probe, state.free)
    return None if found is None else (found.start_ns, found.extra + hosts)


def order(state: State, policy: Policy) -> list[str]:
    book = Quotas(state).book
    return [job.name for job in Line(state, 0, Limits(policy=policy), book)]


def decided(state: State, now_ns: int = 0, policy: Policy = Policy.PRODUCTION) -> list[str]:
    """Names of the jobs that start, in order."""
    return starts(decide(state, now_ns, Limits(policy=policy)))


# --- order ---------------------------------------------------------------------


def test_nothing_to_do() -> None:
    assert decide(EIGHT, 0, Limits()) == Plan(EIGHT.version)
    quiet = started(EIGHT, submit("a", 8))
    assert decide(quiet, 0, Limits()) == Plan(quiet.version)


def test_arrival_order() -> None:
    assert decided(run(EIGHT, submit("b"), submit("a"), submit("c"))) == ["b", "a", "c"]


def test_priority_goes_first() -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state) == ["c", "b"]


@pytest.mark.parametrize("policy", [Policy.EASY, Policy.FIFO, Policy.CONSERVATIVE])
def test_the_textbook_policies_ignore_priority(policy: Policy) -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state, policy=policy) == ["a", "b"]
    assert order(state, policy) == ["a", "b", "c"]


def test_the_same_arguments_give_the_same_plan() -> None:
    state = run(EIGHT, submit("a", 3, pp=3), submit("b", 2, spares=exactly(1)), submit("c"))
    assert decide(state, 5, Limits()) == decide(state, 5, Limits())


def test_every_start_is_a_valid_placement() -> None:
    state = run(EIGHT, submit("a", 3, pp=3), submit("b", 2, spares=exactly(1)), submit("c"))
    free = state.free
    for action in decide(state, 0, Limits()).actions:
        assert isinstance(action, Start)
        request = state.jobs[action.name].spec.request
        assert violations(state.loaded_fabric, free, request, action.placement) == []
        free &= ~hostset.of(action.placement.hosts + action.placement.spares)


# --- gangs ---------------------------------------------------------------------


def test_a_gang_starts_whole_or_not_at_all() -> None:
    state = started(EIGHT, submit("a", 5), submit("b", 4))
    assert running(state) == {"a"}
    assert state.jobs["b"].state is JobState.QUEUED
    assert state.jobs["b"].hosts == ()
    assert state.free.bit_count() == 3


def test_spares_that_are_required_are_part_of_the_whole() -> None:
    assert decided(run(EIGHT, submit("a", 8))) == ["a"]
    assert decided(run(started(EIGHT, submit("x", 1)), submit("a", 6, spares=exactly(2)))) == []
    state = started(EIGHT, submit("a", 6, spares=exactly(2)))
    assert len(spares_of(state, "a")) == 2
    assert state.free == 0


def test_auto_spares_take_what_is_there_and_no_more() -> None:
    """A full house starts with fewer spares than sizing would like."""
    state = started(EIGHT, submit("a", 8, spares=SpareRule()))
    assert running(state) == {"a"}
    assert spares_of(state, "a") == ()


def test_hosts_out_of_service_are_not_used() -> None:
    state = run(EIGHT, cordon("z0-r0-h0"), fail("z0-r0-h1"), drain("z1-r1-h1"), submit("a", 5))
    state = schedule(state)
    out = {"z0-r0-h0", "z0-r0-h1", "z1-r1-h1"}
    assert set(hosts_of(state, "a")) == set(state.loaded_fabric.hosts) - out
    assert decided(run(EIGHT, cordon("z0-r0-h0"), submit("a", 8))) == []


# --- backfill --------------------------------------------------------------------


def held_up(**wide: int) -> State:
    """Ten hosts: `long` holds six for ten hours, `wide` needs eight and waits."""
    state = started(TEN, submit("long", 6, limit_s=10 * HOUR))
    return run(state, submit("wide", 8, limit_s=HOUR, **wide))


def test_the_promise() -> None:
    """`wide` starts when `long` must have ended, and leaves two hosts of ten."""
    assert reserved(held_up(), 8) == (10 * HOUR_NS, 10)


def test_a_short_job_overtakes() -> None:
    assert decided(run(held_up(), submit("short", 4, limit_s=10 * HOUR))) == ["short"]


def test_a_job_that_would_delay_the_promise_does_not() -> None:
    assert decided(run(held_up(), submit("late", 4, limit_s=10 * HOUR + 1))) == []


def test_a_long_job_overtakes_on_hosts_that_stay_idle_anyway() -> None:
    assert decided(run(held_up(), submit("late", 2, limit_s=99 * HOUR))) == ["late"]
    assert decided(run(held_up(), submit("late", 3, limit_s=99 * HOUR))) == []


def test_extra_hosts_are_given_once() -> None:
    state = run(held_up(), submit("x", 1, limit_s=99 * HOUR), submit("y", 1, limit_s=99 * HOUR))
    assert decided(run(state, submit("z", 1, limit_s=99 * HOUR))) == ["x", "y"]


def test_spares_of_a_long_job_come_out_of_the_extra_hosts() -> None:
    fits = submit("late", 1, limit_s=99 * HOUR, spares=exactly(1))
    assert decided(run(held_up(), fits)) == ["late"]
    delays = submit("late", 2, limit_s=99 * HOUR, spares=exactly(1))
    assert decided(run(held_up(), delays)) == []


def test_auto_spares_of_a_backfill_do_not_touch_the_promise() -> None:
    """Three hosts would hold one spare; only three of the four free ones are extra."""
    auto = SpareRule()
    assert len(spares_of(started(TEN, submit("alone", 3, spares=auto)), "alone")) == 1
    state = started(TEN, submit("long", 6, limit_s=10 * HOUR))
    state = run(state, submit("wide", 7), submit("late", 3, limit_s=99 * HOUR, spares=auto))
    state = schedule(state)
    assert running(state) == {"long", "late"}
    assert spares_of(state, "late") == ()


def test_a_job_without_a_limit_is_taken_to_run_a_day() -> None:
    assert decided(run(held_up(), submit("endless", 4))) == []
    day = started(TEN, submit("endless", 6))
    state = run(day, submit("wide", 8), submit("short", 4, limit_s=24 * HOUR))
    assert decided(state) == ["short"]
    assert decided(run(day, submit("wide", 8), submit("late", 4, limit_s=24 * HOUR + 1))) == []


def test_the_promise_counts_what_this_very_plan_starts() -> None:
    """`now` starts for an hour; `wide` waits for it alone; nothing longer overtakes."""
    state = run(TEN, submit("now", 6, limit_s=HOUR), submit("wide", 8))
    assert decided(run(state, submit("short", 4, limit_s=HOUR))) == ["now", "short"]
    assert decided(run(state, submit("late", 4, limit_s=HOUR + 1))) == ["now"]


def test_only_the_first_that_waits_holds_a_promise() -> None:
    """EASY: `second` may be delayed by a backfill, `wide` may not."""
    state = run(held_up(), submit("second", 10), submit("short", 4, limit_s=10 * HOUR))
    assert decided(state) == ["short"]


def test_fifo_nobody_overtakes() -> None:
    state = run(held_up(), submit("short", 1, limit_s=1))
    assert decided(state, policy=Policy.FIFO) == []
    assert decided(state, policy=Policy.EASY) == ["short"]


@pytest.mark.parametrize(
    ("late_s", "more_s"), [(0, 60), (59, 60), (60, 120), (3_600, 3_840), (5 * HOUR, 30_720)]
)
def test_a_job_past_its_limit_is_given_as_long_again(late_s: int, more_s: int) -> None:
    """One minute, two, four, ... beyond its limit: never more than twice what it is late."""
    now_ns, end_ns = 10 * HOUR_NS + late_s * SECOND_NS, 10 * HOUR_NS + more_s * SECOND_NS
    assert reserved(held_up(), 8, now_ns) == (end_ns, 10)
    left_s = more_s - late_s
    assert decided(run(held_up(), submit("short", 4, limit_s=left_s)), now_ns) == ["short"]
    assert decided(run(held_up(), submit("short", 4, limit_s=left_s + 1)), now_ns) == []


def test_hosts_that_are_broken_make_no_promise() -> None:
    """Nobody knows when `wide` can start, so nobody waits for it."""
    state = run(started(TEN, submit("long", 6)), fail("z0-r0-h9"), submit("wide", 10))
    assert reserved(state, 10) is None
    assert decided(run(state, submit("late", 3, limit_s=99 * HOUR))) == ["late"]


def test_jobs_that_end_together_count_together() -> None:
    state = started(TEN, submit("a", 4, limit_s=HOUR), submit("b", 4, limit_s=HOUR))
    assert reserved(state, 5) == (HOUR_NS, 10)


def test_draining_hosts_do_not_come_back() -> None:
    """`a` sits on a draining host: its end makes five hosts of its six."""
    state = run(started(TEN, submit("a", 10, limit_s=HOUR)), drain("z0-r0-h0"))
    assert reserved(state, 9) == (HOUR_NS, 9)
    assert reserved(state, 10) is None


def test_the_promised_job_starts_when_there_is_room() -> None:
    state = started(held_up(), submit("short", 4, limit_s=10 * HOUR))
    state = schedule(run(state, end("long")), HOUR_NS)
    assert running(state) == {"short"}
    state = schedule(run(state, end("short")), 2 * HOUR_NS)
    assert running(state) == {"wide"}


# --- failures ----------------------------------------------------------------------


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
    assert state.jobs["a"].start_ns == 5
    assert hosts_of(state, "a") == (before[0], spare, before[2])
    assert spares_of(state, "a") == ()
    assert not hostset.has(state.held, state.loaded_fabric.index_by_name[before[1]])


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
    assert [type(action) for action in decide(state, 0, Limits()).actions] == [Refill]
    assert state.jobs["a"].state is JobState.RUNNING


def test_two_hosts_of_one_gang_fail_at_once() -> None:
    state = started(EIGHT, submit("a", 4, spares=exactly(1)))
    before = hosts_of(state, "a")
    state = run(state, fail(before[0]), fail(before[3]))
    (action,) = decide(state, 0, Limits()).actions
    assert isinstance(action, Swap)
    assert {move.block for move in action.moves} == {0, 3}
    state = schedule(state)
    assert state.jobs["a"].state is JobState.RUNNING
    assert state.jobs["a"].attempt == 2
    assert hosts_of(state, "a")[1:3] == before[1:3]
    assert not state.held & state.unhealthy


def test_no_host_to_swap_in_requeues() -> None:
    state = started(EIGHT, submit("a", 8))
    state = run(state, fail("z0-r0-h0"))
    (action,) = decide(state, 0, Limits()).actions
    assert isinstance(action, Requeue)
    assert action.reason == (
        "host z0-r0-h0 failed: gpu-lost; no host to swap in (1 failed, 0 to swap in)"
    )
    state = schedule(state)
    assert state.jobs["a"].state is JobState.QUEUED
    assert state.held == 0


def test_a_requeued_job_starts_as_its_next_attempt() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    state = schedule(run(state, repair("z0-r0-h0")), LATER_NS)
    assert running(state) == {"a"}
    assert state.jobs["a"].attempt == 2


def test_a_job_does_not_start_on_the_host_that_just_stopped_it() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    plan = decide(run(state, repair("z0-r0-h0")), 0, Limits())
    assert (plan.actions, plan.look_again_ns) == ((), LATER_NS)


def test_a_requeued_job_keeps_its_seniority() -> None:
    """Two jobs arrived later; neither takes the hosts that `a` gives back."""
    state = started(EIGHT, submit("a", 8))
    state = run(state, submit("b", 8), submit("c", 8), fail("z0-r0-h0"))
    state = schedule(state)
    assert state.queue == ("a", "b", "c")
    state = schedule(run(state, repair("z0-r0-h0")), LATER_NS)
    assert running(state) == {"a"}


def test_nobody_slips_in_between_a_failure_and_the_requeue() -> None:
    """Two hosts fail, one is free: no plan that requeues `a` gives that host away,
    for `a` comes first."""
    state = started(loaded(fabric(1, 1, 7)), submit("a", 6, priority=1))
    a = hosts_of(state, "a")
    state = run(state, fail(a[0]), fail(a[1]), submit("late", 1))
    assert [type(action) for action in decide(state, 0, Limits()).actions] == [Requeue]


def test_a_gang_whose_host_was_repaired_in_time_starts_again() -> None:
    """Failed and repaired before any decision: it keeps its hosts until it may use that one."""
    state = started(EIGHT, submit("a", 8))
    before = hosts_of(state, "a")
    state = run(state, fail("z0-r0-h0"), repair("z0-r0-h0"))
    assert state.jobs["a"].state is JobState.INTERRUPTED
    plan = decide(state, 0, Limits())
    assert (plan.actions, plan.look_again_ns) == ((), LATER_NS)
    state = schedule(state, LATER_NS)
    assert state.jobs["a"].state is JobState.RUNNING
    assert state.jobs["a"].attempt == 2
    assert hosts_of(state, "a") == before


def test_the_important_gang_gets_the_last_host() -> None:
    state = loaded(fabric(1, 1, 7))
    state = started(state, submit("low", 3), submit("high", 3, priority=1))
    low, high = hosts_of(state, "low"), hosts_of(state, "high")
    plan = decide(run(state, fail(low[0]), fail(high[0])), 0, Limits())
    assert [(type(a), a.name) for a in plan.actions] == [(Swap, "high"), (Requeue, "low")]


def test_a_host_swapped_in_is_not_given_away_too() -> None:
    state = loaded(fabric(1, 1, 4))
    state = started(state, submit("a", 3))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 1))
    plan = decide(state, 0, Limits())
    assert [type(a) for a in plan.actions] == [Swap]


# --- draining ------------------------------------------------------------------------


def test_a_draining_host_is_left_for_a_spare() -> None:
    state = started(EIGHT, submit("a", 3, spares=exactly(1)))
    before, (spare,) = hosts_of(state, "a"), spares_of(state, "a")
    state = schedule(run(state, drain(before[2])))
    assert hosts_of(state, "a") == (*before[:2], spare)
    host = state.loaded_fabric.index_by_name[before[2]]
    assert state.host(host).state is HostState.CORDONED
    assert state.holder(host) is None


def test_a_draining_host_with_nowhere_to_go_waits_for_the_end() -> None:
    state = run(started(EIGHT, submit("a", 8)), drain("z0-r0-h0"))
    assert decide(state, 0, Limits()).actions == ()
    state = run(state, end("a"))
    assert state.host(0).state is HostState.CORDONED


def test_a_draining_host_is_left_as_soon_as_there_is_room() -> None:
    state = started(EIGHT, submit("a", 6), submit("b", 2))
    left = hosts_of(state, "a")[0]
    state = run(state, drain(left))
    assert decide(state, 0, Limits()).actions == ()
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
    (action,) = decide(state, 0, Limits()).actions
    assert isinstance(action, Swap)
    assert action.moves == (Move(3, index[before[3]], index[last]),)


def test_a_cordoned_host_is_not_left() -> None:
    state = started(EIGHT, submit("a", 4))
    state = run(state, cordon(hosts_of(state, "a")[0]))
    assert decide(state, 0, Limits()).actions == ()


def test_a_cancelled_gang_frees_its_hosts_at_once() -> None:
    state = run(started(EIGHT, submit("a", 8)), submit("b", 8), cancel("a"))
    assert decided(state) == ["b"]


def test_limits_are_seconds() -> None:
    state = started(TEN, submit("a", 10, limit_s=7), now_ns=3 * SECOND_NS)
    assert reserved(state, 1, 4 * SECOND_NS) == (10 * SECOND_NS, 10)
    assert job(state, "a").start_ns == 3 * SECOND_NS


def test_nobody_starts_on_what_a_swap_makes_due_to_another_tenant() -> None:
    """A gang that swaps in its spare holds one host less: that is promised to its tenant."""
    tenants = Tenants((Tenant("lab", guaranteed_gpus=16), Tenant("shop"), Tenant("default")))
    state = run(loaded(fabric(1, 1, 5)), LoadTenants(tenants))
    state = schedule(run(state, submit("a", spares=exactly(1), tenant="lab")))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 3, tenant="shop"))
    plan = decide(state, 0, Limits())
    assert [type(action) for action in plan.actions] == [Swap]
    assert "b" not in running(schedule(state))
