"""Every way a command is refused, and what a retry does."""

from dataclasses import replace

import pytest

from placement.workload.request import Collective
from scheduler.core import Code, HostState, JobSpec, JobState, State, admit, replay
from scheduler.core.model.commands import Command, EndJob, MoveHost, ReportHost, SubmitJob
from scheduler.core.model.events import HostMoved, HostSignalled, JobEnded, JobSubmitted
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.model.requests import parse_request_id
from scheduler.core.policies.health_signals import SIGNALS, Effect
from tests.build import (
    admitted,
    cancel,
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    gang,
    job,
    loaded,
    refused,
    repair,
    request,
    run,
    spec,
    started,
    submit,
    uncordon,
)

EMPTY = loaded(fabric(2, 2, 2))  # 8 hosts
A_RUNS = started(EMPTY, submit("a", 4))
A_STOPPED = run(A_RUNS, fail("z0-r0-h0"))
A_ENDED = run(A_RUNS, end("a"))


def with_spec(**changes: object) -> SubmitJob:
    return replace(submit("a"), spec=replace(spec("a"), **changes))  # type: ignore[arg-type]


# --- submit ------------------------------------------------------------------


def test_a_submit_is_one_event() -> None:
    (event,) = admitted(EMPTY, submit("a", 2, request_id="r1"), 7)
    assert event == JobSubmitted(7, "uid-a", spec("a", 2), event.request_id)
    assert parse_request_id(event.request_id).id == "r1"


@pytest.mark.parametrize("name", ["a", "A1", "llama-3.1_405b", "9", "x" * 128])
def test_good_names(name: str) -> None:
    assert admitted(EMPTY, submit(name))


@pytest.mark.parametrize("name", ["", " a", "a b", "-a", "a-", ".", "a\n", "ä", "x" * 129, "a/b/c"])
def test_bad_names(name: str) -> None:
    answer = refused(EMPTY, submit(name))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["name"]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (with_spec(time_limit_s=0), "time_limit_s"),
        (with_spec(time_limit_s=-5), "time_limit_s"),
        (with_spec(request=request(tp=4, dp=3)), "parallelism"),
        (with_spec(request=request(tp=8, dp=2, traffic={"dp": -1})), "traffic.dp"),
        (
            with_spec(request=request(pp=8, collectives={"pp": Collective.HIERARCHICAL})),
            "collectives.pp",
        ),
    ],
)
def test_invalid_jobs_name_the_field(command: SubmitJob, field: str) -> None:
    answer = refused(EMPTY, command)
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == [field]
    assert answer.message == f"{field}: {answer.violations[0].message}"


@pytest.mark.parametrize("command", [submit("a", 9), submit("a", 8, spares=exactly(1))])
def test_a_job_larger_than_the_fabric_is_infeasible(command: SubmitJob) -> None:
    answer = refused(EMPTY, command)
    assert answer.code is Code.INFEASIBLE
    assert "small has 8 in all" in answer.message


def test_a_job_larger_than_what_is_free_waits() -> None:
    assert admitted(A_RUNS, submit("b", 8))
    assert admitted(run(EMPTY, cordon("z0-r0-h0")), submit("b", 8))


def test_a_live_name_is_taken() -> None:
    for state in (run(EMPTY, submit("a")), A_RUNS, A_STOPPED):
        answer = refused(state, submit("a", 2))
        assert answer.code is Code.ALREADY_EXISTS
        assert str(job(state, "a").state) in answer.message


def test_the_name_of_an_ended_job_is_free_again() -> None:
    assert admitted(A_ENDED, submit("a", 2))


def test_a_retry_with_the_same_request_id_changes_nothing() -> None:
    first = submit("a", 2, request_id="r1")
    state = run(EMPTY, first)
    assert admitted(state, first) == ()
    assert admitted(state, replace(first, uid="another")) == ()
    assert admitted(run(state, cancel("a")), first) == ()


def test_a_request_id_with_another_job_is_refused() -> None:
    state = run(EMPTY, submit("a", 2, request_id="r1"))
    for other in (submit("a", 3, request_id="r1"), submit("b", 2, request_id="r1")):
        answer = refused(state, other)
        assert answer.code is Code.INVALID
        assert [v.field for v in answer.violations] == ["request_id"]
        assert "submit a" in answer.message


def test_no_request_id_is_no_request_id() -> None:
    state = run(EMPTY, submit("a", 2))
    assert admitted(state, submit("b", 2))


# --- cancel and end ------------------------------------------------------------


@pytest.mark.parametrize("state", [run(EMPTY, submit("a", 4)), A_RUNS, A_STOPPED])
def test_a_live_job_can_be_cancelled(state: State) -> None:
    (event,) = admitted(state, cancel("a"), 5)
    has_started = state.jobs["a"].attempt > 0
    assert event == JobEnded(5, "a", JobState.CANCELLED, has_started=has_started)


def test_cancelling_twice_is_harmless() -> None:
    assert admitted(run(A_RUNS, cancel("a")), cancel("a")) == ()


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED])
def test_an_ended_job_cannot_be_cancelled(outcome: JobState) -> None:
    answer = refused(run(A_RUNS, end("a", outcome)), cancel("a"))
    assert answer.code is Code.PRECONDITION
    assert f"already {outcome}" in answer.message


