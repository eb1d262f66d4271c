"""Jobs like those of the log: when they come, what they ask for, how long they run.

Whole jobs are drawn, so that tenant, shape, time limit, run time and end stay together. A job that
still runs or waits says only that it runs longer than it has so far: what is drawn for it is
another job of its kind that has run longer (Efron's form of the Kaplan-Meier estimate: its
weight goes to those on the right of it). The same holds for the jobs that are live when the twin
begins. Arrivals are a Poisson process with a rate for each hour of the week, each hour counted as
if it had been seen once more at the mean rate; where less than a week was seen all hours are alike.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from random import Random

from muster.structs import replace, struct
from scheduler.core import Job, JobState, State
from scheduler.core.model.job import JobSpec
from scheduler.core.model.job_account import shown
from scheduler.core.names import is_name
from scheduler.core.policies.affinity import ANYBODY
from scheduler.core.wording import jobs_text
from simulator.report.text import duration
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from simulator.twin.fork import ClusterFork

HOUR_NS = 3600 * SECOND_NS
WEEK_H = 168
LEAST_NS = HOUR_NS  # of a log: less says nothing of how often jobs come
_EPOCH_H = 72  # the epoch is a Thursday
_ENOUGH = 5  # jobs of a kind that have run longer; with fewer, other kinds are asked too
_run_ns = attrgetter("run_ns")
_LARGEST = (1, 8, 64, 512)  # hosts of a kind at most
_OUTCOMES = {
    JobState.FAILED: TraceOutcome.FAILED,
    JobState.CANCELLED: TraceOutcome.CANCELLED,
}


@struct(frozen=True, slots=True)
class JobSample:
    """A job of the log. `work_host_ns`: productive host time until its end, or so far where it
    `is_live`; `hosts`: of the whole gang. `limit_ns`: how long it may run, as it says or as is
    assumed."""

    spec: JobSpec
    tenant: str
    hosts: int
    work_host_ns: int
    is_live: bool
    outcome: TraceOutcome
    limit_ns: int

    @property
    def run_ns(self) -> int:
        return self.work_host_ns // self.hosts

    @property
    def size(self) -> int:
        """The number of the job's size class."""
        return bisect_left(_LARGEST, self.hosts)


