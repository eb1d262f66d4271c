"""Start times of a replay against an independent reference of the textbook policies."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from scripts import backfill_reference as reference
from scripts import conservative_reference
from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob
from tests.replays import swf

Starts = Callable[[list[reference.Job], int], dict[str, int]]
PUBLISHED: dict[str, Starts] = {
    "fifo": partial(reference.schedule, policy=reference.fifo),
    "easy": partial(reference.schedule, policy=reference.easy),
    "conservative": conservative_reference.schedule,
}


def stated_or_true(job: reference.Job, random: Random) -> int:
    """The stated run time, or the true one where the job outruns it."""
    return max(job.run, job.estimate)


def loose(job: reference.Job, random: Random) -> int:
    """Up to five times the run time, as where users state too much."""
    return round(job.run * random.uniform(1, 5))


Estimate = Callable[[reference.Job, Random], int]


def restated(trace: Path, processors: int, limit: int | None, estimate: Estimate) -> str:
    """The log in SWF with other stated run times."""
    random = Random(0)
    jobs = [replace(job, estimate=estimate(job, random)) for job in _jobs(trace, processors, limit)]
    return swf(jobs)


def differences(
    trace: Path, policy: str, processors: int, limit: int | None, report: Path
) -> Iterator[str]:
    """One sentence when any job of jobs.csv starts at another time than published."""
    if policy not in PUBLISHED:
        return
    expected = PUBLISHED[policy](_jobs(trace, processors, limit), processors)
    starts = _starts(report / "jobs.csv")
    wrong = [name for name, start in expected.items() if starts.get(name) != start]
    if wrong or len(starts) != len(expected):
        first = wrong[0] if wrong else "none"
        yield f"{len(wrong)} of {len(expected)} jobs start at another time, first job {first}"


def _jobs(trace: Path, processors: int, limit: int | None) -> list[reference.Job]:
    """Return the first records for which the machine has processors."""
    jobs = [_job(job) for job in TraceFile(trace, find_format("swf"), _skip)][:limit]
    return [job for job in jobs if job.size <= processors]


def _skip(path: Path, bad: BadRecord) -> None:
    """Bad records are counted by the replay itself."""


def _job(job: TraceJob) -> reference.Job:
    """As the simulator maps it: the limit is the run time where none is stated."""
    limit_ns = job.run_ns if job.time_limit_ns is None else job.time_limit_ns
    estimate = max(1, -(-limit_ns // SECOND_NS))
    submit, run = job.submit_ns // SECOND_NS, job.run_ns // SECOND_NS
    return reference.Job(job.id, submit, run, estimate, job.gpus)


def _starts(path: Path) -> dict[str, int]:
    with path.open(encoding="utf-8") as file:
        return {row["job"]: int(float(row["start_s"])) for row in csv.DictReader(file)}
