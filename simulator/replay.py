"""Replay a trace through the scheduler's own four functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from muster.structs import struct
from placement import BadInput
from scheduler.core import State
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.model.commands import (
    CancelJob,
    EndJob,
    LoadHealth,
    ReportHost,
    SetWindow,
    SubmitJob,
)
from scheduler.core.model.events import Event, JobEnded, JobRequeued
from scheduler.core.model.lifecycle import HostState, RequeueCause
from simulator.engine import Engine, Sink
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.kernel import SimulationKernel
from simulator.launcher import SimulatedLauncher
from simulator.placers import PlacementStrategy, by_the_cut
from simulator.sim_events import (
    ARRIVAL,
    END,
    HEALTH,
    FailureDetected,
    HostChanged,
    JobArrived,
    JobGivenUp,
    TimeLimitReached,
)
from simulator.timing import FlatTiming, ModelledTiming
from simulator.traces.mapping import job_spec, with_tenant
from simulator.traces.record import SECOND_NS, TraceJob

NO_ADVANCE = "saved nothing in an attempt as long as its time limit"


@struct(frozen=True, slots=True)
class RefusedJob:
    """A job that the scheduler did not admit."""

    job: TraceJob
    message: str


@dataclass(slots=True)
class ArrivalCounts:
    """Counts of jobs that arrived: `offered` jobs, of which some were `refused`, by reason."""

    offered: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Replay:
    """One trace on one cluster.

    `jobs` come in submit order and are read as the clock reaches them; `outages` count from the
    first submit and may go on for ever. `effects`: of its log, for all who read it. Memory: O(live
    jobs).
    """

    def __init__(
        self,
        experiment: Experiment,
        jobs: Iterable[TraceJob],
        sink: Sink,
        outages: Iterable[Outage] = (),
        on_refused: Callable[[RefusedJob], None] | None = None,
    ) -> None:
        self.tally = ArrivalCounts()
        self.false_swaps = 0  # hosts that came back from a repair for a failure that never came
        self.effects = EffectReader()
        self.modelled = (
            ModelledTiming(experiment.fabric, experiment.times) if experiment.times else None
        )
        self._timing: FlatTiming | ModelledTiming = self.modelled or FlatTiming(
            lambda: self._engine.state
        )
        self._live: dict[str, tuple[TraceJob, float]] = {}  # with the share of its GPUs asked for
        self._down_ns: dict[str, int] = {}
        self._experiment = experiment
        self._jobs = iter(jobs)
        self._outages = iter(outages)
        self._sink = sink
        self._on_refused = on_refused

    def run(self, on_step: Callable[[], None] | None = None) -> ArrivalCounts:
        """Step until every job has ended, or nothing more can happen."""
        first = next(self._jobs, None)
        if first is None:
            return self.tally
        self._start(first)
        while not self.is_over and self._kernel.step():
            if on_step:
                on_step()
        return self.tally

    def _start(self, first: TraceJob) -> None:
        self._wire(first.submit_ns)
        if self._experiment.health is not None:
            self._engine.send(LoadHealth(self._experiment.health))
        for window in self._experiment.windows(first.submit_ns) if self._experiment.windows else ():
            if refusal := self._engine.send(SetWindow(window)):
                raise BadInput("windows", refusal.message)
        self._await_job(first)
        self._await_outage()
        self._await_end()

    def _wire(self, zero_ns: int) -> None:
        """Make the parts that know of each other."""
        self._zero_ns = zero_ns
        self._kernel = kernel = SimulationKernel(zero_ns)
        kernel.on(JobArrived, self._arrive)
        kernel.on(HostChanged, self._report)
        kernel.on(FailureDetected, self._hear)
        kernel.on(TimeLimitReached, self._stop)
        kernel.on(JobGivenUp, self._give_up)
        self._launcher = SimulatedLauncher(self._kernel, self._end, self._timing, self.effects)
        self._engine = self._scheduler()

    def _scheduler(self) -> Engine:
        return Engine(
            self._kernel,
            self._experiment.fabric,
            self._experiment.options,
            self._record,
            self._experiment.decision_ns,
            self._experiment.charged,
            self._experiment.placer_factory,
        )

    @property
    def is_over(self) -> bool:
        """Whether every job has come and ended."""
        return self._next is None and not self._engine.state.jobs

    def _await_end(self) -> None:
        if self._experiment.until_ns is not None:
            self._kernel.at(self._zero_ns + self._experiment.until_ns, TimeLimitReached(), ARRIVAL)

    def _stop(self, _: TimeLimitReached) -> None:
        """The time limit is reached: no more jobs arrive, and live jobs are cancelled."""
        self._jobs = iter(())
        self._await_job(None)
        for name in tuple(self._engine.state.jobs):
            if refusal := self._engine.send(CancelJob(name)):
                raise RuntimeError(f"{name} could not be cancelled: {refusal.message}")

    def _record(self, event: Event, state: State) -> None:
        self._launcher.feed(event, state)
        self._sink(event, state)
        self._launcher.forget(event)
        if isinstance(event, JobEnded):
            self._live.pop(event.name, None)
        elif isinstance(event, JobRequeued) and self._is_stuck(event):
            self._kernel.at(event.time_ns, JobGivenUp(event.name), END)

    def _is_stuck(self, event: JobRequeued) -> bool:
        """Whether nothing of an attempt that ran to its time limit is kept."""
        if event.cause is not RequeueCause.TIME_LIMIT or self.modelled is None:
            return False
        return not self.modelled.has_advanced(event.name)

    def _give_up(self, due: JobGivenUp) -> None:
        """By the scheduler's account something was saved; by the time model, which knows better,
        its restart and the way to the next checkpoint take longer than its limit. It would be
        requeued for ever."""
        self._launcher.unsuccessful.add(due.name)
        if refusal := self._engine.send(CancelJob(due.name, NO_ADVANCE)):
            raise RuntimeError(f"{due.name} could not be cancelled: {refusal.message}")

    def requested_share(self, name: str) -> float:
        """Return the share of a live job's GPUs that it asked for, by its trace."""
        return self._live[name][1] if name in self._live else 1.0

    def arrived(self, name: str) -> TraceJob | None:
        """Return a live job as it stands in the trace; None for one that came before."""
        return self._live[name][0] if name in self._live else None

    def is_unsuccessful(self, name: str) -> bool:
        """Return whether a job that is live, or ends right now, fails or is cancelled, as in its
        trace."""
        return name in self._launcher.unsuccessful

    def _end(self, report: EndJob | CancelJob) -> None:
        if refusal := self._engine.send(report):
            raise RuntimeError(f"the end of a running gang was refused: {refusal.message}")

    def _await_job(self, job: TraceJob | None) -> None:
        self._next = job
        if job is not None:
            self._kernel.at(job.submit_ns, JobArrived(), ARRIVAL)

    def _arrive(self, _: JobArrived) -> None:
        job, experiment = self._next, self._experiment
        if job is None:  # the time limit was reached meanwhile
            return
        gpus_per_host = experiment.fabric.gpus_per_host
        spec = job_spec(
            job,
            gpus_per_host,
            experiment.spares,
            experiment.has_assumed_limits,
            experiment.attach,
            experiment.shares_hosts,
        )
        spec = with_tenant(spec, job, experiment.tenants)
        if experiment.placement is PlacementStrategy.MINIMUM_CUT:
            spec = by_the_cut(spec)
        self.tally.offered += 1
        refusal = self._engine.send(SubmitJob(spec, uid=f"trace-{job.line}"))
        if refusal is None:
            hosts = spec.request.hosts_needed(experiment.fabric.gpus_per_host)
            taken = spec.request.part_gpus(gpus_per_host) or hosts * gpus_per_host
            self._live[spec.name] = job, min(1.0, job.gpus / taken)
            self._timing.expect(spec.name, job.run_ns, spec.request, hosts)
            self._launcher.expect(spec.name, job.outcome)
        else:
            self.tally.refused[refusal.code.value] += 1
            if self._on_refused:
                self._on_refused(RefusedJob(job, refusal.message))
        self._await_job(next(self._jobs, None))

    def _await_outage(self) -> None:
        self._outage = outage = next(self._outages, None)
        if outage is not None:
            self._kernel.at(self._zero_ns + outage.time_ns, HostChanged(), HEALTH)

    def _report(self, _: HostChanged) -> None:
        """The scheduler hears of it at once, or when the failure is detected."""
        outage = self._outage
        if outage is None:
            raise RuntimeError("an outage is due, but none is left")
        after_ns = 0 if outage.signal else self._detection_ns(outage)
        if outage.signal:
            self._announce(outage)
        elif after_ns:
            if outage.is_down:
                self._launcher.fail_silently(outage.host)
            at_ns = self._kernel.now_ns + after_ns
            self._kernel.at(at_ns, FailureDetected(outage), HEALTH)
        else:
            self._tell(outage)
        self._await_outage()

    def _detection_ns(self, outage: Outage) -> int:
        """A repair that comes before its failure was detected is reported right after it."""
        times, now_ns = self._experiment.times, self._kernel.now_ns
        if times is None:
            return 0
        if not outage.is_down:
            return max(0, self._down_ns.pop(outage.host, now_ns) - now_ns)
        after_ns = round(times.detection_s(outage.cause) * SECOND_NS)
        self._down_ns[outage.host] = now_ns + after_ns
        return after_ns

    def _hear(self, due: FailureDetected) -> None:
        self._tell(due.outage)

    def _tell(self, outage: Outage) -> None:
        self._launcher.revive(outage.host)
        for signal in ("host-down",) if outage.is_down else self._repaired(outage.host):
            if refusal := self._engine.send(ReportHost(outage.host, signal, outage.cause)):
                raise RuntimeError(f"an outage was refused: {refusal.message}")

    def _announce(self, outage: Outage) -> None:
        """Report the signal as often as its first threshold asks for, or that nothing was wrong
        with a host that was taken out for it."""
        state = self._engine.state
        if not outage.is_down:
            host = state.host(self._experiment.fabric.index_by_name[outage.host])
            if host.state in (HostState.IN_REPAIR, HostState.RMA):
                self.false_swaps += 1
                self._tell(outage)
            return
        signal = state.health.signal(outage.signal)
        count = min((threshold.count for threshold in signal.thresholds), default=1)
        value, times = (count, 1) if signal.has_value else (0, count)
        report = ReportHost(outage.host, outage.signal, outage.cause, value=value)
        for _ in range(times):
            if refusal := self._engine.send(report):
                raise RuntimeError(f"a report was refused: {refusal.message}")

    def _repaired(self, host: str) -> Iterator[str]:
        """Return the reports of a host that comes back, in order: one that went back
        to its maker is another machine, and its stress test was part of the time out."""
        index = self._experiment.fabric.index_by_name[host]
        is_away = self._engine.state.host(index).state is HostState.RMA
        yield "installed" if is_away else "repaired"
        if self._engine.state.host(index).state in (HostState.NEW, HostState.BURN_IN):
            yield "stress-test-passed"