@pytest.mark.parametrize("command", [cancel("nobody"), end("nobody")])
def test_unknown_jobs(command: Command) -> None:
    answer = refused(A_RUNS, command)
    assert answer.code is Code.NOT_FOUND
    assert "no job 'nobody'" in answer.message


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED])
def test_a_running_job_ends(outcome: JobState, attempt: int) -> None:
    (event,) = admitted(A_RUNS, EndJob("a", outcome, attempt, "exit 3"), 5)
    assert event == JobEnded(5, "a", outcome, "exit 3")


def test_the_same_end_twice_is_harmless() -> None:
    assert admitted(A_ENDED, end("a")) == ()
    assert admitted(A_ENDED, end("a", attempt=1)) == ()


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (A_ENDED, end("a", JobState.FAILED)),
        (run(EMPTY, submit("a")), end("a")),
        (A_RUNS, end("a", attempt=2)),
        (A_ENDED, end("a", attempt=2)),
    ],
    ids=["other outcome", "queued", "attempt to come", "ended before"],
)
def test_an_end_that_cannot_be(state: State, command: EndJob) -> None:
    assert refused(state, command).code is Code.PRECONDITION


def test_a_late_report_of_an_earlier_attempt_is_refused() -> None:
    """The gang was swapped to another host: attempt 1 has nothing more to say."""
    state = started(A_STOPPED)
    assert job(state, "a").attempt == 2
    answer = refused(state, end("a", JobState.FAILED, attempt=1))
    assert answer.code is Code.PRECONDITION
    assert "at attempt 2, not 1" in answer.message


@pytest.mark.parametrize("outcome", [JobState.CANCELLED, JobState.QUEUED, JobState.RUNNING])
def test_an_outcome_is_completed_or_failed(outcome: JobState) -> None:
    answer = refused(A_RUNS, end("a", outcome))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["outcome"]


# --- hosts -------------------------------------------------------------------

H = "z0-r0-h0"


@pytest.mark.parametrize(
    "command", [cordon("x"), drain("x"), fail("x"), repair("x"), ReportHost("x", "thermal")]
)
def test_unknown_hosts(command: Command) -> None:
    assert refused(EMPTY, command).code is Code.NOT_FOUND


@pytest.mark.parametrize("move", [HostMove.EMPTY, HostMove.FAIL, HostMove.REPAIR])
def test_operators_cordon_uncordon_and_drain(move: HostMove) -> None:
    answer = refused(EMPTY, MoveHost(H, move))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["move"]


def test_unknown_signals() -> None:
    answer = refused(EMPTY, ReportHost(H, "smoke"))
    assert answer.code is Code.INVALID
    assert "known are host-down, gpu-lost" in answer.message


FAILS = [n for n, s in SIGNALS.items() if s.effect is Effect.FAIL and not s.is_domain]


@pytest.mark.parametrize("signal", FAILS)
def test_failing_signals(signal: str) -> None:
    (event,) = admitted(EMPTY, ReportHost(H, signal, "slot 3"), 5)
    text = f"{signal}: slot 3"
    assert event == HostMoved(5, H, HostMove.FAIL, text, "", Mover.SIGNAL, signal)


@pytest.mark.parametrize("signal", [n for n, s in SIGNALS.items() if s.effect is Effect.NOTE])
def test_one_report_that_only_counts_leaves_the_host_as_it_is(signal: str) -> None:
    xid = 63 if signal == "xid" else 0
    (event,) = admitted(EMPTY, ReportHost(H, signal, "x=1", xid=xid), 5)
    assert event == HostSignalled(5, H, signal, "x=1", xid=xid)
    after = replay([event], EMPTY)
    assert replace(after, version=1, records=EMPTY.records, seen_ns=EMPTY.seen_ns) == EMPTY
    assert after.record(0).reports == 1


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ([cordon(H)], cordon(H)),
        ([], uncordon(H)),
        ([fail(H)], fail(H, "nic-down")),
        ([], repair(H)),
        ([cordon(H)], repair(H)),
        ([drain(H)], drain(H)),
        ([cordon(H)], drain(H)),
    ],
)
def test_what_is_already_so_changes_nothing(before: list[Command], again: Command) -> None:
    """A cordoned host without a gang is drained."""
    assert admitted(run(EMPTY, *before), again) == ()


@pytest.mark.parametrize("command", [cordon(H), drain(H), uncordon(H)])
def test_a_failed_host_is_repaired_first(command: Command) -> None:
    answer = refused(run(EMPTY, fail(H)), command)
    assert answer.code is Code.PRECONDITION
    assert "report it repaired first" in answer.message


def test_draining_an_empty_host_cordons_it() -> None:
    assert run(EMPTY, drain(H)).host(0).state is HostState.CORDONED


def test_draining_a_host_that_runs_waits() -> None:
    state = run(A_RUNS, drain(H))
    assert state.host(0).state is HostState.DRAINING
    assert admitted(state, drain(H)) == ()


def test_draining_a_cordoned_host_that_runs() -> None:
    assert run(A_RUNS, cordon(H), drain(H)).host(0).state is HostState.DRAINING


def test_draining_a_spare_cordons_it() -> None:
    state = started(EMPTY, submit("a", 2, spares=exactly(1)))
    (spare,) = job(state, "a").spares
    name = state.loaded_fabric.hosts[spare]
    assert run(state, drain(name)).host(spare).state is HostState.CORDONED


def test_a_refusal_leaves_no_trace() -> None:
    """admit is a function of values: the state is what it was."""
    before = replay([], A_RUNS)
    admit(A_RUNS, submit("a", 2), 0)
    admit(A_RUNS, submit("big", 99), 0)
    assert before == A_RUNS


def test_specs_compare_by_value() -> None:
    assert spec("a", 2) == JobSpec("a", gang(2))
