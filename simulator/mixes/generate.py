"""Jobs drawn from a mix, arriving by the hours of a week, as many as fill so much of a
cluster. Synthetic: they are no log, and their names say so."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import exp, log
from random import Random

from muster.structs import struct
from simulator.mixes.fit import NORMAL, JobMix, SizeClass
from simulator.mixes.published import BY_DAY, BY_HOUR
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome

HOUR_S = 3600
WEEK_S = 168 * HOUR_S
WEIGHTS = [day * hour for day in BY_DAY for hour in BY_HOUR]
ENOUGH = 5  # runs, by GPU time, for which submits go on
SO_FAR = [0, *accumulate(WEIGHTS)]  # up to the end of each hour of the week


@struct(frozen=True, slots=True)
class MixRequest:
    """A request for jobs: a mix on a cluster at a load. `load`: host time of all jobs over that of
    the cluster until the last submit. A job larger than the cluster is cut to it."""

    mix: JobMix
    jobs: int
    hosts: int
    gpus_per_host: int
    load: float
    seed: int = 0

    def hosts_for(self, gpus: int) -> int:
        """Return how many whole hosts a job of so many GPUs holds."""
        return min(self.hosts, -(-gpus // self.gpus_per_host))


def generate(wanted: MixRequest) -> Iterator[TraceJob]:
    """Yield jobs in submit order. Memory: one job. All jobs are drawn twice: first to sum up their
    work, from which the time span follows, and then to be yielded."""
    work_s = sum(wanted.hosts_for(job.gpus) * run_s for job, run_s, _ in _draws(wanted))
    span_s = work_s / (wanted.hosts * wanted.load)
    arrivals = _arrivals(wanted, span_s)
    for line, (job, run_s, outcome) in enumerate(_draws(wanted), start=1):
        yield TraceJob(
            id=f"{wanted.mix.name}-{line}",
            submit_ns=round(next(arrivals)) * SECOND_NS,
            run_ns=run_s * SECOND_NS,
            line=line,
            gpus=min(job.gpus, wanted.hosts * wanted.gpus_per_host),
            outcome=outcome,
        )


def _draws(wanted: MixRequest) -> Iterator[tuple[SizeClass, int, TraceOutcome]]:
    """(class, run time in whole seconds, end) of each job."""
    mix = wanted.mix
    random = Random(f"{wanted.seed}/jobs/{mix.name}")
    shares = list(accumulate(job.share for job in mix.classes))
    most = [NORMAL.cdf((log(mix.max_run_s) - job.mu) / mix.sigma) for job in mix.classes]
    for _ in range(wanted.jobs):
        i = min(bisect_right(shares, random.random() * shares[-1]), len(shares) - 1)
        job = mix.classes[i]
        place = NORMAL.inv_cdf(min(1 - 1e-12, max(1e-12, random.random() * most[i])))
        run_s = max(1, round(exp(job.mu + mix.sigma * place)))
        yield job, run_s, _end(job, random.random())


def _end(job: SizeClass, chance: float) -> TraceOutcome:
    if chance < job.ends.completed:
        return TraceOutcome.COMPLETED
    is_cancelled = chance < job.ends.completed + job.ends.cancelled
    return TraceOutcome.CANCELLED if is_cancelled else TraceOutcome.FAILED


def _arrivals(wanted: MixRequest, span_s: float) -> Iterator[float]:
    """Submit times in order: a Poisson process that follows the hours of the week, given
    how many there are in all."""
    gaps = _gaps(wanted)
    total = sum(gaps())
    last = weight_until(span_s)
    so_far = 0.0
    for gap in gaps():
        so_far += gap
        yield time_of(so_far / total * last)


def _gaps(wanted: MixRequest) -> Callable[[], Iterator[float]]:
    """Gaps of a plain Poisson process, one more than there are jobs; the same each time."""

    def draw() -> Iterator[float]:
        random = Random(f"{wanted.seed}/arrivals/{wanted.mix.name}")
        return (random.expovariate(1.0) for _ in range(wanted.jobs + 1))

    return draw


def weight_until(time_s: float) -> float:
    """Return how many submits, in units of WEIGHTS, come until then, from Monday at midnight."""
    weeks, rest = divmod(time_s, WEEK_S)
    hour = int(rest // HOUR_S)
    return weeks * SO_FAR[-1] + SO_FAR[hour] + WEIGHTS[hour] * (rest % HOUR_S) / HOUR_S


def time_of(weight: float) -> float:
    """Return the time at which `weight_until` reaches a value."""
    weeks, rest = divmod(weight, SO_FAR[-1])
    hour = min(bisect_right(SO_FAR, rest), len(WEIGHTS)) - 1
    return weeks * WEEK_S + (hour + (rest - SO_FAR[hour]) / WEIGHTS[hour]) * HOUR_S


class TraceExtent:
    """Compares how long submits go on with how long jobs run, counted as jobs pass by.

    A cluster that begins empty fills over about one run; runs count by their GPU time, for it is
    the long and large ones that fill it.
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.span_s = 0.0
        self._gpu_s = 0.0
        self._gpu_s2 = 0.0

    def watch(self, jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
        for job in jobs:
            run_s = job.run_ns / SECOND_NS
            self.jobs += 1
            self.span_s = job.submit_ns / SECOND_NS
            self._gpu_s += job.gpus * run_s
            self._gpu_s2 += job.gpus * run_s * run_s
            yield job

    @property
    def run_s(self) -> float:
        """Mean run time, weighted by GPU time."""
        return self._gpu_s2 / self._gpu_s if self._gpu_s else 0.0

    @property
    def is_enough(self) -> bool:
        """Whether the cluster reaches its load while jobs still arrive."""
        return self.span_s >= ENOUGH * self.run_s
