"""Fold a log into its failures, each with what came of it, and into samples for charts.

A failure begins with the host or the rank that failed. It stays open until the gang that it
stopped makes steps again: on other hosts, with fewer replicas, or after it waited in the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from muster.structs import replace, struct
from placement.fabric.constraints import gpus_wanted
from scheduler.core import Job, JobState, State
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import HostTransition, JobChange, JobChangeKind
from scheduler.core.model.events import Event, LaunchFailed, RankFailed, RoleRestarted
from scheduler.core.model.job_account import host_time, shown
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.records.goodput import NOTHING, Parts
from scheduler.core.policies.costs import SECOND_NS
from scheduler.core.policies.health_signals import AGENT_AWAITED
from scheduler.observe.incidents import IncidentKind, incident_of

MOST_FAILURES = 5_000
MOST_SAMPLES = 600


class Outcome(StrEnum):
    """How a gang went on after a failure stopped it, or a role of it."""

    OPEN = "open"
    SWAPPED = "swapped"
    RESIZED = "resized"
    REQUEUED = "requeued"
    ENDED = "ended"
    ROLE_RESTARTED = "role_restarted"


_OUTCOMES = {
    JobChangeKind.SWAPPED: Outcome.SWAPPED,
    JobChangeKind.RESIZED: Outcome.RESIZED,
    JobChangeKind.REQUEUED: Outcome.REQUEUED,
    JobChangeKind.ENDED: Outcome.ENDED,
}
_CAUSES = frozenset(
    {
        IncidentKind.HOST_FAILED,
        IncidentKind.RANK_FAILED,
        IncidentKind.LAUNCH_FAILED,
        IncidentKind.ROLE_RESTARTED,
    }
)


@struct(frozen=True, slots=True)
class Failure:
    """One failure. `job`: the full name of the job that it stopped, or of which it stopped a role,
    "" for none; `uid` its uid. `hosts`: those that failed until the gang ran again. `step_ns`: when
    it made steps again, None while it does not. `gpus`: those of the gang that stood still, 0 where
    none did. `lost`: host-ns of `gpus_per_host` GPUs each, by what they went to."""

    version: int
    time_ns: int
    kind: IncidentKind
    subject: str
    detail: str
    job: str = ""
    uid: str = ""
    gpus: int = 0
    gpus_per_host: int = 0
    hosts: tuple[str, ...] = ()
    outcome: Outcome | None = None
    outcome_detail: str = ""
    outcome_ns: int | None = None
    step_ns: int | None = None
    lost: Parts = NOTHING
    is_measured: bool = False

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours that the failure has cost."""
        lost = self.lost
        host_ns = lost.rework + lost.detection + lost.rescheduling + lost.restart
        return host_ns * self.gpus_per_host / (3_600 * SECOND_NS)


@struct(frozen=True, slots=True)
class Sample:
    """The cluster at the end of a span. `productive` and `holding`: host-ns of all jobs in it;
    steps count as productive until they are lost."""

    time_ns: int
    waiting: int
    held: int
    out: int
    failures: int
    productive: int
    holding: int


