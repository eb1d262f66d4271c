"""Gangs at their time limit, and how often they may put off the first that waits."""

from dataclasses import replace

import pytest

from scheduler.core import Conflict, JobState, SchedulingOptions, State, commit, decide
from scheduler.core.model.events import JobEnded
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import RequeueCause
from scheduler.core.model.plan import EnforceTimeLimit, Plan, Start
from scheduler.core.model.scheduling_options import Overrun
from scheduler.files import defaults
from tests.build import (
    HOUR_NS,
    committed,
    end,
    fabric,
    job,
    loaded,
    run,
    schedule,
    settled,
    started,
    submit,
)

KILL = SchedulingOptions(overrun=Overrun.KILL)
REQUEUE = SchedulingOptions(overrun=Overrun.REQUEUE)
EXTEND = SchedulingOptions(overrun=Overrun.EXTEND)
FOUR = loaded(fabric(1, 1, 4))


def two_hours() -> State:
    return started(FOUR, submit("a", 2, limit_s=7_200), submit("b", 2))


def test_a_decision_is_due_when_the_next_limit_is_reached() -> None:
    assert decide(two_hours(), HOUR_NS, KILL).next_decision_ns == 2 * HOUR_NS
    assert decide(two_hours(), HOUR_NS, EXTEND).next_decision_ns is None


def test_a_plan_that_starts_gangs_is_followed_by_one_that_knows_their_limits() -> None:
    plan = decide(run(FOUR, submit("a", 2, limit_s=60)), 0, KILL)
    assert any(isinstance(action, Start) for action in plan.actions)
    assert not plan.is_fixpoint


def test_a_gang_at_its_limit_has_failed_and_those_that_state_none_run_on() -> None:
    state, now_ns = two_hours(), 2 * HOUR_NS
    assert decide(state, now_ns - 1, KILL).actions == ()
    plan = decide(state, 9 * HOUR_NS, KILL)
    assert plan.actions == (EnforceTimeLimit("a", is_requeued=False),)
    events = commit(state, plan, now_ns)
    assert events == (
        JobEnded(now_ns, "a", JobState.FAILED, "reached its time limit of 2 h 00 min"),
    )
    assert decide(state, now_ns, EXTEND).actions == ()


def test_a_requeued_gang_goes_on_from_what_it_has_saved() -> None:
    state = schedule(two_hours(), 2 * HOUR_NS, REQUEUE)
    assert job(state, "a").state is JobState.QUEUED
    plan = decide(two_hours(), 2 * HOUR_NS, REQUEUE)
    assert committed(two_hours(), plan, 2 * HOUR_NS)[0].cause is RequeueCause.TIME_LIMIT
    state = schedule(state, 2 * HOUR_NS, REQUEUE)
    assert (job(state, "a").state, job(state, "a").attempt) == (JobState.RUNNING, 2)


def test_a_gang_that_has_saved_nothing_by_its_limit_has_failed() -> None:
    """Another attempt would come no further, for ever."""
    state = started(FOUR, submit("a", 2, limit_s=60))
    state = schedule(state, 60 * SECOND_NS, REQUEUE)
    assert job(state, "a").state is JobState.FAILED
    assert job(state, "a").reason == "reached its time limit of 1 min before anything was saved"


def test_a_gang_that_began_another_attempt_meanwhile_has_all_its_time() -> None:
    state = two_hours()
    late = replace(state.jobs["a"], gang=replace(state.jobs["a"].present, start_ns=HOUR_NS))
    moved = replace(state, jobs={**state.jobs, "a": late})
    answer = commit(moved, Plan(state.version, (EnforceTimeLimit("a", False),)), 2 * HOUR_NS)
    assert isinstance(answer, Conflict)
    gone = run(state, end("a"), now_ns=HOUR_NS)
    assert isinstance(commit(gone, Plan(0, (EnforceTimeLimit("a", False),)), 2 * HOUR_NS), Conflict)


def waited_s(most_slips: int, policy: str) -> int:
    """How long a gang of all hosts waits behind jobs of one that state half their run; at most
    1,500 s."""
    options = SchedulingOptions(policy=policy, most_slips=most_slips)
    state, number, ends = loaded(fabric(1, 1, 8)), 0, dict[str, int]()
    for second in range(0, 2_000, 10):
        now_ns = second * SECOND_NS
        over = [name for name, at in ends.items() if at <= second]
        state = run(state, *map(end, over), now_ns=now_ns)
        for name in over:
            del ends[name]
        if second == 500:
            state = run(state, submit("wide", 8, limit_s=100), now_ns=now_ns)
        while sum(name != "wide" for name in state.index.queue) < 8:
            number += 1
            limit_s = 20 + 10 * (number * 7 % 5)
            state = run(state, submit(f"j{number}", limit_s=limit_s), now_ns=now_ns)
        before, state = state, settled(state, now_ns, options)
        for name in set(state.index.running) - set(before.index.running):
            if name == "wide":
                return second - 500
            ends[name] = second + 2 * (state.jobs[name].limit_ns or 0) // SECOND_NS
    return 1_500


@pytest.mark.parametrize("policy", ["easy", pytest.param("production", marks=pytest.mark.slow)])
def test_understated_limits_put_off_the_first_that_waits_only_so_often(policy: str) -> None:
    assert waited_s(0, policy) > 5 * waited_s(1, policy)


def test_the_defaults_of_options_are_those_of_the_core() -> None:
    core = SchedulingOptions()
    assert (core.most_slips, core.most_reservations) == (
        defaults.MOST_SLIPS,
        defaults.MOST_RESERVATIONS,
    )
