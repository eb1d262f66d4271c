"""Held jobs, begin times and dependencies: who is considered, from when on, and who never is."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core import Code, JobState, SchedulingOptions, State, explain
from scheduler.core.admission.dependencies import stem
from scheduler.core.explain.conditions import supposed
from scheduler.core.model.commands import HoldJob, ReleaseJob, RequeueJob, SubmitJob, UpdateJob
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import JobHeld, JobRequeued
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import Hold
from scheduler.files.job import job_from_mapping, job_to_mapping
from tests.build import (
    admitted,
    cancel,
    end,
    loaded,
    refused,
    run,
    schedule,
    settled,
    spec,
    started,
    submit,
)

EMPTY = loaded()
NOW = 100 * SECOND_NS


def waiting(name: str, user: str = "", *terms: DependencyTerm, **fields: Any) -> SubmitJob:
    """A job of one host that waits for something."""
    fields.setdefault("dependencies", terms)
    return SubmitJob(replace(spec(name), **fields), f"uid-{name}", user=user)


def after(kind: str, job: str = "") -> DependencyTerm:
    return DependencyTerm(DependencyKind(kind), job)


def state_of(state: State, name: str) -> JobState:
    job = state.find(name)
    assert job is not None
    return job.state


def reason(state: State, name: str, now_ns: int = NOW) -> str:
    return explain(state, name, now_ns, SchedulingOptions()).sentence


def test_a_held_job_starts_when_it_is_released() -> None:
    held = schedule(run(EMPTY, waiting("a", hold=True), now_ns=NOW), now_ns=NOW)
    assert (state_of(held, "a"), dict(held.index.deferred).keys()) == (JobState.QUEUED, {"a"})
    assert "held by its owner" in reason(held, "a")

    free = schedule(run(held, ReleaseJob("a"), now_ns=NOW), now_ns=NOW)

    assert state_of(free, "a") is JobState.RUNNING


def test_requeue_and_hold_are_one_command() -> None:
    running = started(EMPTY, submit("a"))
    events = admitted(running, RequeueJob("a", hold=True, by=Hold.OPERATOR))
    assert [type(event) for event in events] == [JobHeld, JobRequeued]
    assert run(running, RequeueJob("a", hold=True)).jobs["a"].hold is Hold.OWNER
    assert admitted(run(EMPTY, submit("a")), RequeueJob("a")) == ()


def test_what_an_operator_holds_an_operator_releases() -> None:
    held = run(EMPTY, submit("a"), HoldJob("a", Hold.OPERATOR))
    assert refused(held, ReleaseJob("a")).code is Code.PRECONDITION
    assert run(held, HoldJob("a")).jobs["a"].hold is Hold.OPERATOR
    assert run(held, ReleaseJob("a", Hold.OPERATOR)).index.queue == ("a",)


def test_a_hold_voids_what_was_promised() -> None:
    full = started(EMPTY, submit("big", 8, limit_s=60))
    state = schedule(run(full, submit("a", 8), submit("b", 8)))
    assert "a" not in run(state, HoldJob("a")).reserved
    assert "a" not in schedule(run(state, HoldJob("a"))).reserved


def test_a_job_begins_at_its_time_and_the_queue_passes_it_before() -> None:
    begin = NOW + 50 * SECOND_NS
    state = run(EMPTY, waiting("a", begin_ns=begin), submit("b", 8), now_ns=NOW)
    state = schedule(state, now_ns=NOW)
    assert (state_of(state, "a"), state_of(state, "b")) == (JobState.QUEUED, JobState.RUNNING)
    assert "begins at 1970-01-01T00:02:30Z" in reason(state, "a")
    state = run(state, end("b"), now_ns=NOW)
    assert state_of(schedule(state, now_ns=begin - 1), "a") is JobState.QUEUED

    for _ in range(2):
        state = schedule(state, now_ns=begin)

    assert state_of(state, "a") is JobState.RUNNING
    assert state.jobs["a"].eligible_ns == begin


@pytest.mark.parametrize(
    ("kind", "outcome", "starts"),
    [
        ("afterok", JobState.COMPLETED, True),
        ("afterok", JobState.FAILED, False),
        ("afternotok", JobState.COMPLETED, False),
        ("afternotok", JobState.FAILED, True),
        ("afternotok", JobState.CANCELLED, True),
        ("afterany", JobState.COMPLETED, True),
        ("afterany", JobState.CANCELLED, True),
    ],
)
@pytest.mark.parametrize("cancels", [False, True])
def test_a_job_starts_after_the_end_that_it_waits_for(
    kind: str, outcome: JobState, *, starts: bool, cancels: bool
) -> None:
    state = started(EMPTY, submit("a"))
    state = schedule(run(state, waiting("b", "", after(kind, "a"), cancel_unmet=cancels)))
    assert state_of(state, "b") is JobState.QUEUED
    assert f"waits for {kind} of a" in reason(state, "b")
    over = cancel("a") if outcome is JobState.CANCELLED else end("a", outcome)
    state = run(state, over)

    for _ in range(2):
        state = schedule(state)

    unmet = JobState.CANCELLED if cancels else JobState.QUEUED
    assert state_of(state, "b") is (JobState.RUNNING if starts else unmet)
    if unmet is JobState.QUEUED and not starts:
        assert "DependencyNeverSatisfied" in reason(state, "b")


def test_a_dependency_is_on_the_job_and_not_on_its_name() -> None:
    state = run(started(EMPTY, submit("a")), waiting("b", "", after("afterok", "a")))
    state = run(state, end("a"), SubmitJob(spec("a"), "another"))
    assert state.jobs["b"].dependencies[0].is_met


def test_an_ended_job_and_one_long_gone_can_be_waited_for() -> None:
    state = run(started(EMPTY, submit("a")), end("a", JobState.FAILED))
    assert state_of(schedule(run(state, waiting("b", "", after("afterany", "a")))), "b") == (
        JobState.RUNNING
    )
    never = refused(state, waiting("c", "", after("afterok", "a")))
    assert (never.code, "DependencyNeverSatisfied" in never.message) == (Code.INFEASIBLE, True)
    unknown = refused(state, waiting("c", "", after("afterok", "old")))
    assert "there is and was no job 'old'" in unknown.message
    old = replace(
        waiting("c", "", after("afterok", "old")),
        long_ended=(("old", "uid-old", JobState.COMPLETED, True),),
    )
    assert state_of(schedule(run(state, old)), "c") is JobState.RUNNING


def test_a_job_that_never_started_has_not_failed() -> None:
    """flux-core issue 6555: what was cancelled for its own dependency starts nobody."""
    chain = (
        submit("c1"),
        waiting("c2", "", after("afternotok", "c1"), cancel_unmet=True),
        waiting("c3", "", after("afternotok", "c2"), cancel_unmet=True),
        waiting("c4", "", after("afternotok", "c3"), cancel_unmet=True),
    )
    state = settled(run(EMPTY, *chain))
    state = settled(run(state, end("c1", JobState.FAILED)))
    assert state_of(state, "c2") is JobState.RUNNING
    state = settled(run(state, end("c2")))
    assert (state_of(state, "c3"), state_of(state, "c4")) == (JobState.CANCELLED,) * 2
    late = refused(state, waiting("c5", "", after("afternotok", "c3")))
    assert late.message.endswith("afternotok of c3, which was cancelled before it started")


def test_namesakes_of_one_user_take_turns() -> None:
    turn = after("singleton")
    state = run(
        EMPTY,
        waiting("nightly-1", "ada", turn),
        waiting("nightly-2", "ada", turn),
        waiting("nightly-3", "bea", turn),
        waiting("nightly", "ada", turn),
        waiting("daily-1", "ada", turn),
    )
    state = schedule(state)
    assert set(state.index.running) == {"nightly-1", "nightly-3", "daily-1"}

    state = run(state, end("nightly-1", JobState.FAILED))
    for _ in range(2):
        state = schedule(state)

    assert set(state.index.running) == {"nightly-2", "nightly-3", "daily-1"}


@pytest.mark.parametrize(
    ("name", "shared"), [("a-1", "a"), ("a_12", "a"), ("a", "a"), ("7", "7"), ("t/a.3", "a")]
)
def test_what_namesakes_share(name: str, shared: str) -> None:
    assert stem(name) == shared


def test_jobs_do_not_wait_for_themselves_nor_in_a_circle() -> None:
    state = run(EMPTY, submit("a"), waiting("b", "", after("afterok", "a")))
    itself = UpdateJob("a", ("dependencies",), dependencies=(after("afterok", "a"),))
    assert "is the job itself" in refused(state, itself).message
    circle = UpdateJob("a", ("dependencies",), dependencies=(after("afterok", "b"),))
    assert "a waits for b waits for a" in refused(state, circle).message


def test_dependencies_and_begin_time_change_while_a_job_waits() -> None:
    state = run(EMPTY, submit("a"), waiting("b", "", after("afterok", "a")))
    free = run(state, UpdateJob("b", ("dependencies",)))
    assert (free.index.queue, dict(free.index.dependants)) == (("a", "b"), {})
    later = run(free, UpdateJob("b", ("begin_ns",), begin_ns=NOW))
    assert later.index.queue == ("a",)
    assert (
        "only labels" in refused(schedule(free), UpdateJob("b", ("begin_ns",), begin_ns=9)).message
    )


@pytest.mark.parametrize(
    ("before_s", "after_s", "by", "changes"),
    [
        (600, 60, Hold.OWNER, True),
        (None, 60, Hold.OWNER, True),
        (600, 900, Hold.OWNER, False),
        (600, None, Hold.OWNER, False),
        (600, 900, Hold.OPERATOR, True),
        (600, None, Hold.OPERATOR, True),
    ],
)
def test_the_time_limit_of_a_job_that_runs(
    before_s: int | None, after_s: int | None, by: Hold, *, changes: bool
) -> None:
    state = started(EMPTY, submit("a", limit_s=before_s))
    command = UpdateJob("a", ("time_limit_s",), time_limit_s=after_s, by=by)
    if changes:
        assert run(state, command).jobs["a"].spec.time_limit_s == after_s
    else:
        assert "an operator alone" in refused(state, command).message


def test_a_what_if_leaves_those_that_wait_for_the_job() -> None:
    full = started(EMPTY, submit("big", 8))
    state = run(full, submit("a"), waiting("b", "", after("afterok", "a")), waiting("c", hold=True))
    other = supposed(state, "a", ["priority 7"], NOW)
    assert other.jobs["a"].priority == 7
    assert other.jobs["b"] == state.jobs["b"]
    assert (other.index.deferred, other.index.dependants) == (
        state.index.deferred,
        state.index.dependants,
    )
    held = supposed(state, "c", ["limit 2h"], NOW)
    assert (held.jobs["c"].hold, held.index.queue) == (Hold.OWNER, state.index.queue)


def test_a_job_file_says_what_a_job_waits_for() -> None:
    text = {
        "name": "b",
        "parallelism": {"dp": 2},
        "hold": True,
        "begin_time": "2026-11-21T06:00:00Z",
        "dependencies": [{"kind": "afterok", "job": "a"}, {"kind": "singleton"}],
        "cancel_unmet": True,
    }
    wanted = job_from_mapping(text)
    assert wanted.dependencies == (after("afterok", "a"), after("singleton"))
    assert job_from_mapping(job_to_mapping(wanted)) == wanted
    short = job_from_mapping({**text, "dependencies": "afterok:a,singleton"})
    assert short == wanted
