"""Start times of a replay against an independent reference of the textbook policies."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from scheduler.core import Policy
from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob
from tests import backfill_reference as reference

PUBLISHED = {
    Policy.FIFO: reference.fifo,
    Policy.EASY: reference.easy,
    Policy.CONSERVATIVE: reference.conservative,
}


def differences(
    trace: Path, policy: Policy, processors: int, limit: int | None, report: Path
) -> Iterator[str]:
    """One sentence when any job of jobs.csv starts at another time than published."""
    if policy not in PUBLISHED:
        return
    jobs = [_job(job) for job in TraceFile(trace, find_format("swf"), _skip)][:limit]
    jobs = [job for job in jobs if job.size <= processors]
    expected = reference.schedule(jobs, processors, PUBLISHED[policy])
    starts = _starts(report / "jobs.csv")
    wrong = [name for name, start in expected.items() if starts.get(name) != start]
    if wrong or len(starts) != len(expected):
        first = wrong[0] if wrong else "none"
        yield f"{len(wrong)} of {len(expected)} jobs start at another time, first job {first}"


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