@struct(frozen=True)
class Workload:
    """The jobs that arrivals are drawn from. `samples`: all jobs that ran or may; `arrived`: the
    places of jobs that came in the time that was seen. `rates`: jobs an hour, by hour of the week
    from Monday 0:00 UTC. `seen_ns`: for how long. `unstarted`: jobs left out, for they ended before
    they ran; `dropped`: jobs that ended so long ago that the log no longer has them."""

    samples: tuple[JobSample, ...]
    arrived: tuple[int, ...]
    rates: tuple[float, ...]
    seen_ns: int
    unstarted: int
    dropped: int

    def sentences(self) -> list[str]:
        """Say what the workload was fitted from."""
        jobs, ended = len(self.arrived), sum(not sample.is_live for sample in self.samples)
        if not jobs:
            return ["jobs: nobody comes", *self._runs(ended)]
        hours = "a rate for each hour of the week"
        if self.seen_ns < WEEK_H * HOUR_NS:
            hours = "one rate for all hours, for less than a week was seen"
        text = (
            f"jobs: {jobs_text(jobs)} over {duration(self.seen_ns / SECOND_NS)}"
            f" ({sum(self.rates) / WEEK_H * 24:,.1f} a day), {hours}"
        )
        if self.unstarted:
            text += f"; {jobs_text(self.unstarted)} left out that ended before they ran"
        if self.dropped:
            text += f"; {jobs_text(self.dropped)} that ended long ago are not kept any more"
        return [text, *self._runs(ended)]

    def _runs(self, ended: int) -> list[str]:
        runs = f"run times: {jobs_text(ended)} that ended"
        live = len(self.samples) - ended
        if live:
            runs += f", and {live:,} that did not, which run longer than they have so far"
        if not ended:
            runs += "; time limits stand for the rest"
            if guessed := [
                job for job in self.samples if job.is_live and not job.spec.time_limit_s
            ]:
                runs += f", {duration(guessed[0].limit_ns / SECOND_NS)} where none is stated"
        return [runs]

    def expected(self, span_ns: int) -> float:
        """Return how many jobs arrive in a time span of that length, on average over the week."""
        return sum(self.rates) / WEEK_H * span_ns / HOUR_NS

    @property
    def without_arrivals(self) -> Workload:
        """Return the workload without arrivals; run times stay."""
        return replace(self, arrived=(), rates=(0.0,) * WEEK_H)

    def arrivals(self, seed: int, start_ns: int, end_ns: int, gpus: int) -> Iterator[TraceJob]:
        """Draw the jobs that arrive between two times, in order; the same for the same seed.
        `gpus`: of a host."""
        times, draws = Random(f"{seed}/twin/arrivals"), Random(f"{seed}/twin/jobs")
        for number, at_ns in enumerate(self._times(times, start_ns, end_ns), start=1):
            sample = self.samples[draws.choice(self.arrived)]
            run = Run.of(self, sample, sample.work_host_ns, draws) if sample.is_live else None
            work_host_ns = run.work_host_ns if run else sample.work_host_ns
            outcome = run.outcome if run else sample.outcome
            hosts = sample.spec.request.hosts_needed(gpus)
            yield TraceJob(
                id=str(number),
                submit_ns=at_ns,
                run_ns=max(1, work_host_ns // hosts),
                line=number,
                spec=_renamed(sample.spec, number),
                time_limit_ns=None
                if sample.spec.time_limit_s is None
                else sample.spec.time_limit_s * SECOND_NS,
                outcome=outcome,
            )

    def _times(self, random: Random, start_ns: int, end_ns: int) -> Iterator[int]:
        """A Poisson process whose rate changes from hour to hour."""
        if not self.arrived:
            return
        at_ns, due = start_ns, random.expovariate(1.0)
        while at_ns < end_ns:
            hour_end_ns = (at_ns // HOUR_NS + 1) * HOUR_NS
            rate = self.rates[hour_of_week(at_ns)]
            expected = rate * (hour_end_ns - at_ns) / HOUR_NS
            if expected < due:
                due -= expected
                at_ns = hour_end_ns
                continue
            at_ns += round(due / rate * HOUR_NS)
            due = random.expovariate(1.0)
            if at_ns < end_ns:
                yield at_ns

    def longer(self, like: JobSample, than_host_ns: int) -> Sequence[JobSample]:
        """Return the jobs that have run longer than so much host time, of the kind of the sample
        `like` if there are enough."""
        than_ns = than_host_ns // like.hosts
        found: Sequence[JobSample] = ()
        for kind in ((like.tenant, like.size), (like.size,), ()):
            known = self._by_run.get(kind, [])
            found = known[bisect_right(known, than_ns, key=_run_ns) :]
            if len(found) >= _ENOUGH:
                return found
        return found

    @cached_property
    def _by_run(self) -> dict[tuple[str | int, ...], list[JobSample]]:
        """The shortest first: of a tenant and size, of a size, and all."""
        found: dict[tuple[str | int, ...], list[JobSample]] = defaultdict(list)
        for sample in sorted(self.samples, key=_run_ns):
            for kind in ((sample.tenant, sample.size), (sample.size,), ()):
                found[kind].append(sample)
        return dict(found)


@struct(frozen=True, slots=True)
class Run:
    """How a live job goes on in a run. `work_host_ns`: its whole work, with what it has done."""

    work_host_ns: int
    outcome: TraceOutcome

    @staticmethod
    def of(workload: Workload, job: JobSample, done_host_ns: int, random: Random) -> Run:
        """Draw how a job goes on that has done so much; where no job of the log has run longer, its
        time limit stands, or as long again."""
        while others := workload.longer(job, done_host_ns):
            other = random.choice(others)
            if not other.is_live:
                return Run(other.run_ns * job.hosts, other.outcome)
            done_host_ns = other.run_ns * job.hosts
        least = done_host_ns + job.hosts * SECOND_NS
        limit_host_ns = job.limit_ns * job.hosts
        work = limit_host_ns if limit_host_ns > least else max(2 * done_host_ns, least)
        return Run(work, TraceOutcome.COMPLETED)


def fit_workload(fork: ClusterFork) -> Workload:
    """Fit the workload to the jobs of the log. Cost: O(jobs). Jobs that came before the oldest that
    is kept ended count for run times alone, for of those some are missing."""
    state, now_ns = fork.state, fork.now_ns
    first_ns = state.faults.since_ns
    if fork.dropped and fork.ended:
        first_ns = max(first_ns, min(job.state_ns for job in fork.ended))
    jobs = [*fork.ended, *state.jobs.values()]
    samples, arrived, unstarted = list[JobSample](), list[int](), 0
    times = list[int]()
    for job in jobs:
        if job.attempt == 0 and job.state is not JobState.QUEUED:
            unstarted += 1
            continue
        if job.submit_ns >= first_ns:
            arrived.append(len(samples))
            times.append(job.submit_ns)
        samples.append(sample_of(job, fork))
    seen_ns = max(1, now_ns - first_ns)
    rates = hourly_rates(times, first_ns, now_ns)
    return Workload(tuple(samples), tuple(arrived), rates, seen_ns, unstarted, fork.dropped)


def sample_of(job: Job, fork: ClusterFork) -> JobSample:
    """Return the sample that the log has of a job."""
    costs = fork.state.tenants.preemption.costs
    account = shown(job, max(fork.now_ns, job.goodput.counted_ns), costs)
    is_live = job.state not in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)
    # Of a part of a host, its own time says how long it ran: that of hosts is its share of one.
    spent = account.time if job.part_gpus else account.hosts
    work_host_ns, whole = spent.productive, job.at(job.sizes[-1]) if job.sizes else job
    if job.state in _OUTCOMES:  # what came after the last checkpoint was work as well
        rework, interval_s = spent.rework, job.costs(costs).checkpoint_s
        most = interval_s * SECOND_NS * whole.gang_hosts if job.attempt > 1 else rework
        work_host_ns += min(rework, most)
    limit_s = job.spec.time_limit_s or fork.options.assumed_limit_s
    return JobSample(
        replace(job.spec, run=None),
        job.tenant,
        whole.gang_hosts,
        work_host_ns,
        is_live,
        _OUTCOMES.get(job.state, TraceOutcome.COMPLETED),
        limit_s * SECOND_NS,
    )


def live_runs(workload: Workload, state: State, fork: ClusterFork, seed: int) -> dict[str, Run]:
    """Draw how each live job goes on; the same for the same seed, whatever else is changed."""
    runs = {}
    for name, job in state.jobs.items():
        sample = sample_of(job, fork)
        random = Random(f"{seed}/twin/live/{job.uid}")
        runs[name] = Run.of(workload, sample, sample.work_host_ns, random)
    return runs


def hour_of_week(time_ns: int) -> int:
    """Return the hour of the week, from Monday 0:00 UTC."""
    return (time_ns // HOUR_NS + _EPOCH_H) % WEEK_H


def hourly_rates(times: Sequence[int], first_ns: int, now_ns: int) -> tuple[float, ...]:
    """Return the jobs that arrive per hour, by hour of the week."""
    seen_h = max(now_ns - first_ns, 1) / HOUR_NS
    mean = len(times) / seen_h
    if seen_h < WEEK_H or not times:
        return (mean,) * WEEK_H
    exposure: dict[int, float] = defaultdict(float)
    at_ns = first_ns
    while at_ns < now_ns:
        until_ns = min((at_ns // HOUR_NS + 1) * HOUR_NS, now_ns)
        exposure[hour_of_week(at_ns)] += (until_ns - at_ns) / HOUR_NS
        at_ns = until_ns
    counts = Counter(map(hour_of_week, times))
    rates = [(counts[hour] + mean) / (exposure[hour] + 1) for hour in range(WEEK_H)]
    expected = sum(rate * exposure[hour] for hour, rate in enumerate(rates))
    return tuple(rate * len(times) / expected for rate in rates)


def _renamed(spec: JobSpec, number: int) -> JobSpec:
    """A job of its own: what names other jobs, or a moment, does not hold for it."""
    tenant, slash, short = spec.name.rpartition("/")
    name = f"{short[:100]}.twin-{number}"
    return replace(
        spec,
        name=f"{tenant}{slash}{name if is_name(name) else f'twin-{number}'}",
        affinity=replace(ANYBODY, exclusive=spec.affinity.exclusive),
        dependencies=(),
        cancel_unmet=False,
        hold=False,
        begin_ns=0,
        run=None,
    )
