"""Every way a command is refused, and what a retry does."""

from dataclasses import replace

import pytest

from placement.workload.request import Collective
from scheduler.core import Code, HostState, JobState, State
from scheduler.core.model.commands import Command, EndJob, MoveHost, ReportHost, SubmitJob
from scheduler.core.model.events import HostMoved, JobEnded, JobSubmitted
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


# --- cancel and end ------------------------------------------------------------


@pytest.mark.parametrize("state", [run(EMPTY, submit("a", 4)), A_RUNS, A_STOPPED])
def test_a_live_job_can_be_cancelled(state: State) -> None:
    (event,) = admitted(state, cancel("a"), 5)
    has_started = state.jobs["a"].attempt > 0
    assert event == JobEnded(5, "a", JobState.CANCELLED, has_started=has_started)


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED])
def test_an_ended_job_cannot_be_cancelled(outcome: JobState) -> None:
    answer = refused(run(A_RUNS, end("a", outcome)), cancel("a"))
    assert answer.code is Code.PRECONDITION
    assert f"already {outcome}" in answer.message


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


@pytest.mark.parametrize("outcome", [JobState.CANCELLED, JobState.QUEUED, JobState.RUNNING])
def test_an_outcome_is_completed_or_failed(outcome: JobState) -> None:
    answer = refused(A_RUNS, end("a", outcome))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["outcome"]


# --- hosts -------------------------------------------------------------------

H = "z0-r0-h0"


@pytest.mark.parametrize("move", [HostMove.EMPTY, HostMove.FAIL, HostMove.REPAIR])
def test_operators_cordon_uncordon_and_drain(move: HostMove) -> None:
    answer = refused(EMPTY, MoveHost(H, move))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["move"]


FAILS = [n for n, s in SIGNALS.items() if s.effect is Effect.FAIL and not s.is_domain]


@pytest.mark.parametrize("signal", FAILS)
def test_failing_signals(signal: str) -> None:
    (event,) = admitted(EMPTY, ReportHost(H, signal, "slot 3"), 5)
    text = f"{signal}: slot 3"
    assert event == HostMoved(5, H, HostMove.FAIL, text, "", Mover.SIGNAL, signal)


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


def test_draining_an_empty_host_cordons_it() -> None:
    assert run(EMPTY, drain(H)).host(0).state is HostState.CORDONED


def test_draining_a_spare_cordons_it() -> None:
    state = started(EMPTY, submit("a", 2, spares=exactly(1)))
    (spare,) = job(state, "a").spares
    name = state.loaded_fabric.hosts[spare]
    assert run(state, drain(name)).host(spare).state is HostState.CORDONED