class FailureHistory:
    """Failures and samples of a cluster, made from events in their order, from any state of the log
    on. `span_ns`: of a sample at first; it doubles whenever there are more than MOST_SAMPLES."""

    def __init__(self, span_ns: int) -> None:
        self.samples: list[Sample] = []
        self._span_ns = max(span_ns, SECOND_NS)
        self._failures: dict[int, Failure] = {}  # by version
        self._open: dict[str, tuple[int, Parts]] = {}  # by uid of the job: version, account before
        self._end_ns = 0
        self._fallen = 0
        self._before = NOTHING

    def feed(self, before: State, event: Event, after: State) -> None:
        """Take one event, which led from one state to the other."""
        if not self._end_ns:
            self._end_ns = event.time_ns + self._span_ns
            self._before = _account(before, event.time_ns)
        elif event.time_ns >= self._end_ns:
            self._sample(before)
            self._end_ns += self._span_ns
            silent = (event.time_ns - self._end_ns) // self._span_ns + 1
            if silent > 0:  # its begin and its end say everything
                self._end_ns += (silent - 1) * self._span_ns
                self._sample(before)
                self._end_ns += self._span_ns
        self._begin(event, after)
        for effect in effects(before, event, after):
            if isinstance(effect, JobChange):
                self._changed(effect, after)
            elif isinstance(effect, HostTransition) and effect.move is HostMove.FAIL:
                self._fallen += effect.signal != AGENT_AWAITED

    def _begin(self, event: Event, after: State) -> None:
        incident = incident_of(after.version, event)
        if incident is None or incident.kind not in _CAUSES:
            return
        host = (
            event.host
            if isinstance(event, RankFailed | LaunchFailed | RoleRestarted)
            else incident.subject
        )
        self._failures[incident.version] = Failure(
            incident.version,
            incident.time_ns,
            incident.kind,
            host,
            incident.detail,
            hosts=(host,),
        )
        if len(self._failures) > MOST_FAILURES:
            del self._failures[next(iter(self._failures))]

    def _changed(self, change: JobChange, after: State) -> None:
        job, before = change.job, change.before
        if before is None:
            return
        failure = self._failures.get(change.version)
        if failure is not None and not failure.job and before.state is JobState.RUNNING:
            self._stop(failure, change, before)
        elif failure is not None and before.uid in self._open:
            self._join(failure, before.uid)
        if job.uid in self._open:
            self._go_on(change, after)

    def _stop(self, failure: Failure, change: JobChange, before: Job) -> None:
        """The failure stops a gang: what it costs is counted from here on."""
        if change.kind is JobChangeKind.SPARE_LOST:
            return
        if change.kind is JobChangeKind.ROLE_RESTARTED:
            self._failures[failure.version] = replace(
                failure,
                job=before.name,
                uid=before.uid,
                outcome=Outcome.ROLE_RESTARTED,
                outcome_ns=change.time_ns,
                step_ns=change.time_ns,
            )
            return
        per_host = gpus_wanted(change.fabric, before.request.where)
        self._failures[failure.version] = replace(
            failure,
            job=before.name,
            uid=before.uid,
            gpus=before.part_gpus or len(before.hosts) * per_host,
            gpus_per_host=per_host,
            outcome=Outcome.OPEN,
            is_measured=before.observed is not None and before.observed.saved_ns is not None,
        )
        self._open[before.uid] = (failure.version, before.goodput.hosts)

    def _join(self, failure: Failure, uid: str) -> None:
        """Another host of the gang fails while it stands: one incident, and not two."""
        first = self._failures.get(self._open[uid][0])
        if first is not None and first.version != failure.version:
            hosts = tuple(dict.fromkeys((*first.hosts, *failure.hosts)))
            self._failures[first.version] = replace(first, hosts=hosts)
            del self._failures[failure.version]

    def _go_on(self, change: JobChange, after: State) -> None:
        job = change.job
        version, account = self._open[job.uid]
        failure = self._failures.get(version)
        if failure is None:
            del self._open[job.uid]
            return
        failure = replace(failure, lost=_losses(job.goodput.hosts - account, failure.lost.restart))
        outcome = _OUTCOMES.get(change.kind)
        if outcome is not None and failure.outcome is Outcome.OPEN:
            detail = _detail(change)
            failure = replace(
                failure, outcome=outcome, outcome_detail=detail, outcome_ns=change.time_ns
            )
        begun = job.state is JobState.RUNNING and change.version != version
        if begun and change.kind is JobChangeKind.LAUNCHED:
            restart_ns = change.time_ns - job.present.start_ns
            failure = _with_restart(failure, job, change.time_ns, restart_ns)
        elif begun and failure.step_ns is None and job.spec.run is None:
            costs = job.costs(after.tenants.preemption.costs)
            restart_ns = costs.overhead_ns(job.attempt)
            at_ns = change.time_ns + restart_ns
            failure = _with_restart(failure, job, at_ns, restart_ns)
        self._failures[version] = failure
        if failure.step_ns is not None or job.state not in (
            JobState.RUNNING,
            JobState.INTERRUPTED,
            JobState.QUEUED,
        ):
            del self._open[job.uid]

    def failures(self, state: State, now_ns: int) -> list[Failure]:
        """Return the failures, newest first. Where a gang still stands, its cost is counted up to
        now."""
        failures, costs = dict(self._failures), state.tenants.preemption.costs
        for job in state.jobs.values():
            version, account = self._open.get(job.uid, (0, NOTHING))
            if version in failures and job.state is JobState.INTERRUPTED:
                lost = _losses(shown(job, now_ns, costs).hosts - account, 0)
                failures[version] = replace(failures[version], lost=lost)
        return list(failures.values())[::-1]

    def latest(self, state: State, now_ns: int) -> list[Sample]:
        """Return the samples, with one of the span that is not over."""
        return [*self.samples, self._sampled(state, now_ns)] if self._end_ns else []

    def _sampled(self, state: State, at_ns: int) -> Sample:
        spent = _account(state, at_ns) - self._before
        return Sample(
            at_ns,
            len(state.index.queue) + len(state.index.deferred),
            state.index.held.bit_count(),
            state.index.out_of_service.bit_count(),
            self._fallen,
            max(0, spent.productive),
            max(0, spent.holding),
        )

    def _sample(self, state: State) -> None:
        self.samples.append(self._sampled(state, self._end_ns))
        self._before = _account(state, self._end_ns)
        self._fallen = 0
        if len(self.samples) > MOST_SAMPLES:
            self._span_ns *= 2
            self.samples = [
                _merged(self.samples[i : i + 2]) for i in range(0, len(self.samples), 2)
            ]


def _account(state: State, at_ns: int) -> Parts:
    """Return the host time of all jobs until then, by what it went to."""
    costs = state.tenants.preemption.costs
    return sum((shown(job, at_ns, costs).hosts for job in state.jobs.values()), state.spent)


def _losses(spent: Parts, restart: int) -> Parts:
    """Return what of the time that has passed since a failure is lost by it."""
    return Parts(
        rework=spent.rework,
        detection=spent.detection,
        rescheduling=spent.rescheduling,
        restart=restart,
    )


def _merged(pair: Sequence[Sample]) -> Sample:
    return replace(
        pair[-1],
        failures=sum(each.failures for each in pair),
        productive=sum(each.productive for each in pair),
        holding=sum(each.holding for each in pair),
    )


def _with_restart(failure: Failure, job: Job, at_ns: int, restart_ns: int) -> Failure:
    """Return the failure with what its restart cost: the gang makes steps again from `at_ns` on."""
    restart = host_time(Parts(restart=restart_ns), job, len(job.hosts)).restart
    return replace(failure, step_ns=at_ns, lost=replace(failure.lost, restart=restart))


def _detail(change: JobChange) -> str:
    before, job, names = change.before, change.job, change.fabric.hosts
    if change.kind is JobChangeKind.SWAPPED and before is not None:
        pairs = zip(before.hosts, job.hosts, strict=True)
        return ", ".join(f"{names[old]} by {names[new]}" for old, new in pairs if old != new)
    if change.kind is JobChangeKind.RESIZED:
        return f"{len(job.hosts):,} hosts go on"
    return job.reason
