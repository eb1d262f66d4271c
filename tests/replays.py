"""One-tier machines, trace jobs, replays and scripts of commands for the simulator's tests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.request import SpareRule
from scheduler.core import SchedulingOptions, State, Tenants, apply
from scheduler.core.model.commands import Command
from scheduler.core.model.events import Event, JobStarted
from scheduler.core.policies.costs import Costs
from scripts.backfill_reference import Job
from simulator.collectors.metrics import JobRow, Metrics
from simulator.engine import Engine
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.kernel import SimulationKernel
from simulator.replay import ArrivalCounts, Replay
from simulator.timing import ModelledTiming, TimeModel
from simulator.traces.record import SECOND_NS, TraceJob


def machine(hosts: int, gpus: int = 1) -> Fabric:
    """One zone of hosts, z0-h0 and so on, as HPC traces are replayed on."""
    return from_spec(
        {
            "name": "machine",
            "gpus_per_host": gpus,
            "tiers": [{"name": "zone", "count": 1}, {"name": "host", "count": hosts}],
        }
    )


def trace_job(
    name: str,
    submit_s: float,
    run_s: float,
    gpus: int = 1,
    limit_s: float | None = None,
    priority: int = 0,
    line: int = 0,
) -> TraceJob:
    return TraceJob(
        name,
        round(submit_s * SECOND_NS),
        round(run_s * SECOND_NS),
        line,
        gpus,
        None if limit_s is None else round(limit_s * SECOND_NS),
        priority=priority,
    )


def swf(jobs: Sequence[Job]) -> str:
    """The log as text: job, submit, wait, run, processors, -, -, requested, its limit, 1s."""
    rows = [
        f"{j.name} {j.submit} -1 {j.run} {j.size} -1 -1 {j.size} {j.estimate} -1 1 1 1 1 1 1 -1 -1"
        for j in jobs
    ]
    return "; Computer: none\n" + "\n".join(rows) + "\n"


def down(time_s: float, host: str) -> Outage:
    return Outage(round(time_s * SECOND_NS), host, True, "test")


def up(time_s: float, host: str) -> Outage:
    return Outage(round(time_s * SECOND_NS), host, False, "test")


@dataclass(frozen=True, slots=True)
class World:
    """What a replay left behind."""

    fabric: Fabric
    log: list[Event]
    rows: dict[str, JobRow]
    metrics: Metrics
    tally: ArrivalCounts
    modelled: ModelledTiming | None = None
    false_swaps: int = 0

    def of(self, *kinds: type[Event]) -> list[Any]:
        """The events of these kinds."""
        return [event for event in self.log if isinstance(event, kinds)]

    def starts_s(self) -> dict[str, float]:
        """First start of each job."""
        starts: dict[str, float] = {}
        for event in self.log:
            if isinstance(event, JobStarted):
                starts.setdefault(event.name, event.time_ns / SECOND_NS)
        return starts

    def ends_s(self) -> dict[str, float]:
        return {name: row.end_ns / SECOND_NS for name, row in self.rows.items()}


def replayed(
    fabric: Fabric,
    jobs: Sequence[TraceJob],
    policy: str = "production",
    outages: Iterable[Outage] = (),
    spares: SpareRule | None = None,
    costs: Costs | None = None,
    decision_ns: int = 0,
    times: TimeModel | None = None,
    until_s: float | None = None,
    tenants: Tenants | None = None,
    options: SchedulingOptions | None = None,
    **more: Any,
) -> World:
    """Replay to the end. `options`: in place of those of the `policy`; `more`: of the
    experiment."""
    costs = costs or Costs()
    log: list[Event] = []
    rows: dict[str, JobRow] = {}

    def keep(row: JobRow) -> None:
        rows[row.name] = row

    metrics = Metrics(keep)

    def sink(event: Event, state: State) -> None:
        log.append(event)
        metrics.feed(event, state)

    experiment = Experiment(
        fabric,
        options or SchedulingOptions(policy=policy),
        times.costs if times else costs,
        spares,
        decision_ns,
        tenants,
        times=times,
        until_ns=None if until_s is None else round(until_s * SECOND_NS),
        **more,
    )
    replay = Replay(experiment, jobs, sink, outages)
    metrics.follow(replay)
    tally = replay.run()
    return World(fabric, log, rows, metrics, tally, replay.modelled, replay.false_swaps)


def measured(log: Iterable[Event]) -> Metrics:
    """What a log amounts to."""
    state, metrics = State.empty(), Metrics()
    for event in log:
        state = apply(state, event)
        metrics.feed(event, state)
    return metrics


def run_script(
    fabric: Fabric,
    script: Sequence[tuple[int, Command]],
    options: SchedulingOptions | None = None,
    decision_ns: int = 0,
    tenants: Tenants | None = None,
) -> list[Event]:
    """The log of a cluster that is sent these commands at these times.

    Nothing else happens: gangs end when the script says so. Refused commands leave no
    trace, as in the live log.
    """
    log: list[Event] = []
    kernel = SimulationKernel(min((time_ns for time_ns, _ in script), default=0))
    options = options or SchedulingOptions()
    engine = Engine(
        kernel, fabric, options, lambda event, _: log.append(event), decision_ns, tenants
    )
    kernel.on(tuple, lambda due: engine.send(*due))
    for time_ns, command in script:
        kernel.at(time_ns, (command,))
    while kernel.step():
        pass
    return log
