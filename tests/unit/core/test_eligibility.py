"""Holds, begin times, dependencies, arrays: who is considered, from when on, and who never is."""

from dataclasses import replace
from typing import Any

import pytest

from placement import BadInput
from scheduler.access.limits import at_most
from scheduler.core import Code, JobState, Rejected, SchedulingOptions, State, explain
from scheduler.core.explain.dryrun import dry_run
from scheduler.core.explain.whatif import supposed
from scheduler.core.model.commands import (
    HoldJob,
    LoadTenants,
    ReleaseJob,
    RequeueJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import JobHeld, JobRequeued
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_array import parse_array
from scheduler.core.model.lifecycle import Hold
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.tenancy.qualified_names import qualified
from scheduler.files.job import job_from_mapping
from tests.build import (
    admitted,
    cancel,
    end,
    job_to_mapping,
    loaded,
    refused,
    run,
    schedule,
    settled,
    spec,
    started,
    submit,
    submit_array,
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
    given = {"begin_time": "1970-01-01T00:01:40Z", "dependencies": "afterok:a,singleton"}
    spec = job_from_mapping({"name": "b", "parallelism": {"dp": 2}, **given})
    assert spec.dependencies == (after("afterok", "a"), after("singleton"))
    assert spec.begin_ns == NOW


# --- arrays ----------------------------------------------------------------------


def running(state: State) -> list[str]:
    return [job.name for job in state.in_state(JobState.RUNNING)]


@pytest.mark.parametrize(
    ("text", "numbers", "most"),
    [
        ("0-3", (0, 1, 2, 3), 0),
        ("7", (7,), 0),
        ("9,1-2%1", (1, 2, 9), 1),
        ("0-10:4 % 2", (0, 4, 8), 2),
        ("999999", (999_999,), 0),
    ],
)
def test_numbers_are_written_as_for_sbatch(text: str, numbers: tuple[int, ...], most: int) -> None:
    made = parse_array(text)
    assert (made.numbers, made.most_running) == (numbers, most)
    assert parse_array(made.text) == made


@pytest.mark.parametrize(
    "text",
    ["", "a", "3-1", "1,,2", "0-4:0", "0-3%", "0-3%x", "-1", "1,0-2", "1000000", "0-1000", "²"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_array(text)


def test_a_job_file_has_an_array_and_a_task_is_none() -> None:
    mapping = {"name": "a", "parallelism": {"dp": 8}, "traffic": {"dp": 1}, "array": "0-3%2"}
    made = job_from_mapping(mapping)
    assert made.array == parse_array("0-3%2")
    assert job_to_mapping(made)["array"] == "0-3%2"
    assert job_from_mapping(mapping | {"array": 5}).array == parse_array("5")
    state = run(EMPTY, SubmitJob(made, "u"))
    assert "array" not in job_to_mapping(state.jobs["a-0"].spec)


def test_one_submit_makes_all_tasks_and_as_many_run_as_may() -> None:
    command = replace(submit_array("a", "0-4%2"), request_id="once")
    state = run(EMPTY, command, now_ns=NOW)
    assert list(state.jobs) == ["a-0", "a-1", "a-2", "a-3", "a-4"]
    assert len({job.uid for job in state.jobs.values()}) == 5
    assert admitted(state, command, NOW) == ()  # the same request again
    started = settled(state, NOW)
    assert running(started) == ["a-0", "a-1"]
    assert explain(started, "a-4", NOW, SchedulingOptions()).cause is WaitReason.ARRAY
    assert "2 tasks of a may run" in explain(started, "a-4", NOW, SchedulingOptions()).sentence
    later = settled(run(started, end("a-1"), cancel("a-2"), now_ns=NOW), NOW)
    assert running(later) == ["a-0", "a-3"]
    over = run(later, end("a-0"), end("a-3", JobState.FAILED), now_ns=NOW)
    over = run(settled(over, NOW), end("a-4"), now_ns=NOW)
    assert (dict(over.jobs), dict(over.arrays)) == ({}, {})


def test_all_or_none_are_taken() -> None:
    state = run(EMPTY, submit("a-3"))
    assert refused(state, submit_array("a", "0-4")).code is Code.ALREADY_EXISTS
    assert refused(EMPTY, submit_array("a" * 127, "0-10")).violations[0].field == "name"
    check = at_most(5)
    waiting = run(EMPTY, submit("b"), submit("c"))
    answer = check(waiting, submit_array("a", "0-3"), 0)
    assert answer.code is Code.EXHAUSTED
    assert not isinstance(check(waiting, submit_array("a", "0-2"), 0), Rejected)


def test_a_job_waits_for_all_tasks_of_an_array() -> None:
    after = DependencyTerm(DependencyKind.AFTEROK, "a")
    state = run(EMPTY, submit_array("a", "0-2"), now_ns=NOW)
    state = run(state, SubmitJob(replace(spec("b"), dependencies=(after,)), "uid-b"), now_ns=NOW)
    assert [each.job for each in state.jobs["b"].dependencies] == ["a-0", "a-1", "a-2"]
    state = settled(state, NOW)
    state = run(state, end("a-0"), end("a-1"), now_ns=NOW)
    assert "b" not in running(settled(state, NOW))
    state = run(state, end("a-2"), now_ns=NOW)
    assert "b" in running(settled(state, NOW))


def test_an_array_that_says_too_much_is_refused_as_a_whole() -> None:
    """Each task keeps all that it waits for: 1,000 that wait for 1,000 held up others for 40 s."""
    state = run(EMPTY, submit_array("a", "0-499"))
    after = (DependencyTerm(DependencyKind.AFTERANY, "a"),)
    refusal = refused(state, submit_array("b", "0-499", dependencies=after))
    assert refusal.violations[0].field == "array"
    assert "with 500 dependencies, are more than 8,000,000 bytes" in refusal.message
    assert "let one job wait for all of them, and the array for that job" in refusal.message
    one = SubmitJob(replace(spec("one"), dependencies=after), "uid-one")
    then = (DependencyTerm(DependencyKind.AFTERANY, "one"),)
    state = run(state, one, submit_array("b", "0-499", dependencies=then))
    assert [each.job for each in state.jobs["b-499"].dependencies] == ["one"]
    labels = tuple((f"key{number}", "x" * 1_000) for number in range(20))
    refusal = refused(EMPTY, submit_array("c", "0-499", labels=labels))
    assert (refusal.violations[0].field, "let one job" in refusal.message) == ("array", False)


def test_a_tenant_has_no_crowd_wait_for_large_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end of a task costs as much as those that wait for it have to look at."""
    monkeypatch.setattr("scheduler.core.admission.dependencies.MOST_AWAITED", 500)
    tenants = Tenants((Tenant("ads"), Tenant("bots")), default="ads")
    state = run(EMPTY, LoadTenants(tenants), submit_array("a", "0-199"))

    def after(name: str, awaited: str = "a", tenant: str = "") -> SubmitJob:
        terms = (DependencyTerm(DependencyKind.AFTERANY, awaited),)
        return SubmitJob(replace(spec(name, tenant=tenant), dependencies=terms), f"uid-{name}")

    state = run(state, after("b"), after("c"))
    refusal = refused(state, after("d"))
    assert refusal.code is Code.EXHAUSTED
    assert "of tenant ads wait for 400 ends of others already" in refusal.message
    state = run(state, after("d", "b"), after("e", tenant="bots"))
    run(run(state, cancel("b")), after("f"))


def test_a_dry_run_answers_for_the_first_task() -> None:
    answer = dry_run(EMPTY, submit_array("a", "3-5%1"), SchedulingOptions(), NOW)
    assert not isinstance(answer, Rejected)
    assert answer.outcome.name == "a-3"


def test_arrays_are_known_by_full_names_like_their_tasks() -> None:
    state = qualified(run(EMPTY, submit_array("a", "0-2%1"), now_ns=NOW))
    assert [turns.waiting for turns in state.arrays.values()] == [("default/a-1", "default/a-2")]
    of_task = state.jobs["default/a-0"].spec.array
    assert of_task.name == "default/a"


def test_ranks_find_their_number() -> None:
    made = run(EMPTY, submit_array("t", "2-8:2")).jobs["t-4"].spec.array
    assert made.variables["SLURM_ARRAY_TASK_ID"] == made.variables["MUSTER_ARRAY_TASK"] == "4"
    assert made.variables["SLURM_ARRAY_TASK_MAX"] == "8"
    assert parse_array("1").variables == {}


def test_a_task_waits_for_the_one_with_its_number() -> None:
    corr = (DependencyTerm(DependencyKind.AFTERCORR, "a"),)
    then = submit_array("b", "0-1")
    then = replace(then, spec=replace(then.spec, dependencies=corr))
    state = settled(run(EMPTY, submit_array("a", "0-1"), then, now_ns=NOW), NOW)
    assert running(state) == ["a-0", "a-1"]
    state = settled(run(state, end("a-1"), now_ns=NOW), NOW)
    assert running(state) == ["a-0", "b-1"]
    state = settled(run(state, end("a-0", JobState.FAILED), now_ns=NOW), NOW)
    assert running(state) == ["b-1"]
    assert state.jobs["b-0"].dependencies[0].is_never_met
    alone = replace(submit("c"), spec=replace(spec("c"), dependencies=corr))
    assert "is for the tasks of an array" in refused(state, alone).message
    more = replace(then, spec=replace(then.spec, name="d", array=parse_array("1-2")), uid="d")
    assert "a has no task 2" in refused(state, more).message


def test_more_or_fewer_tasks_run_once_that_is_changed() -> None:
    state = settled(run(EMPTY, submit_array("a", "0-4%1"), now_ns=NOW), NOW)
    more = UpdateJob("a-4", ("array",), most_running=3)
    state = settled(run(state, more, now_ns=NOW), NOW)
    assert running(state) == ["a-0", "a-1", "a-2"]
    state = run(state, UpdateJob("a-0", ("array",), most_running=2), end("a-0"), now_ns=NOW)
    assert running(settled(state, NOW)) == ["a-1", "a-2"]
    state = settled(run(state, UpdateJob("a-3", ("array",)), now_ns=NOW), NOW)
    assert running(state) == ["a-1", "a-2", "a-3", "a-4"]
    state = run(state, submit("b"))
    assert "no task of an array" in refused(state, UpdateJob("b", ("array",))).message


def test_a_failed_task_is_submitted_once_more() -> None:
    state = settled(run(EMPTY, submit_array("a", "0-1%1"), now_ns=NOW), NOW)
    failed = state.jobs["a-0"]
    state = settled(run(state, end("a-0", JobState.FAILED), now_ns=NOW), NOW)
    again = RequeueJob("a-0", new_uid="again")
    state = settled(run(state, again, now_ns=NOW), NOW)
    assert (state.jobs["a-0"].uid, state.jobs["a-0"].spec) == ("again", failed.spec)
    assert running(state) == ["a-1"]  # one at a time, as before
    state = settled(run(state, end("a-1"), now_ns=NOW), NOW)
    assert running(state) == ["a-0"]
    done = run(state, end("a-0"), now_ns=NOW)
    assert refused(done, again).code is Code.PRECONDITION  # it has completed
