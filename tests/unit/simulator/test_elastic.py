"""Elastic gangs in a replay: host-time is conserved, resizes are counted."""

from __future__ import annotations

import json

from scheduler.core import SchedulingOptions, State
from scheduler.core.model.events import Event, GangResized, JobEnded
from scheduler.core.policies.costs import Costs
from simulator.collectors.metrics import Metrics
from simulator.experiment import Experiment
from simulator.replay import Replay
from simulator.traces.formats import muster
from simulator.traces.record import SECOND_NS, TraceJob
from tests.replays import down, machine, trace_job

SAVED_ALWAYS = Costs(checkpoint_s=0, restart_s=0)


def elastic(submit_s: int, run_s: int, least: int, most: int) -> TraceJob:
    job = {
        "submit_s": submit_s,
        "run_s": run_s,
        "name": "e",
        "parallelism": {"dp": {"min": least, "max": most}},
        "traffic": {"dp": 1},
        "spares": 0,
    }
    (found,) = muster.read([(1, json.dumps(job))])
    assert isinstance(found, TraceJob)
    return found


def replayed(hosts: int, *jobs: TraceJob, outages: tuple = ()) -> tuple[list[Event], Metrics]:
    log: list[Event] = []
    metrics = Metrics()

    def sink(event: Event, state: State) -> None:
        log.append(event)
        metrics.feed(event, state)

    limits = SchedulingOptions(resize_every_s=60)
    experiment = Experiment(machine(hosts), limits=limits, costs=SAVED_ALWAYS)
    Replay(experiment, jobs, sink, outages).run()
    return log, metrics


def end_s(log: list[Event], name: str) -> float:
    (end,) = (e.time_ns for e in log if isinstance(e, JobEnded) and e.name == name)
    return end / SECOND_NS


def test_half_the_replicas_take_twice_as_long() -> None:
    log, metrics = replayed(2, elastic(0, 1_000, 1, 4))
    assert end_s(log, "e") == 2_000
    assert metrics.resizes == 0


def test_a_host_that_fails_costs_its_share() -> None:
    """1,000 s on four hosts are 4,000 host-seconds: 400 are done when one fails at 100 s,
    and three hosts take 1,200 s for the rest."""
    log, metrics = replayed(4, elastic(0, 1_000, 1, 4), outages=(down(100, "z0-h3"),))
    assert end_s(log, "e") == 100 + 1_200
    assert (metrics.resizes, metrics.restarts) == (1, 1)


def test_a_gang_that_grows_is_done_sooner() -> None:
    """Two of four hosts until x ends at 1,800 s, when by the scheduler's own costs it has just
    saved; all four for what is left."""
    log, metrics = replayed(4, trace_job("x", 0, 1_800, 2), elastic(0, 10_000, 1, 4))
    (grown,) = (event for event in log if isinstance(event, GangResized))
    grown_s = grown.time_ns // SECOND_NS
    assert (grown.dp, metrics.resizes) == (4, 1)
    assert 1_800 <= grown_s < 3_700
    assert end_s(log, "e") == grown_s + (40_000 - 2 * grown_s) / 4
