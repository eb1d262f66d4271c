"""One run of a twin: from the state of the cluster on, under one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from muster.structs import replace, struct
from scheduler.core import State
from scheduler.core.model.commands import ReportHost
from scheduler.core.model.events import Event
from scheduler.eventlog import codec
from simulator.engine import Engine
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.replay import Replay
from simulator.sim_events import ARRIVAL, TimeLimitReached
from simulator.timing import TimeModel
from simulator.traces.record import SECOND_NS, TraceJob
from simulator.twin.changes import Scenario
from simulator.twin.fork import ClusterFork, auto_spares
from simulator.twin.outages import FittedFailures
from simulator.twin.tally import RunTally
from simulator.twin.workload import Run, Workload, live_runs


@struct(frozen=True, slots=True)
class TwinWorld:
    """Inputs that all runs of a twin share."""

    fork: ClusterFork
    workload: Workload
    failures: FittedFailures
    horizon_ns: int
    times: TimeModel | None = None


class Future(Replay):
    """One run of the scheduler from the start of a scenario on. `runs`: how each live job goes on,
    by name."""

    def __init__(
        self,
        experiment: Experiment,
        scenario: Scenario,
        now_ns: int,
        horizon_ns: int,
        runs: Mapping[str, Run],
        jobs: Iterable[TraceJob],
        outages: Iterable[Outage],
    ) -> None:
        self.counts = RunTally(scenario.state, now_ns)
        self._digest = hashlib.sha256()
        super().__init__(experiment, jobs, self._count, outages)
        self._from = scenario.state
        self._horizon_ns = horizon_ns
        self._is_at_end = False
        self._wire(now_ns)
        self._adopt(runs)

    def figures(self) -> dict[str, Any]:
        """Run to the horizon, and return the figures of the run."""
        worked_ns = None if self.modelled is None else self._worked_ns()
        self._await_job(next(self._jobs, None))
        self._await_outage()
        self._kernel.at(self._zero_ns + self._horizon_ns, TimeLimitReached(), ARRIVAL)
        while not self._is_at_end and self._kernel.step():
            pass
        if worked_ns is not None:
            worked_ns = self._worked_ns() - worked_ns
        return {
            **self.counts.figures(self._kernel.now_ns, worked_ns),
            "false_swaps": self.false_swaps,
            "refused": dict(sorted(self.tally.refused.items())),
            "log_sha256": self._digest.hexdigest(),
        }

    def _worked_ns(self) -> int:
        return self.modelled.worked_host_ns(self._kernel.now_ns) if self.modelled else 0

    def _scheduler(self) -> Engine:
        experiment = self._experiment
        return Engine(
            self._kernel,
            experiment.fabric,
            experiment.options,
            self._record,
            experiment.decision_ns,
            make_placer=experiment.placer_factory,
            start=self._from,
        )

    def _adopt(self, runs: Mapping[str, Run]) -> None:
        gpus_per_host = self._experiment.fabric.gpus_per_host
        for name, job in self._from.jobs.items():
            run, request = runs[name], job.spec.request
            # A time model starts with the present attempt, the scheduler's account with the first.
            account = job.goodput.time if job.part_gpus else job.goodput.hosts
            done = account.productive if self.modelled is not None else 0
            hosts = request.hosts_needed(gpus_per_host)
            work_ns = max(SECOND_NS * hosts, run.work_host_ns - done)
            self._timing.expect(name, -(-work_ns // hosts), request, hosts)
            self._launcher.expect(name, run.outcome)
        self._launcher.adopt(self._from)

    def _stop(self, _: TimeLimitReached) -> None:
        self._is_at_end = True

    def _count(self, event: Event, state: State) -> None:
        self.counts.feed(event, state)
        kind, body = codec.encode(event)
        self._digest.update(f"{kind} {body}\n".encode())

    def _tell(self, outage: Outage) -> None:
        """As in a replay; a host of which that cannot be said, for people have put it aside, stays
        as it is."""
        self._launcher.revive(outage.host)
        for signal in ("host-down",) if outage.is_down else self._repaired(outage.host):
            self._engine.send(ReportHost(outage.host, signal, outage.cause))


def future(world: TwinWorld, scenario: Scenario, seed: int) -> dict[str, Any]:
    """Return the figures of one run. The same world, scenario and seed give the same log; scenarios
    that differ have the same arrivals, failures and run times under one seed."""
    fork, state, times = world.fork, scenario.state, world.times
    if times is not None and scenario.checkpoint_s:
        written = times.checkpoint.model_copy(update={"interval_s": scenario.checkpoint_s})
        times = times.model_copy(update={"checkpoint": written})
    experiment = Experiment(
        state.built_fabric,
        scenario.options,
        has_assumed_limits=True,
        times=times,
        seed=seed,
    )
    gpus_per_host = fork.state.built_fabric.gpus_per_host
    end_ns = fork.now_ns + world.horizon_ns
    jobs = world.workload.arrivals(seed, fork.now_ns, end_ns, gpus_per_host)
    if scenario.has_auto_spares:
        jobs = (
            job if job.spec is None else replace(job, spec=auto_spares(job.spec)) for job in jobs
        )
    run = Future(
        experiment,
        scenario,
        fork.now_ns,
        world.horizon_ns,
        live_runs(world.workload, fork.state, fork, seed),
        jobs,
        world.failures.outages(fork.state, seed),
    )
    return run.figures()
