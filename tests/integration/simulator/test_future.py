"""A run of a twin goes on from a state as the cluster itself would."""

import pytest

from placement.fabric.tree import Fabric
from scheduler.core import SchedulingOptions, State
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import Event, GangSwapped, HostMoved, JobEnded, JobStarted
from scheduler.core.policies.costs import Costs
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.failures.cause import FailureCause, RepairTime
from simulator.failures.process import outages
from simulator.replay import Replay
from simulator.timing import TimeModel, load_time_model
from simulator.traces.record import TraceJob
from simulator.twin.changes import Scenario
from simulator.twin.future import Future
from simulator.twin.workload import Run
from tests.twins import DAY_NS, TENANTS, cluster, jobs

FABRIC = cluster()


def as_it_is(start: State) -> Scenario:
    return Scenario((), start, SchedulingOptions())


def broken(fabric: Fabric, days: float) -> list[Outage]:
    """Hosts that fail and come back within some days."""
    found, end_ns = list[Outage](), round(days * DAY_NS)
    for outage in outages(FailureCause("gpu", 60, RepairTime(6)), fabric, 3):
        if outage.time_ns > end_ns:
            return found
        found.append(outage)
    return found


@pytest.mark.parametrize(("has_failures", "at_day"), [(False, 1.3), (True, 3.7)])
def test_it_goes_on_as_the_cluster_did(has_failures: bool, at_day: float) -> None:
    """Given how long each job really ran, and what came later, the log goes on the same."""
    trace = list(jobs(6, 30))
    broke = broken(FABRIC, 9) if has_failures else []
    log = list[Event]()
    experiment = Experiment(FABRIC, tenants=TENANTS, has_assumed_limits=True)
    Replay(experiment, trace, lambda event, _: log.append(event), broke).run()
    zero_ns = trace[0].submit_ns
    at_ns = zero_ns + round(at_day * DAY_NS)
    before = [event for event in log if event.time_ns <= at_ns]
    start = State.empty()
    for event in before:
        start = apply(start, event)
    runs = {}
    for job in trace:
        if (live := start.jobs.get(job.spec.name if job.spec else "")) is not None:
            whole = live.spec.request.hosts_needed(8)
            runs[live.name] = Run(job.run_ns * whole, job.outcome, is_guess=False)
    later = [job for job in trace if job.submit_ns > at_ns]
    down = [
        Outage(o.time_ns - (at_ns - zero_ns), o.host, o.is_down, o.cause)
        for o in broke
        if o.time_ns > at_ns - zero_ns
    ]
    tail = list[Event]()

    class Listening(Future):
        def _count(self, event: Event, state: State) -> None:
            tail.append(event)
            super()._count(event, state)

    future = Listening(experiment, as_it_is(start), at_ns, 30 * DAY_NS, runs, later, down)
    figures = future.figures()
    expected = [event for event in log if event.time_ns > at_ns]
    assert len(expected) > 100
    assert has_failures == any(isinstance(event, GangSwapped) for event in expected)
    assert tail[: len(expected)] == expected
    assert all(isinstance(event, HostMoved) for event in tail[len(expected) :])
    assert figures["submitted"] == len(later)
    started = [e for e in expected if isinstance(e, JobStarted) and e.attempt == 1]
    assert sum(wait["jobs"] for wait in figures["waits"]) == len(later) <= len(started)


def test_a_time_model_goes_on_with_the_present_attempt() -> None:
    """A gang that has run for half of its time runs for the other half, and what it did before is
    no work of the twin."""
    times = load_time_model("default")
    trace = [job for job in jobs(3, 20) if job.spec]
    forked = dict[str, int]()
    log, states = list[Event](), list[State]()

    def keep(event: Event, state: State) -> None:
        log.append(event)
        states.append(state)

    experiment = timed(times)
    replay = Replay(experiment, trace, keep)
    replay.run()
    ends = {e.name: e.time_ns for e in log if isinstance(e, JobEnded)}
    at = next(i for i, state in enumerate(states) if len(state.index.running) > 3)
    start, at_ns = states[at], log[at].time_ns + 1
    by_name = {job.spec.name: job for job in trace if job.spec}
    runs = {
        name: Run(by_name[name].run_ns * job.gang_hosts, by_name[name].outcome, False)
        for name, job in start.jobs.items()
    }

    class Listening(Future):
        def _count(self, event: Event, state: State) -> None:
            if isinstance(event, JobEnded):
                forked[event.name] = event.time_ns
            super()._count(event, state)

    later: list[TraceJob] = []
    future = Listening(experiment, as_it_is(start), at_ns, 20 * DAY_NS, runs, later, ())
    figures = future.figures()
    running = set(start.index.running)
    assert len(running) > 3
    for name in running:
        assert abs(forked[name] - ends[name]) < 2 * 10**9
    left = sum(
        (by_name[name].run_ns - (at_ns - start.jobs[name].present.start_ns))
        * len(start.jobs[name].hosts)
        for name in running
    )
    assert figures["effective_gpu_h"] == pytest.approx(left / 3600e9 * 8, rel=0.02)


def timed(times: TimeModel) -> Experiment:
    return Experiment(
        FABRIC,
        SchedulingOptions(),
        Costs(),
        tenants=TENANTS,
        times=times,
        has_assumed_limits=True,
    )
