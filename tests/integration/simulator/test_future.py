"""A run of a twin goes on from a state as the cluster itself would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
from simulator.traces.record import TraceJob, TraceOutcome
from simulator.twin.changes import LaterChange, Scenario, TwinClock
from simulator.twin.future import Future
from simulator.twin.workload import Run
from tests.twins import DAY_NS, TENANTS, cluster, jobs, past

FABRIC = cluster()


def as_it_is(start: State, *later: tuple[int, str]) -> Scenario:
    """Nothing is different, but what comes at these times."""
    changes = tuple(LaterChange(at_ns, text, _clock(at_ns)) for at_ns, text in later)
    return Scenario((), start, SchedulingOptions(), later=changes)


def _clock(at_ns: int) -> TwinClock:
    """Of a run that this time is in, as all the words here count from somewhere before it."""
    return TwinClock(at_ns, 30 * DAY_NS, has_times=True, used={})


def broken(fabric: Fabric, days: float) -> list[Outage]:
    """Hosts that fail and come back within some days."""
    found, end_ns = list[Outage](), round(days * DAY_NS)
    for outage in outages(FailureCause("gpu", 60, RepairTime(6)), fabric, 3):
        if outage.time_ns > end_ns:
            return found
        found.append(outage)
    return found


@pytest.mark.parametrize("has_failures", [False, True])
@pytest.mark.parametrize("at_day", [1.3, 3.7])
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


def ahead(
    start: State, at_ns: int, times: TimeModel | None, *later: tuple[int, str], days: int = 10
) -> Future:
    """A run of ten days in which nobody comes and nothing fails. `days`: that live jobs take."""
    runs = {
        name: Run(days * DAY_NS * job.gang_hosts, TraceOutcome.COMPLETED, is_guess=False)
        for name, job in start.jobs.items()
    }
    experiment = replace(timed(times), fabric=FABRIC) if times else Experiment(FABRIC)
    scenario = as_it_is(start, *later)
    return Future(experiment, scenario, at_ns, 10 * DAY_NS, runs, (), ())


def busy() -> tuple[State, int]:
    """Gangs of all sizes run."""
    state, at_ns = State.empty(), 0
    for _, event, after in past(FABRIC, days=3):
        state, at_ns = after, event.time_ns + 1
    assert len(state.index.running) > 3
    return state, at_ns


def test_what_changes_later_changes_nothing_before() -> None:
    start, at_ns = busy()
    later = at_ns + 4 * DAY_NS, "spares 1 a zone at +4d"
    never, late = (ahead(start, at_ns, None, *each) for each in ((), (later,)))
    log: dict[bool, list[tuple[int, str]]] = {False: [], True: []}
    for has_change, run in ((False, never), (True, late)):
        run.counts.feed = listening(run.counts.feed, log[has_change])  # type: ignore[method-assign]
    before, after = never.figures(), late.figures()
    early = [[e for e in log[each] if e[0] < later[0]] for each in (False, True)]
    assert early[0] == early[1]
    assert before["spare_gpu_h"] == 0 < after["spare_gpu_h"] < 2 * 8 * 6 * 24 * 1.01


def listening(
    feed: Callable[[Event, State], None], log: list[tuple[int, str]]
) -> Callable[[Event, State], None]:
    def heard(event: Event, state: State) -> None:
        log.append((event.time_ns, repr(event)))
        feed(event, state)

    return heard


def test_a_policy_takes_over_at_its_time() -> None:
    start, at_ns = busy()
    run = ahead(start, at_ns, None, (at_ns + DAY_NS, "policy fifo at +1d"))
    run.figures()
    assert run._engine._limits.policy == "fifo"


def test_checkpoints_come_at_another_interval_and_no_work_is_lost_or_made() -> None:
    start, at_ns = busy()
    times = load_time_model("default,checkpoint.stall_s=60,network.is_modelled=false")
    seldom = ahead(start, at_ns, times).figures()
    later = at_ns + 5 * DAY_NS, "checkpoint 5m at +5d"
    often = ahead(start, at_ns, times, later).figures()
    held, share = seldom["held_gpu_h"], 60 / 1860
    assert often["held_gpu_h"] == pytest.approx(held)
    assert seldom["effective_gpu_h"] == pytest.approx(held * (1 - share), rel=0.01)
    expected = held * (1 - (share + 60 / 360) / 2)
    assert often["effective_gpu_h"] == pytest.approx(expected, rel=0.01)


def test_wider_uplinks_speed_gangs_up_from_their_day_on() -> None:
    start, at_ns = busy()
    times = load_time_model("default")
    now, half, wide = (
        ahead(start, at_ns, times, *later).figures()["effective_gpu_h"]
        for later in (
            (),
            ((at_ns + 5 * DAY_NS, "oversubscription 1 at +5d"),),
            ((at_ns, "oversubscription 1 at +0d"),),
        )
    )
    assert now < half < wide
    assert half - now == pytest.approx((wide - now) / 2, rel=0.05)
