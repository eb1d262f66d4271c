"""Who runs next: order, gangs, backfill around a promise, and what a failure does."""

import pytest

from placement.fabric import hostset
from placement.objective.check import violations
from placement.workload.request import SpareRule
from scheduler.core import JobState, SchedulingOptions, State, decide
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Plan, Start
from scheduler.core.tenancy.quota_check import Quotas
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
    queue_order,
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
LATER_NS = 600 * SECOND_NS  # a host that stopped a job may be used by it again
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


def test_nothing_to_do() -> None:
    assert decide(EIGHT, 0, SchedulingOptions()) == Plan(EIGHT.version)
    quiet = started(EIGHT, submit("a", 8))
    assert decide(quiet, 0, SchedulingOptions()) == Plan(quiet.version)


def test_arrival_order() -> None:
    assert decided(run(EIGHT, submit("b"), submit("a"), submit("c"))) == ["b", "a", "c"]


def test_priority_goes_first() -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state) == ["c", "b"]


@pytest.mark.parametrize("policy", ["easy", "fifo", "conservative"])
def test_the_textbook_policies_ignore_priority(policy: str) -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state, policy=policy) == ["a", "b"]
    assert order(state, policy) == ["a", "b", "c"]


def test_the_same_arguments_give_the_same_plan() -> None:
    state = run(EIGHT, submit("a", 3, pp=3), submit("b", 2, spares=exactly(1)), submit("c"))
    assert decide(state, 5, SchedulingOptions()) == decide(state, 5, SchedulingOptions())


def test_every_start_is_a_valid_placement() -> None:
    state = run(EIGHT, submit("a", 3, pp=3), submit("b", 2, spares=exactly(1)), submit("c"))
    free = state.free
    for action in decide(state, 0, SchedulingOptions()).actions:
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
    assert decided(state, policy="fifo") == []
    assert decided(state, policy="easy") == ["short"]


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


def test_limits_are_seconds() -> None:
    state = started(TEN, submit("a", 10, limit_s=7), now_ns=3 * SECOND_NS)
    assert reserved(state, 1, 4 * SECOND_NS) == (10 * SECOND_NS, 10)
    assert job(state, "a").present.start_ns == 3 * SECOND_NS


def test_a_cancelled_gang_frees_its_hosts_at_once() -> None:
    state = run(started(EIGHT, submit("a", 8)), submit("b", 8), cancel("a"))
    assert decided(state) == ["b"]
