"""A twin goes on from a state as the cluster itself would, with jobs as its log had them."""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, takewhile
from random import Random
from statistics import mean
from typing import Any

import pytest

from muster.structs import replace
from placement.workload.request import NO_SPARES, Parallelism, Request
from scheduler.core import JobSpec, SchedulingOptions, State
from scheduler.core.fold.apply import apply, replay
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobStarted,
)
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.policies.affinity import Affinity
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.failures.cause import FailureCause, RepairTime
from simulator.failures.process import outages
from simulator.replay import Replay
from simulator.timing import TimeModel, load_time_model
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from simulator.twin.changes import Scenario
from simulator.twin.changes import scenario as changed_scenario
from simulator.twin.fork import ClusterFork
from simulator.twin.future import Future, TwinWorld, future
from simulator.twin.outages import fit_failures
from simulator.twin.workload import (
    HOUR_NS,
    JobSample,
    Run,
    Workload,
    fit_workload,
    hour_of_week,
    hourly_rates,
    live_runs,
)
from tests.twins import DAY_NS, MONDAY_NS, TENANTS, cluster, jobs, past


class RecordingFuture(Future):
    """Keeps the events of its run."""

    def __init__(self, *arguments: Any) -> None:
        self.events: list[Event] = []
        super().__init__(*arguments)

    def _count(self, event: Event, state: State) -> None:
        self.events.append(event)
        super()._count(event, state)


def logged(
    experiment: Experiment, trace: list[TraceJob], failing: Iterable[Outage] = ()
) -> list[Event]:
    """The log of a replay."""
    log: list[Event] = []
    Replay(experiment, trace, lambda event, _: log.append(event), failing).run()
    return log


def recorded(
    experiment: Experiment, start: State, at_ns: int, runs: dict[str, Run], *come: Any
) -> RecordingFuture:
    """The run of a twin from a state on, which nothing changes."""
    scenario = Scenario((), start, SchedulingOptions())
    return RecordingFuture(experiment, scenario, at_ns, 30 * DAY_NS, runs, *come)


def test_it_goes_on_as_the_cluster_did() -> None:
    """Given how long each job really ran, and what came later, the log goes on the same."""
    trace, experiment = list(jobs(4, 30)), timed()
    failing = outages(FailureCause("gpu", 60, RepairTime(6)), experiment.fabric, 3)
    broke = list(takewhile(lambda outage: outage.time_ns < 6 * DAY_NS, failing))
    log = logged(experiment, trace, broke)
    zero_ns = trace[0].submit_ns
    at_ns = zero_ns + round(2.2 * DAY_NS)
    start = replay([event for event in log if event.time_ns <= at_ns])
    runs = {
        job.spec.name: Run(job.run_ns * job.spec.request.hosts_needed(8), job.outcome)
        for job in trace
        if job.spec.name in start.jobs
    }
    later = [job for job in trace if job.submit_ns > at_ns]
    down = [
        replace(o, time_ns=o.time_ns - (at_ns - zero_ns))
        for o in broke
        if o.time_ns > at_ns - zero_ns
    ]
    future = recorded(experiment, start, at_ns, runs, later, down)
    figures, tail = future.figures(), future.events
    expected = [event for event in log if event.time_ns > at_ns]
    assert len(expected) > 100
    assert any(isinstance(event, GangSwapped) for event in expected)
    assert tail[: len(expected)] == expected
    assert all(isinstance(event, HostMoved) for event in tail[len(expected) :])
    assert figures["submitted"] == len(later)
    started = [e for e in expected if isinstance(e, JobStarted) and e.attempt == 1]
    assert sum(wait["jobs"] for wait in figures["waits"]) == len(later) <= len(started)


