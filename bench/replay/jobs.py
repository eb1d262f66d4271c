"""The jobs that both simulators read: a log made plain, or a load for a large machine.

A plain log leaves nothing to interpretation: sizes in processors, no memory, a time limit for
everybody that no run exceeds, runs of a second at least, and no job that the machine cannot
hold. What is changed for it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob

SIZES = tuple(1 << n for n in range(12))  # 1 .. 2,048 hosts


@dataclass(frozen=True, slots=True)
class PlainJob:
    """A job of a log in seconds. `limit` is at least `run`."""

    number: int
    submit: int
    run: int
    size: int
    limit: int

    @property
    def line(self) -> str:
        """Write the job as a record of the Standard Workload Format."""
        fields = [self.number, self.submit, -1, self.run, self.size, -1, -1, self.size, self.limit]
        return " ".join(map(str, [*fields, -1, 1, 1, 1, -1, 1, -1, -1, -1]))


def of_log(path: Path, hosts: int, limit: int | None) -> tuple[list[PlainJob], Counter[str]]:
    """Read the jobs of an SWF log in order of submission, and count how many had to be changed."""
    jobs: list[PlainJob] = []
    changed: Counter[str] = Counter()
    for job in TraceFile(path, find_format("swf"), _count_unusable(changed)):
        if job.gpus > hosts:
            changed["larger than the machine"] += 1
            continue
        jobs.append(_plain(job, len(jobs) + 1, changed))
        if len(jobs) == limit:
            break
    return jobs, changed


def _count_unusable(changed: Counter[str]) -> Callable[[Path, BadRecord], None]:
    def count(path: Path, bad: BadRecord) -> None:
        changed["no usable record"] += 1

    return count


def _plain(job: TraceJob, number: int, changed: Counter[str]) -> PlainJob:
    run = max(1, job.run_ns // SECOND_NS)
    stated = run if job.time_limit_ns is None else -(-job.time_limit_ns // SECOND_NS)
    changed["no time limit: its run time"] += job.time_limit_ns is None
    changed["a run of 0 s: 1 s"] += job.run_ns < SECOND_NS
    changed["outran its time limit: as long as it ran"] += stated < run
    return PlainJob(number, job.submit_ns // SECOND_NS, run, job.gpus, max(run, stated))


def drawn(count: int, hosts: int, load: float, seed: int) -> list[PlainJob]:
    """Draw jobs: log-normal runs (median 50 min), sizes of powers of two, Poisson arrivals at
    `load`."""
    rng = Random(f"{seed}/against")
    sizes = [size for size in SIZES if size <= hosts]
    weights = [1 / (1 + n) for n in range(len(sizes))]
    runs = [max(1, min(7 * 86_400, round(rng.lognormvariate(8.0, 1.2)))) for _ in range(count)]
    held = rng.choices(sizes, weights, k=count)
    gap_s = sum(r * s for r, s in zip(runs, held, strict=True)) / (hosts * load) / count
    jobs, now = [], 0.0
    for number, (run, size) in enumerate(zip(runs, held, strict=True), start=1):
        now += rng.expovariate(1 / gap_s)
        limit = round(run * rng.uniform(1, 3))
        jobs.append(PlainJob(number, int(now), run, size, limit))
    return jobs


def write(jobs: Iterable[PlainJob], path: Path) -> None:
    path.write_text("".join(f"{job.line}\n" for job in jobs), encoding="utf-8")
