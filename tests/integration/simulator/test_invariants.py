"""What is given, lost or counted twice in a replay is told at once."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from placement.workload.request import SpareRule
from scheduler.core import State
from scheduler.core.model.events import (
    CheckpointSaved,
    Event,
    GangLaunched,
    JobStarted,
    LaunchFailed,
    RankFailed,
)
from simulator.collectors.invariants import AttemptLog, InvariantChecker, InvariantViolated
from simulator.collectors.metrics import Metrics
from simulator.experiment import Experiment
from simulator.replay import ArrivalCounts, Replay
from simulator.timing import EMPTY
from simulator.traces.record import TraceJob
from tests.replays import down, machine, trace_job, up


def log_of_two_gangs() -> list[tuple[Event, State]]:
    """Events that start `a` on four hosts and `b` on two, each with the state after it."""
    log: list[tuple[Event, State]] = []
    hosts = machine(8)
    jobs = [trace_job("a", 0, 50, 4), trace_job("b", 1, 90, 2)]
    Replay(Experiment(hosts), jobs, lambda event, state: log.append((event, state))).run()
    return log


def feed(conserved: InvariantChecker, log: Iterable[tuple[Event, State]]) -> None:
    for event, state in log:
        conserved.feed(event, state)


def checked(*jobs: TraceJob, known: Any = None, **more: Any) -> Metrics:
    """Replay and check; the totals."""
    conserved, metrics = InvariantChecker(), Metrics()

    def sink(event: Event, state: State) -> None:
        metrics.feed(event, state)
        conserved.feed(event, state)

    outages = more.pop("outages", ())
    replay = Replay(Experiment(machine(8), **more), jobs, sink, outages)
    replay.modelled = known
    metrics.follow(replay)
    tally = replay.run()
    conserved.check(tally, metrics)
    return metrics


@pytest.mark.parametrize("spares", [SpareRule(hosts=0), SpareRule()])
def test_a_replay_with_failures_conserves(spares: SpareRule) -> None:
    jobs = [trace_job(f"j{i}", 100 * i, 5_000, 1 + i % 4, line=i) for i in range(16)]
    outages = [
        outage
        for i in range(25)
        for outage in (down(400 * i, f"z0-h{i % 8}"), up(400 * i + 300, f"z0-h{i % 8}"))
    ]
    assert checked(*jobs, spares=spares, outages=outages).restarts > 0


def test_a_time_model_that_accounts_for_less_is_told() -> None:
    lost = SimpleNamespace(spent=lambda name: (EMPTY, EMPTY), time=EMPTY, host_time=EMPTY)
    with pytest.raises(InvariantViolated, match="attempts that are over: 200,000,000,000 on one"):
        checked(trace_job("a", 0, 50, 4), known=lost)


def test_forged_logs_are_told() -> None:
    log = log_of_two_gangs()
    taken = next(e.hosts[:2] for e, _ in log if isinstance(e, JobStarted))

    def forged(**fields: Any) -> list[tuple[Event, State]]:
        return [
            (with_fields(e, **fields) if isinstance(e, JobStarted) and e.name == "b" else e, state)
            for e, state in log
        ]

    for wrong, told in (
        (forged(hosts=taken), r"host z0-h\d is given to b, and a has it"),
        (forged(attempt=2), "attempt 2 of b begins after 0"),
        ([(event, State.empty()) for event, _ in log], "4 hosts are held, the state has 0"),
    ):
        with pytest.raises(InvariantViolated, match=told):
            feed(InvariantChecker(), wrong)


def test_a_lost_job_and_host_time_that_nobody_is_charged_for_are_told() -> None:
    conserved, metrics = InvariantChecker(), Metrics()
    log = log_of_two_gangs()
    for event, state in log:
        metrics.feed(event, state)
        conserved.feed(event, state)
    conserved.check(ArrivalCounts(offered=2), metrics)
    with pytest.raises(InvariantViolated, match="jobs offered: 3 on one side, 2 on the other"):
        conserved.check(ArrivalCounts(offered=3), metrics)
    conserved, metrics = InvariantChecker(), Metrics()
    for event, state in log[:-1]:
        metrics.feed(event, state)
    feed(conserved, log)  # 40 s more on two hosts, which the totals have not heard of
    with pytest.raises(InvariantViolated, match=r"jobs admitted|host-ns held"):
        conserved.check(ArrivalCounts(offered=2), metrics)


def launched_log(*reports: Event) -> list[tuple[Event, State]]:
    """A log in which `a` starts on two hosts, and then these reports of its launcher."""
    log = log_of_two_gangs()
    at = next(i for i, (event, _) in enumerate(log) if isinstance(event, JobStarted))
    state = log[at][1]
    return [*log[: at + 1], *((event, state) for event in reports)]


def saved(second: int, step: int, attempt: int = 1) -> CheckpointSaved:
    return CheckpointSaved(second * 10**9, "a", attempt, step, f"/c/{step}")


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([GangLaunched(1, "a", 2)], "attempt 1 is the present one"),
        ([GangLaunched(1, "a", 1)] * 2, "it was launched before"),
        ([RankFailed(1, "a", 1, 0, "z0-h7", "x")], "z0-h7 is not one of its hosts"),
        ([RankFailed(1, "a", 1, 0, "z0-h0", "x")] * 2, "it is over"),
        ([LaunchFailed(1, "a", 1, "z0-h0", "x"), GangLaunched(2, "a", 1)], "it is over"),
        ([saved(0, 5), saved(90, 5)], "step 5 of attempt 1 was saved before"),
        ([saved(0, 5, attempt=3)], "attempt 1 has been launched"),
        ([saved(9 * n, n) for n in range(4)], "3 within a minute of another"),
    ],
)
def test_what_no_launcher_may_report_is_told(reports: list[Event], text: str) -> None:
    with pytest.raises(InvariantViolated, match=text):
        feed(InvariantChecker(), launched_log(*reports))


def test_what_launchers_report_of_attempts_that_run_is_no_violation() -> None:
    reports = [GangLaunched(1, "a", 1), *(saved(60 * n, n) for n in range(5)), saved(245, 9)]
    feed(
        InvariantChecker(), launched_log(*reports, RankFailed(250 * 10**9, "a", 1, 3, "z0-h0", "x"))
    )


def test_what_an_attempt_saves_as_it_leaves_is_not_counted_against_its_successor() -> None:
    log = AttemptLog()
    log.begin(1)
    assert log.fault(saved(0, 1)) == ""
    log.begin(2)  # a planned move: the last of attempt 1, and what it was asked for, come late
    assert [log.fault(saved(25, 9)), log.fault(saved(26, 10))] == ["", ""]
    assert [log.fault(saved(50 + n, n, attempt=2)) for n in range(3)] == [
        *("", ""),
        "3 within a minute of another",
    ]