def test_a_time_model_goes_on_with_the_present_attempt() -> None:
    """A gang that has run for half of its time runs for the other half, and what it did before is
    no work of the twin."""
    trace, experiment = list(jobs(3, 20)), timed(load_time_model("default"))
    log = logged(experiment, trace)
    ends = {e.name: e.time_ns for e in log if isinstance(e, JobEnded)}
    states = accumulate(log, apply, initial=State.empty())
    at, start = next((i, each) for i, each in enumerate(states) if len(each.index.running) > 3)
    at_ns = log[at - 1].time_ns + 1
    by_name = {job.spec.name: job for job in trace}
    runs = {
        name: Run(by_name[name].run_ns * job.gang_hosts, by_name[name].outcome)
        for name, job in start.jobs.items()
    }
    future = recorded(experiment, start, at_ns, runs, [], ())
    figures = future.figures()
    forked = {e.name: e.time_ns for e in future.events if isinstance(e, JobEnded)}
    running = [start.jobs[name] for name in start.index.running]
    for job in running:
        assert abs(forked[job.name] - ends[job.name]) < 2 * SECOND_NS
    left = sum(
        (by_name[job.name].run_ns - (at_ns - job.present.start_ns)) * len(job.hosts)
        for job in running
    )
    assert figures["effective_gpu_h"] == pytest.approx(left / 3600e9 * 8, rel=0.02)


def timed(times: TimeModel | None = None) -> Experiment:
    return Experiment(cluster(), tenants=TENANTS, times=times, has_assumed_limits=True)


# --- what is drawn is like the log that it comes from --------------------------------

WEEK_NS = 7 * DAY_NS


def sample(
    run_s: float, *, hosts: int = 1, tenant: str = "a", is_live: bool = False, limit_s: int = 100
) -> JobSample:
    spec = JobSpec(f"{tenant}/j", Request(Parallelism(dp=8 * hosts)), tenant=tenant)
    work = round(run_s * SECOND_NS) * hosts
    return JobSample(
        spec, tenant, hosts, work, is_live, TraceOutcome.COMPLETED, limit_s * SECOND_NS
    )


def workload(*samples: JobSample, a_day: float = 24.0) -> Workload:
    rates = (a_day / 24,) * 168
    return Workload(samples, tuple(range(len(samples))), rates, WEEK_NS, 0, 0)


@pytest.fixture(scope="module")
def fork() -> ClusterFork:
    """Ten days of twenty jobs each."""
    last, now = (steps := past(cluster(), 10, 20))[-1][2], steps[-1][1].time_ns
    return ClusterFork(last, now, tuple(last.ended.values()), 0, SchedulingOptions(), "test")


def test_rates_follow_the_hours_of_the_week_and_add_up_to_the_jobs() -> None:
    hours = (MONDAY_NS, MONDAY_NS - 1, MONDAY_NS + WEEK_NS + 25 * HOUR_NS)
    assert [hour_of_week(at_ns) for at_ns in hours] == [0, 167, 25]
    busy = [MONDAY_NS + day * DAY_NS + 10 * HOUR_NS + i for day in range(21) for i in range(9)]
    rates = hourly_rates(busy, MONDAY_NS, MONDAY_NS + 3 * WEEK_NS)
    assert sum(rates) * 3 == pytest.approx(len(busy))
    assert all(rates[24 * day + 10] > 5 for day in range(7))
    assert 0 < rates[11] < 0.3
    # Of less than a week all hours are alike.
    assert set(hourly_rates([MONDAY_NS + 5], MONDAY_NS, MONDAY_NS + 2 * HOUR_NS)) == {0.5}


def test_arrivals_are_as_many_as_the_rates_say_and_the_same_for_a_seed() -> None:
    drawn = workload(sample(10), a_day=240)
    end_ns = MONDAY_NS + 10 * DAY_NS
    first = list(drawn.arrivals(3, MONDAY_NS, end_ns, 8))
    assert first == list(drawn.arrivals(3, MONDAY_NS, end_ns, 8))
    assert first != list(drawn.arrivals(4, MONDAY_NS, end_ns, 8))
    assert 2200 < len(first) < 2600
    assert all(MONDAY_NS <= job.submit_ns < end_ns for job in first)
    assert [job.submit_ns for job in first] == sorted(job.submit_ns for job in first)


