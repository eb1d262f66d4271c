"""What agents report, on the state: launched, failed, saved, lost, and reports that come late."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core import JobState, State, explain, replay
from scheduler.core.admission import launch
from scheduler.core.admission.admit import admit
from scheduler.core.admission.launch import Answer
from scheduler.core.capacity.victims import cost_ns
from scheduler.core.fold.apply import effects
from scheduler.core.model.commands import OpenChannel, SubmitJob
from scheduler.core.model.events import ChannelOpened, Event, GangSwapped, JobEnded
from scheduler.core.model.job_account import count_certain_time, shown
from scheduler.core.model.lifecycle import HostState
from scheduler.core.model.rejected import Code, Rejected
from scheduler.core.model.run_lineage import ResumePoint, resume_point
from scheduler.core.policies.job_terms import RestartRule, RunSpec, StopCause
from scheduler.core.rules.hosts.evaluation import has_just_saved
from scheduler.engine.authorisation import unauthorised
from scheduler.identity import Caller, Role
from tests.build import (
    HOUR_NS,
    SchedulingOptions,
    cancel,
    committed,
    decide,
    end,
    exactly,
    fail,
    hosts_of,
    job,
    loaded,
    run,
    schedule,
    started,
    submit,
    submit_array,
)

UID = "uid-a"


def events_of(answer: Answer) -> tuple[Event, ...]:
    assert not isinstance(answer, Rejected), answer
    return answer


def after(state: State, answer: Answer) -> State:
    return replay(events_of(answer), state)


def is_late(answer: Answer) -> bool:
    return isinstance(answer, Rejected) and answer.code is Code.PRECONDITION


@pytest.fixture
def state() -> State:
    return started(loaded(), submit("a", 2, spares=exactly(1)))


def test_a_gang_is_launched_once(state: State) -> None:
    launched = after(state, launch.launched(state, "a", UID, 1, 5))
    assert job(launched, "a").present.launched_ns == 5
    assert launch.launched(launched, "a", UID, 1, 6) == ()


def test_a_failed_rank_stops_the_gang_which_starts_again_where_it_was(state: State) -> None:
    state = after(state, launch.launched(state, "a", UID, 1, 5))
    (event,) = events_of(launch.rank_failed(state, "a", UID, 1, 3, "h", "exited with code 1", 9))
    stopped = replay([event], state)
    assert job(stopped, "a").state is JobState.INTERRUPTED
    assert job(stopped, "a").reason == "rank 3 on h exited with code 1"
    assert [change.kind.value for change in effects(state, event, stopped)] == ["interrupted"]
    events = committed(stopped, decide(stopped, 10, SchedulingOptions()), 10)
    swapped = next(event for event in events if isinstance(event, GangSwapped))
    assert (swapped.swaps, swapped.attempt) == ((), 2)
    again = replay(events, stopped)
    assert job(again, "a").present.launched_ns is None
    assert hosts_of(again, "a") == hosts_of(state, "a")


def test_commands_beside_ranks_are_for_who_may_be_their_user() -> None:
    run_spec = RunSpec(("true",), user="batch")
    wanted = submit("a")
    made = run(loaded(), replace(wanted, spec=replace(wanted.spec, run=run_spec), user="ann"))
    state = schedule(made)
    command = OpenChannel("a", UID, 1, 0, "z0-r0-h0", ("ls",))
    not_yet = admit(state, command, 4)
    assert not_yet.message == "the ranks of job a have not started yet"
    state = after(state, launch.launched(state, "a", UID, 1, 5))
    opened = events_of(admit(state, command, 6))
    assert opened == (ChannelOpened(6, "a", 1, 0, "z0-r0-h0", ("ls",)),)
    assert replay(opened, state).jobs == state.jobs
    may = {
        Caller("ann", Role.SUBMITTER, run_as=("batch",)): True,
        Caller("ann", Role.SUBMITTER): False,  # any more: it may not be batch
        Caller("bob", Role.SUBMITTER, run_as=("batch",)): False,
        Caller("cor", Role.COORDINATOR, run_as=("batch",)): True,
        Caller("cor", Role.COORDINATOR): False,
        Caller("cor", Role.COORDINATOR, tenant="other", run_as=("batch",)): False,
        Caller("ops", Role.OPERATOR): True,
    }
    assert {who: unauthorised(state, command, who) is None for who in may} == may
    for wrong in (replace(command, port=1 << 16), replace(command, command=("a\0b",))):
        refused = admit(state, wrong, 6)
        assert refused.code is Code.INVALID


def test_only_the_first_failure_of_an_attempt_is_written_down(state: State) -> None:
    state = after(state, launch.rank_failed(state, "a", UID, 1, 3, "h", "was killed", 9))
    assert is_late(launch.rank_failed(state, "a", UID, 1, 4, "h", "exited with code 1", 10))
    assert is_late(launch.launched(state, "a", UID, 1, 10))


def test_a_report_of_another_attempt_or_job_changes_nothing(state: State) -> None:
    assert is_late(launch.launched(state, "a", UID, 2, 5))
    answer = launch.launched(state, "a", "uid-other", 1, 5)
    assert answer.code is Code.NOT_FOUND
    cancelled = run(state, cancel("a"))
    assert isinstance(launch.checkpoint_saved(cancelled, "a", UID, 2, 5, "/c", 5), Rejected)
    ended = run(state, end("a"))
    assert isinstance(launch.rank_failed(ended, "a", UID, 1, 0, "h", "x", 6), Rejected)


def test_a_host_that_cannot_start_its_ranks_is_left_for_a_spare(state: State) -> None:
    bad = hosts_of(state, "a")[0]
    answer = launch.launch_failed(state, "a", UID, 1, bad, "no directory /data", 7)
    again = schedule(after(state, answer), 8)
    assert job(again, "a").state is JobState.RUNNING
    assert bad not in hosts_of(again, "a")


def test_what_can_start_nowhere_ends_the_job(state: State) -> None:
    answer = launch.launch_failed(state, "a", UID, 1, "z0-r0-h0", "no user bob", 7, is_final=True)
    events = events_of(answer)
    assert isinstance(events[-1], JobEnded)
    over = job(replay(events, state), "a")
    assert over.state is JobState.FAILED
    assert over.reason == "could not be started on z0-r0-h0: no user bob"


def test_attempts_that_save_nothing_count_until_one_saves(state: State) -> None:
    for attempt in (1, 2):
        state = after(state, launch.rank_failed(state, "a", UID, attempt, 0, "h", "x", attempt))
        assert job(state, "a").failed_attempts == attempt
        state = schedule(state, attempt)
    state = after(state, launch.checkpoint_saved(state, "a", UID, 3, 100, "/c/100", 4))
    state = after(state, launch.rank_failed(state, "a", UID, 3, 0, "h", "x", 5))
    assert job(state, "a").failed_attempts == 0
    state = schedule(state, 6)  # what an earlier attempt saved is no progress of this one
    state = after(state, launch.rank_failed(state, "a", UID, 4, 0, "h", "x", 10 * HOUR_NS))
    assert job(state, "a").failed_attempts == 1


def test_a_checkpoint_counts_forward_only(state: State) -> None:
    state = after(state, launch.checkpoint_saved(state, "a", UID, 1, 100, "/c/100", 4))
    assert launch.checkpoint_saved(state, "a", UID, 1, 100, "/c/100", 5) == ()
    assert launch.checkpoint_saved(state, "a", UID, 1, 40, "/c/40", 5) == ()
    saved = job(state, "a").saved
    assert (saved.attempt, saved.step, saved.where, saved.at_ns) == (1, 100, "/c/100", 4)


def test_a_stale_attempt_saves_nothing_once_its_successor_was_launched(state: State) -> None:
    state = schedule(after(state, launch.rank_failed(state, "a", UID, 1, 0, "h", "x", 5)), 6)
    assert events_of(launch.checkpoint_saved(state, "a", UID, 1, 50, "/c/1/50", 7))
    state = after(state, launch.launched(state, "a", UID, 2, 8))
    assert is_late(launch.checkpoint_saved(state, "a", UID, 1, 60, "/c/1/60", 9))


def test_a_resumed_attempt_counts_its_own_steps(state: State) -> None:
    """It goes back to the last checkpoint, so its steps may be smaller than those seen before."""
    state = after(state, launch.checkpoint_saved(state, "a", UID, 1, 100, "/c/1/100", 4))
    state = schedule(after(state, launch.rank_failed(state, "a", UID, 1, 0, "h", "x", 5)), 6)
    state = after(state, launch.checkpoint_saved(state, "a", UID, 2, 60, "/c/2/60", 9))
    saved = job(state, "a").saved
    assert saved.where == "/c/2/60"


def test_a_lost_agent_fails_its_host_and_brings_back_no_other_failure(state: State) -> None:
    host = hosts_of(state, "a")[0]
    lost = run(state, fail(host, "agent-lost"))
    index = lost.loaded_fabric.index_by_name[host]
    assert lost.host(index).state is HostState.FAILED
    assert job(lost, "a").state is JobState.INTERRUPTED
    assert run(lost, fail(host, "agent-back")).host(index).state is HostState.HEALTHY
    broken = run(state, fail(host, "gpu-lost"))
    assert run(broken, fail(host, "agent-back")) == broken


def test_what_a_job_saved_when_it_was_stopped_is_kept_for_its_run(state: State) -> None:
    state = run(state, cancel("a"))
    answer = launch.checkpoint_saved(state, "a", UID, 1, 70, "/c/70", 5)
    over = after(state, answer)
    assert list(effects(state, events_of(answer)[0], over)) == []
    assert launch.checkpoint_saved(over, "a", UID, 1, 70, "/c/70", 5) == ()
    again = run(over, with_run(submit("a")))
    assert resume_point(again.lineages, job(again, "a")) == ResumePoint(70, "/c/70", UID, "a")


def resumes(state: State, name: str = "a", user: str = "", **run_spec: Any) -> int | None:
    """The step from which a new job would go on."""
    command = replace(with_run(submit(name)), uid="new", user=user)
    wanted = replace(command.spec, run=RunSpec(("train",), **run_spec))
    state = run(state, replace(command, spec=wanted))
    point = resume_point(state.lineages, job(state, name))
    return point.step if point else None


def test_a_run_outlives_its_job_and_is_its_users_own() -> None:
    state = started(loaded(), replace(with_run(submit("a")), user="ada"))
    for step in (10, 20):
        state = after(state, launch.checkpoint_saved(state, "a", UID, 1, step, f"/c/{step}", step))
    state = run(state, end("a"))
    assert resumes(state, user="ada") == 20
    assert resumes(state, user="bea") is None
    assert resumes(state, user="ada", new_run=True) is None
    assert resumes(state, "b", user="ada") is None
    assert resumes(state, "b", user="ada", lineage="a") == 20
    assert resumes(state, "b", user="ada", resume_from="a") == 20
    assert resumes(state, "b", user="ada", resume_from="/old/step-0007") == 7
    (lineage,) = state.lineages.values()
    assert [each.saved.step for each in lineage.checkpoints] == [10, 20]


def test_a_run_that_begins_anew_drops_what_was_before_once_it_has_saved() -> None:
    state = started(loaded(), with_run(submit("a")))
    state = after(state, launch.checkpoint_saved(state, "a", UID, 1, 50, "/c/50", 1))
    anew = replace(submit("a"), uid="new")
    anew = replace(anew, spec=replace(anew.spec, run=RunSpec(("train",), new_run=True)))
    state = started(run(state, end("a")), anew)
    assert [each.saved.step for each in next(iter(state.lineages.values())).checkpoints] == [50]
    state = after(state, launch.checkpoint_saved(state, "a", "new", 1, 5, "/c/5", 2))
    assert resumes(run(state, end("a"))) == 5


def test_tasks_of_a_chain_share_a_run_and_those_of_a_sweep_do_not() -> None:
    for array, step in (("0-1%1", 30), ("0-1", None)):
        chain = submit_array("a", array)
        chain = replace(chain, spec=replace(chain.spec, run=RunSpec(("train",))))
        state = started(loaded(), chain)
        uid = job(state, "a-0").uid
        state = after(state, launch.checkpoint_saved(state, "a-0", uid, 1, 30, "/c/30", 1))
        state = run(state, end("a-0"))
        point = resume_point(state.lineages, job(state, "a-1"))
        assert (point.step if point else None) == step


def ended(state: State, uid: str = UID, **told: Any) -> State:
    """The state once a rank of the present attempt has failed, and what was decided of it."""
    attempt = job(state, "a").attempt
    now_ns = 10 * S * attempt
    state = after(state, launch.launched(state, "a", uid, attempt, now_ns))
    told = {"cause": StopCause.EXIT, "code": 1} | told
    why = ("h", "exited with code 1: KeyError")
    answer = launch.rank_failed(state, "a", uid, attempt, 0, *why, now_ns + S, **told)
    return schedule(after(state, answer), now_ns + S)


def ruled(rule: RestartRule) -> State:
    command = with_run(submit("a", 2, spares=exactly(1)))
    return started(loaded(), replace(command, spec=replace(command.spec, restarts=rule)))


def test_a_program_that_ends_before_a_first_step_is_tried_three_times(state: State) -> None:
    for attempt in (1, 2):
        state = ended(state)
        assert job(state, "a").attempt == attempt + 1
    state = ended(state)
    over = state.find("a")
    assert over.state is JobState.FAILED
    assert over.reason.startswith("3 attempts in a row ended by themselves within 60 s")


def test_a_program_that_has_made_a_step_is_tried_as_often_as_before(state: State) -> None:
    for _ in range(2):
        state = ended(state, step=5)
    assert job(ended(state, step=5), "a").state is JobState.INTERRUPTED  # it waits, and holds on
    text = explain(ended(state, step=5), "a", 32 * S, SchedulingOptions()).sentence
    assert "its 24 GPUs wait meanwhile, 0.2 GPU-hours" in text


@pytest.mark.parametrize(
    ("rule", "told", "goes_on"),
    [
        (RestartRule(), {}, True),
        (RestartRule(most=0), {}, False),
        (RestartRule(exit=(75,)), {}, False),
        (RestartRule(exit=(75,)), {"code": 75}, True),
        (RestartRule(exit=()), {"cause": StopCause.SIGNAL, "code": 0}, True),
        (RestartRule(oom=False), {"cause": StopCause.OOM}, False),
        (RestartRule(hang=False), {"cause": StopCause.HANG}, False),
        (RestartRule(hang=False), {"cause": StopCause.OOM}, True),
    ],
)
def test_a_job_is_started_again_after_what_its_file_names(
    rule: RestartRule, told: dict[str, Any], *, goes_on: bool
) -> None:
    state = ended(ruled(rule), **told)
    assert ("a" in state.jobs) is goes_on
    if goes_on:
        assert job(state, "a").attempt == 2


def test_a_host_that_fails_ends_a_job_that_does_not_want_another() -> None:
    state = ruled(RestartRule(host=False))
    state = schedule(run(state, fail(hosts_of(state, "a")[0])))
    over = state.find("a")
    assert over.reason.endswith("restarts.on.host is false")


def test_own_pauses_and_tries_take_the_place_of_the_tenants() -> None:
    state = ended(ruled(RestartRule(most=1, backoff_s=40)), step=1)
    assert job(state, "a").state is JobState.INTERRUPTED
    state = schedule(state, 51 * S)
    assert job(state, "a").attempt == 2
    assert "a" not in ended(state, step=1).jobs


S = 10**9


def with_run(command: SubmitJob) -> SubmitJob:
    return replace(command, spec=replace(command.spec, run=RunSpec(("train",))))


def reported(state: State, name: str, *saved_s: int, launched_s: int = 2) -> State:
    """The state after these reports of the present attempt of a job."""
    uid, attempt = job(state, name).uid, job(state, name).attempt
    state = after(state, launch.launched(state, name, uid, attempt, launched_s * S))
    for at_s in saved_s:
        answer = launch.checkpoint_saved(state, name, uid, attempt, at_s, "there", at_s * S)
        state = after(state, answer)
    return state


def test_goodput_is_what_ranks_have_reported() -> None:
    """Launched after 2 s, saved after 100 and 300, killed after 340; nothing else was saved."""
    state = reported(started(loaded(), with_run(submit("a", 2))), "a", 100, 300)
    costs = state.tenants.preemption.costs
    assert count_certain_time(job(state, "a"), 340 * S, costs).productive == 2 * 298 * S
    answer = launch.rank_failed(state, "a", UID, 1, 3, "h", "was killed", 340 * S)
    parts = shown(job(after(state, answer), "a"), 345 * S, costs).time
    assert (parts.restart, parts.productive, parts.rework) == (2 * S, 298 * S, 40 * S)


def test_an_attempt_that_has_saved_nothing_is_done_again() -> None:
    state = reported(started(loaded(), with_run(submit("a", 2))), "a", 100)
    answer = launch.rank_failed(state, "a", UID, 1, 3, "h", "was killed", 110 * S)
    state = schedule(after(state, answer), 120 * S)
    state = reported(state, "a", launched_s=123)
    costs = state.tenants.preemption.costs
    assert job(state, "a").loss_ns(7_323 * S, costs) == 7_200 * S + costs.restart_s * S
    answer = launch.rank_failed(state, "a", UID, 2, 3, "h", "was killed", 7_323 * S)
    parts = shown(job(after(state, answer), "a"), 7_323 * S, costs).time
    assert (parts.restart, parts.productive, parts.rework) == (5 * S, 98 * S, (10 + 7_200) * S)


def test_a_gang_has_just_saved_when_it_says_so() -> None:
    """By its interval it would have saved after half an hour."""
    state = started(loaded(), with_run(submit("a", 2)))
    assert not has_just_saved(state, job(state, "a"), 501 * S)
    state = reported(state, "a", 500)
    assert has_just_saved(state, job(state, "a"), 501 * S)
    assert not has_just_saved(state, job(state, "a"), 561 * S)
    assert has_just_saved(state, job(state, "a"), (500 + 1_800) * S)


def test_a_gang_that_has_just_saved_loses_least_by_an_eviction() -> None:
    state = started(loaded(), *(with_run(submit(n, 2)) for n in "ab"))
    state = reported(reported(state, "a", 50), "b", 100)
    costs = state.tenants.preemption.costs
    lost = [cost_ns(job(state, name), 120 * S, costs) for name in "ab"]
    assert lost == [2 * (70 + costs.restart_s) * S, 2 * (20 + costs.restart_s) * S]
