"""Who runs next: order, gangs, backfill around a promise, and what a failure does."""

import pytest

from placement.fabric import hostset
from placement.workload.request import SpareRule
from scheduler.core import JobState, SchedulingOptions, State, decide
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Move, Plan, ReplenishSpares, Requeue, Start, Swap
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import (
    HOUR_NS,
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    queue_order,
    repair,
    run,
    running,
    schedule,
    settled,
    spares_of,
    started,
    submit,
)

HOUR = 3_600
EIGHT = loaded(fabric(2, 2, 2))  # z0: r0, r1; z1: r0, r1; two hosts a rack
TEN = loaded(fabric(1, 1, 10))


def starts(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Start)]


def reserved(
    state: State, hosts: int, now_ns: int = 0, options: SchedulingOptions | None = None
) -> tuple[int, int] | None:
    """(start, hosts free then) of a job of so many hosts, as if it were the first to wait."""
    options, quotas = options or SchedulingOptions(), Quotas(state)
    probe = job(run(state, submit("probe", hosts)), "probe")
    outlook = Outlook(state, now_ns, options, quotas)
    found = outlook.reservation(probe, state.free)
    return None if found is None else (found.start_ns, found.extra + hosts)


def order(state: State, policy: str) -> list[str]:
    return queue_order(state, 0, SchedulingOptions(policy=policy))


def decided(state: State, now_ns: int = 0, policy: str = "production") -> list[str]:
    """Names of the jobs that start, in order."""
    return starts(decide(state, now_ns, SchedulingOptions(policy=policy)))


# --- order ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["easy", "fifo", "conservative"])
def test_the_textbook_policies_ignore_priority(policy: str) -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state, policy=policy) == ["a", "b"]
    assert order(state, policy) == ["a", "b", "c"]


# --- gangs ---------------------------------------------------------------------


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


# --- backfill --------------------------------------------------------------------


def held_up(**wide: int) -> State:
    """Ten hosts: `long` holds six for ten hours, `wide` needs eight and waits."""
    state = started(TEN, submit("long", 6, limit_s=10 * HOUR))
    return run(state, submit("wide", 8, limit_s=HOUR, **wide))


@pytest.mark.parametrize("spares", [SpareRule(), exactly(1)])
def test_drained_spare_is_released_and_replaced(spares: SpareRule) -> None:
    state = settled(run(TEN, submit("a", 3, spares=spares)))
    (spare,) = spares_of(state, "a")
    state = settled(run(state, drain(spare)))
    (other,) = spares_of(state, "a")
    assert other != spare
    assert not hostset.has(state.index.held, state.loaded_fabric.index_by_name[spare])


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


def test_hosts_that_are_broken_are_taken_to_be_repaired() -> None:
    """A job that ends by then passes `wide`, and a longer one does not."""
    state = run(started(TEN, submit("long", 6)), fail("z0-r0-h9"), submit("wide", 10))
    assert reserved(state, 10) == (24 * HOUR_NS, 10)
    late = [submit("late", 3, limit_s=99 * HOUR), submit("soon", 3, limit_s=20 * HOUR)]
    assert decided(run(state, *late)) == ["soon"]


def test_hosts_that_are_cordoned_make_no_promise() -> None:
    """Nobody knows when `wide` can start, so nobody waits for it."""
    state = run(started(TEN, submit("long", 6)), cordon("z0-r0-h9"), submit("wide", 10))
    assert reserved(state, 10) is None
    assert decided(run(state, submit("late", 3, limit_s=99 * HOUR))) == ["late"]


def test_draining_hosts_do_not_come_back() -> None:
    """`a` sits on a draining host: its end makes five hosts of its six."""
    state = run(started(TEN, submit("a", 10, limit_s=HOUR)), drain("z0-r0-h0"))
    assert reserved(state, 9) == (HOUR_NS, 9)
    assert reserved(state, 10) is None


# --- hosts that fail, drain and come back ---


LATER_NS = 600 * SECOND_NS  # a host that stopped a job may be used by it again


def test_a_lost_spare_stops_nobody() -> None:
    state = started(EIGHT, submit("a", 3, spares=exactly(1)))
    (spare,) = spares_of(state, "a")
    state = run(state, fail(spare))
    assert [type(action) for action in decide(state, 0, SchedulingOptions()).actions] == [
        ReplenishSpares
    ]
    assert state.jobs["a"].state is JobState.RUNNING


def test_a_job_does_not_start_on_the_host_that_just_stopped_it() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    plan = decide(run(state, repair("z0-r0-h0")), 0, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), LATER_NS)


def test_nobody_slips_in_between_a_failure_and_the_requeue() -> None:
    """Two hosts fail, one is free: no plan that requeues `a` gives that host away,
    for `a` comes first."""
    state = started(loaded(fabric(1, 1, 7)), submit("a", 6, priority=1))
    a = hosts_of(state, "a")
    state = run(state, fail(a[0]), fail(a[1]), submit("late", 1))
    assert [type(action) for action in decide(state, 0, SchedulingOptions()).actions] == [Requeue]


def test_the_important_gang_gets_the_last_host() -> None:
    state = loaded(fabric(1, 1, 7))
    state = started(state, submit("low", 3), submit("high", 3, priority=1))
    low, high = hosts_of(state, "low"), hosts_of(state, "high")
    plan = decide(run(state, fail(low[0]), fail(high[0])), 0, SchedulingOptions())
    assert [(type(a), a.name) for a in plan.actions] == [(Swap, "high"), (Requeue, "low")]


# --- draining ------------------------------------------------------------------------


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


def test_nobody_starts_on_what_a_swap_makes_due_to_another_tenant() -> None:
    """A gang that swaps in its spare holds one host less: that is promised to its tenant."""
    tenants = Tenants((Tenant("lab", guaranteed_gpus=16), Tenant("shop"), Tenant("default")))
    state = run(loaded(fabric(1, 1, 5)), LoadTenants(tenants))
    state = schedule(run(state, submit("a", spares=exactly(1), tenant="lab")))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 3, tenant="shop"))
    plan = decide(state, 0, SchedulingOptions())
    assert [type(action) for action in plan.actions] == [Swap]
    assert "b" not in running(schedule(state))