def test_shape_tenant_and_run_time_stay_together() -> None:
    drawn = workload(sample(10, hosts=2, tenant="a"), sample(99, hosts=4, tenant="b"), a_day=240)
    for job in drawn.arrivals(1, MONDAY_NS, MONDAY_NS + DAY_NS, 8):
        hosts = job.spec.request.hosts_needed(8)
        assert (job.spec.tenant, hosts, job.run_ns // SECOND_NS) in (("a", 2, 10), ("b", 4, 99))
        assert job.spec.name.startswith(f"{job.spec.tenant}/")


def test_a_job_that_still_runs_runs_longer_than_it_has() -> None:
    drawn = workload(*(sample(run_s) for run_s in range(1, 101)), sample(50, is_live=True))
    random = Random(1)
    live = drawn.samples[-1]
    runs = [Run.of(drawn, live, live.work_host_ns, random) for _ in range(400)]
    assert min(run.work_host_ns for run in runs) > 50 * SECOND_NS
    assert mean(run.work_host_ns for run in runs) == pytest.approx(75.5 * SECOND_NS, rel=0.05)
    drawn = workload(sample(5))  # who outlives all runs to its limit or as long again
    young, old = sample(50, is_live=True), sample(500, is_live=True)
    first = Run.of(drawn, young, young.work_host_ns, Random(1))
    assert first == Run(100 * SECOND_NS, TraceOutcome.COMPLETED)
    assert Run.of(drawn, old, old.work_host_ns, Random(1)).work_host_ns == 1000 * SECOND_NS
    told = workload(sample(5, is_live=True, limit_s=DAY_NS // SECOND_NS)).sentences()[-1]
    assert told.endswith("time limits stand for the rest, 1 d 00 h where none is stated")


def test_jobs_of_ones_own_kind_are_asked_first() -> None:
    own = [sample(run_s) for run_s in (10, 11, 12, 13, 14)]
    drawn = workload(*own, *(sample(1000, hosts=64) for _ in range(50)))
    live = sample(9, is_live=True)
    assert set(drawn.longer(live, live.work_host_ns)) == set(own)
    assert len(drawn.longer(live, sample(12).work_host_ns)) == 52  # two are too few: all are asked


def test_a_log_is_fitted_by_what_was_seen_of_it(fork: ClusterFork) -> None:
    found = fit_workload(fork)
    assert len(found.arrived) == len(found.samples) == len(fork.ended) + len(fork.state.jobs)
    assert sum(found.rates) / 7 == pytest.approx(len(found.arrived) / 10, rel=0.02)
    text = " ".join(found.sentences())
    assert f"{len(found.arrived)} jobs over 10 d 00 h" in text
    assert "a rate for each hour of the week" in text
    by_name = {each.spec.name: each for each in found.samples}
    done = next(job for job in fork.ended if job.attempt == 1 and job.state.value == "completed")
    assert by_name[done.name].run_ns == done.state_ns - done.present.start_ns
    tenants = Counter(each.tenant for each in found.samples)
    drawn = list(found.arrivals(1, fork.now_ns, fork.now_ns + 200 * DAY_NS, 8))
    share = sum(job.spec.tenant == "vision" for job in drawn if job.spec) / len(drawn)
    assert share == pytest.approx(tenants["vision"] / len(found.samples), abs=0.03)
    first = live_runs(found, fork.state, fork, 1)  # they go on the same under one seed
    assert first == live_runs(found, fork.state, fork, 1)
    assert set(first) == set(fork.state.jobs)
    assert len(first) > 3


def test_what_is_no_more_kept_is_no_time_without_jobs(fork: ClusterFork) -> None:
    kept = tuple(job for job in fork.ended if job.state_ns > fork.now_ns - 4 * DAY_NS)
    found = fit_workload(ClusterFork(fork.state, fork.now_ns, kept, 9, fork.options, "test"))
    assert found.seen_ns < 4 * DAY_NS
    assert sum(found.rates) / 7 == pytest.approx(20, rel=0.3)
    assert "9 jobs that ended long ago are not kept" in found.sentences()[0]


def test_what_names_other_jobs_or_a_moment_does_not_hold_for_a_drawn_job() -> None:
    plain = sample(10)
    spec = JobSpec(
        "a/j",
        plain.spec.request,
        tenant="a",
        affinity=Affinity("rack", (("rack", ("x",)),), "y"),
        hold=True,
        begin_ns=5,
        dependencies=(DependencyTerm(DependencyKind.AFTEROK, "a/x"),),
    )
    odd = JobSample(spec, "a", 1, SECOND_NS, False, TraceOutcome.COMPLETED, SECOND_NS)
    (drawn, *_) = workload(odd).arrivals(1, MONDAY_NS, MONDAY_NS + DAY_NS, 8)
    assert drawn.spec == JobSpec(
        "a/j.twin-1", plain.spec.request, tenant="a", affinity=Affinity("rack")
    )


def test_failures_are_those_of_the_log_and_of_the_operator() -> None:
    fabric = cluster()
    state = replay([FabricLoaded(MONDAY_NS, fabric.spec)])
    host = fabric.hosts[3]
    for day in range(30):
        at_ns = MONDAY_NS + day * DAY_NS
        moves = ((HostMove.FAIL, at_ns), (HostMove.REPAIR, at_ns + DAY_NS // 4))
        events = [HostMoved(ns, host, move, cause=Mover.SIGNAL) for move, ns in moves]
        state = replay(events, state)
    found = fit_failures(state, MONDAY_NS + 1000 * DAY_NS)
    assert (found.failures, found.repairs) == (30, 30)
    assert found.host_days == pytest.approx(16 * 1000 - 30 / 4)
    assert found.per_host_day == pytest.approx((37.9 + 30) / (10_000 + found.host_days))
    assert found.repair_s == pytest.approx((20 * 86_400 + 30 * 21_600) / 50)
    assert "30 in 15,992.5 host-days of the log" in found.sentences()[0]


def test_hosts_that_are_down_come_back_once() -> None:
    fabric = cluster()
    down = HostMoved(MONDAY_NS, fabric.hosts[3], HostMove.FAIL, cause=Mover.SIGNAL)
    state: State = replay([FabricLoaded(MONDAY_NS, fabric.spec), down])
    found = fit_failures(state, MONDAY_NS + DAY_NS)
    stream = found.outages(state, 1)
    told = [next(stream) for _ in range(400)]
    assert told == [each for _, each in zip(range(400), found.outages(state, 1), strict=False)]
    first = next(outage for outage in told if outage.host == fabric.hosts[3])
    assert not first.is_down
    known = {fabric.hosts[3]}
    for outage in told:
        assert (outage.host in known) != outage.is_down
        known ^= {outage.host}


def test_a_job_on_a_part_of_a_host_runs_as_long_as_it_did() -> None:
    """Its account is a share of its host's time; how long it ran is not."""
    small = Request(Parallelism(dp=2), (("dp", 1),), spares=NO_SPARES)
    trace = [
        TraceJob(
            str(n),
            MONDAY_NS + n * HOUR_NS,
            3 * HOUR_NS,
            n,
            time_limit_ns=DAY_NS,
            spec=JobSpec(f"default/j{n}", small, tenant="default"),
        )
        for n in range(1, 30)
    ]
    log = logged(Experiment(cluster(), has_assumed_limits=True), trace)
    now_ns = MONDAY_NS + 20 * HOUR_NS
    state = replay([event for event in log if event.time_ns <= now_ns])
    ended = tuple(state.ended.values())
    fork = ClusterFork(state, now_ns, ended, 0, SchedulingOptions(), "test")
    fitted = fit_workload(fork)
    whole = [sample for sample in fitted.samples if not sample.is_live]
    assert len(whole) > 10
    assert {sample.run_ns for sample in whole} == {3 * HOUR_NS}
    come = list(fitted.arrivals(1, fork.now_ns, fork.now_ns + DAY_NS, 8))
    assert {job.run_ns for job in come} == {3 * HOUR_NS}
    world = TwinWorld(fork, fitted, fit_failures(fork.state, fork.now_ns), DAY_NS)
    scenario = changed_scenario(fork, (), DAY_NS, has_times=False)
    figures = future(world, scenario, 1)
    assert figures["ended"] > 10
    used = figures["effective_gpu_h"]
    assert used == pytest.approx(3 * 2 * figures["ended"], rel=0.3)  # GPUs that they have, alone
