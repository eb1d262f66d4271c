"""Elastic gangs that drop replicas for others: how many, whose, when, and what is checked again."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from scheduler.core import (
    Conflict,
    Plan,
    SchedulingOptions,
    State,
    Tenants,
    commit,
    decide,
    explain,
)
from scheduler.core.explain.reason import Shrink
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import Event, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Start
from scheduler.core.model.restart_option import RestartOption, taken
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant
from tests.build import (
    HOUR_NS,
    MINUTE_NS,
    cordon,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    run,
    running,
    schedule,
    started,
    submit,
)
from tests.windows import set_window

F = fabric(zones=2, racks=2, hosts=2)
CLASSES = (
    PriorityClass("spot", -5, is_preemptible=True),
    PriorityClass("urgent", 5),
)
TERMS = Preemption(min_run_s=600, costs=Costs(checkpoint_s=1_800, restart_s=300))
TENANTS = Tenants((Tenant("default"),), classes=CLASSES, preemption=TERMS)
LATER_NS = 20 * MINUTE_NS


def cluster(tenants: Tenants = TENANTS) -> State:
    return run(loaded(F), LoadTenants(tenants))


def spot(hosts: int = 8, min_dp: int = 1, name: str = "a", **more: object) -> State:
    """A cluster on which an elastic gang of the class spot runs."""
    wanted = submit(name, hosts, min_dp=min_dp, priority_class="spot", **more)  # type: ignore[arg-type]
    return started(cluster(), wanted)


def urgent(state: State, hosts: int, now_ns: int = LATER_NS, **more: object) -> State:
    """The same with an urgent job that waits."""
    wanted = submit("u", hosts, priority_class="urgent", limit_s=3_600, **more)  # type: ignore[arg-type]
    return run(state, wanted, now_ns=now_ns)


def events_of(state: State, now_ns: int = LATER_NS) -> tuple[Event, ...]:
    answer = commit(state, decide(state, now_ns, SchedulingOptions()), now_ns)
    assert not isinstance(answer, Conflict), answer
    return answer


class TestHowMany:
    def test_whole_replicas(self) -> None:
        """Each has one host in either zone: two of four go, though three would leave a zone."""
        after = schedule(urgent(spot(pp=2), 3), LATER_NS)
        assert (job(after, "a").dp, after.free.bit_count()) == (2, 1)

    def test_sizes_that_the_batch_skips_are_skipped(self) -> None:
        state = urgent(spot(min_dp=2), 1)
        a = job(state, "a")
        some = replace(state, jobs={**state.jobs, "a": replace(a, sizes=(2, 4, 8))})
        (shrink,) = _start(some).shrinks
        assert shrink.dp == 4

    def test_spares_that_it_insists_on_are_kept(self) -> None:
        after = schedule(urgent(spot(hosts=7, spares=exactly(1)), 3), LATER_NS)
        assert (job(after, "a").dp, len(job(after, "a").spares)) == (4, 1)


class TestWhich:
    def test_constraints_of_the_job_are_kept(self) -> None:
        after = schedule(urgent(spot(), 2, where=Constraints(same="rack")), LATER_NS)
        assert len({host.rpartition("-")[0] for host in hosts_of(after, "u")}) == 1
        assert job(after, "a").dp == 6

    def test_one_that_shrinks_goes_before_one_that_is_sent_away(self) -> None:
        """Even though the rigid one has less to lose."""
        state = started(spot(hosts=4, min_dp=2), submit("r", 4, priority_class="spot"))
        after = schedule(urgent(state, 2), LATER_NS)
        assert running(after) == {"a", "r", "u"}

    def test_but_low_priority_goes_first(self) -> None:
        classes = (*CLASSES, PriorityClass("dear", 3, is_preemptible=True))
        state = started(
            cluster(replace(TENANTS, classes=classes)),
            submit("a", 4, min_dp=2, priority_class="dear"),
            submit("r", 4, priority_class="spot"),
        )
        after = schedule(urgent(state, 2), LATER_NS)
        assert running(after) == {"a", "u"}
        assert job(after, "a").dp == 4

    def test_some_shrink_and_others_leave(self) -> None:
        state = started(spot(hosts=5, min_dp=2), submit("r", 3, priority_class="spot"))
        plan = _start(urgent(state, 6))
        assert (plan.victims, [(s.name, s.dp) for s in plan.shrinks]) == (("r",), [("a", 2)])
        reason = explain(urgent(state, 6), "u", LATER_NS, SchedulingOptions())
        assert reason.sentence == (
            "starts with the next decision, by shrinking a to dp 2 and preempting r"
        )
        assert (reason.preempts, reason.shrinks) == (("r",), (Shrink("a", 2),))


class TestWhen:
    def test_after_the_minimum_run_time(self) -> None:
        state = urgent(spot(), 1, now_ns=0)
        plan = decide(state, 9 * MINUTE_NS, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), 10 * MINUTE_NS)
        reason = explain(state, "u", 9 * MINUTE_NS, SchedulingOptions())
        assert reason.sentence.endswith("; or by shrinking a to dp 7 in 1 min")
        assert (reason.preempts, reason.shrinks) == ((), (Shrink("a", 7),))
        assert reason.preempt_ns == 10 * MINUTE_NS

    def test_it_counts_as_a_start_for_the_next_time(self) -> None:
        after = schedule(urgent(spot(), 1), LATER_NS)
        again = run(after, submit("v", 1, priority_class="urgent"), now_ns=LATER_NS)
        plan = decide(again, LATER_NS, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), LATER_NS + 10 * MINUTE_NS)

    def test_not_into_a_window_that_it_would_have_ended_before(self) -> None:
        """With one replica of two its hour takes two, and the window opens in between."""
        for from_s, is_sent_away in ((5_400, True), (3 * 3_600, False)):
            state = spot(hosts=8, min_dp=4, limit_s=3_600)
            window = set_window("w", "z0", "z1", start_s=from_s, end_s=6 * 3_600)
            state = urgent(run(state, window), 4, now_ns=10 * MINUTE_NS)
            wanted = replace(state.jobs["u"], spec=replace(state.jobs["u"].spec, time_limit_s=60))
            state = replace(state, jobs={**state.jobs, "u": wanted})
            start = _start(state, 10 * MINUTE_NS)
            assert bool(start.victims) is is_sent_away

    def test_nobody_who_was_promised_a_start_waits_longer_for_it(self) -> None:
        """big is to have all hosts when a ends in an hour; with half its replicas a would
        need two, so a is not made smaller for little, who is short."""
        state = spot(hosts=4, min_dp=2, limit_s=3_600)
        state = started(state, submit("n", 4, limit_s=3_600))
        state = run(state, submit("big", 8, priority_class="urgent"), now_ns=LATER_NS)
        state = run(state, submit("little", 2, limit_s=60), now_ns=LATER_NS)
        assert not any(s.shrinks for s in _starts(state))


class TestCheckedAgain:
    def test_a_plan_falls_when_the_gang_lies_elsewhere_meanwhile(self) -> None:
        state = urgent(spot(hosts=7), 3)
        plan = decide(state, LATER_NS, SchedulingOptions())
        moved = schedule(run(state, fail(hosts_of(state, "a")[0]), now_ns=LATER_NS), 0)
        assert isinstance(commit(moved, plan, LATER_NS), Conflict)

    @pytest.mark.parametrize("dp", [8, 7, 0])
    def test_a_size_that_is_none_is_no_plan(self, dp: int) -> None:
        state = urgent(spot(), 3)
        start = _start(state)
        wrong = replace(start, shrinks=(replace(start.shrinks[0], dp=dp),))
        assert isinstance(commit(state, Plan(state.version, (wrong,)), LATER_NS), Conflict)

    def test_nor_are_hosts_that_it_does_not_have(self) -> None:
        state = urgent(started(spot(hosts=4), submit("n", 3)), 2)
        start = _start(state)
        (shrink,) = start.shrinks
        free = hostset.members(state.free)[0]
        elsewhere = replace(shrink.placement, hosts=(free, *shrink.placement.hosts[1:]))
        wrong = replace(start, shrinks=(replace(shrink, placement=elsewhere),))
        assert isinstance(commit(state, Plan(state.version, (wrong,)), LATER_NS), Conflict)


class TestFailure:
    def test_a_failed_gang_takes_one_replica_of_a_lesser_one(self) -> None:
        state = started(spot(hosts=4), submit("n", 4, priority_class="urgent"))
        state = run(state, fail(hosts_of(state, "n")[0]), now_ns=LATER_NS)
        after = schedule(state, LATER_NS)
        assert (running(after), job(after, "a").dp) == ({"a", "n"}, 3)
        step = taken(job(after, "n").restart_options)
        assert step is not None
        assert (step.option, step.note) == (RestartOption.PREEMPT, "shrinks a to dp 3")
        assert job(after, "a").reason.startswith("shrunk from dp 4 by n")

    def test_cordoned_hosts_that_it_gives_up_are_no_room(self) -> None:
        state = run(spot(), cordon("z0-r0-h0"))
        after = schedule(urgent(state, 1), LATER_NS)
        assert running(after) == {"a", "u"}
        assert "z0-r0-h0" not in hosts_of(after, "u")


def grown(**more: int) -> State:
    """A gang that began with four hosts, and has eight since half an hour."""
    state = started(started(cluster(), submit("x", 4)), submit("a", 8, min_dp=2, **more))
    state = schedule(run(state, end("x")), HOUR_NS // 2)
    assert (job(state, "a").present.start_dp, job(state, "a").dp) == (4, 8)
    return state


class TestLoan:
    """What a gang has grown beyond its start, it gives back."""

    DUE_NS = HOUR_NS // 2 + 300 * SECOND_NS + 1_800 * SECOND_NS  # restarted, and saved

    def test_not_to_one_of_lower_priority(self) -> None:
        state = run(grown(priority=1), submit("b", 3), now_ns=HOUR_NS // 2)
        assert not decide(state, self.DUE_NS, SchedulingOptions()).actions

    def test_no_more_often_than_it_may_grow(self) -> None:
        state = run(grown(), submit("b", 3), now_ns=HOUR_NS // 2)
        limits = SchedulingOptions(resize_every_s=3 * 3_600)
        assert not decide(state, self.DUE_NS, limits).actions

    def test_nobody_gives_back_where_nobody_is_preempted(self) -> None:
        off = replace(TENANTS, preemption=replace(TERMS, is_on=False))
        state = run(grown(), LoadTenants(off), submit("b", 3), now_ns=HOUR_NS // 2)
        assert not decide(state, self.DUE_NS, SchedulingOptions()).actions

    def test_to_a_gang_that_lost_a_host_at_once(self) -> None:
        state = started(cluster(), submit("x", 3), submit("n", 1), submit("a", 8, min_dp=2))
        state = schedule(run(state, end("x")), HOUR_NS // 2)
        assert (job(state, "a").present.start_dp, job(state, "a").dp) == (4, 7)
        then_ns = 45 * MINUTE_NS
        after = schedule(run(state, fail(hosts_of(state, "n")[0]), now_ns=then_ns), then_ns)
        assert (running(after), job(after, "a").dp) == ({"a", "n"}, 6)

    def test_a_later_start_begins_anew(self) -> None:
        state = run(grown(), fail("z0-r0-h0"), now_ns=HOUR_NS)
        assert job(schedule(state, HOUR_NS), "a").present.start_dp == 4


def _starts(state: State, now_ns: int = LATER_NS) -> list[Start]:
    return [a for a in decide(state, now_ns, SchedulingOptions()).actions if isinstance(a, Start)]


def _start(state: State, now_ns: int = LATER_NS) -> Start:
    (found,) = _starts(state, now_ns)
    return found


def test_nobody_borrows_spares_of_a_gang_that_makes_room() -> None:
    """One host of g, and its spare, are free once it is gone: b starts there, k waits."""
    state = started(cluster(), submit("n", 6, priority=9))
    state = started(state, submit("g", 1, priority_class="spot", spares=exactly(1)))
    state = urgent(state, 1)
    for name in "bk":
        state = run(state, submit(name, 1, priority_class="spot"), now_ns=LATER_NS)
    events = events_of(state)
    plan = decide(state, LATER_NS, SchedulingOptions())
    assert [event.name for event in events if isinstance(event, JobStarted)] == ["u", "b"]
    assert len(events) == len(plan.actions) + 1
