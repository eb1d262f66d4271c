"""Jobs and events as CSV tables for notebooks.

Times are seconds on the clock of the trace.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import TextIO, assert_never

from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
    LinkChange,
    WindowChange,
)
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from simulator.collectors.metrics import JobRow

Cell = str | int | float | None
Columns = tuple[str, ...]

JOBS: Columns = (
    "job",
    "submit_s",
    "start_s",
    "end_s",
    "wait_s",
    "run_s",
    "hosts",
    "host_s",
    "productive_host_s",
    "attempts",
    "bounded_slowdown",
    "outcome",
)
EVENTS: Columns = (
    "version",
    "time_s",
    "type",
    "job",
    "attempt",
    "hosts",
    "spares",
    "cut_bytes",
    "bound_bytes",
    "host",
    "move",
    "reason",
)


class CsvTable:
    """Empty cells stand for what is not known."""

    def __init__(self, file: TextIO, columns: Columns) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(columns)

    def add(self, row: Sequence[Cell]) -> None:
        self._writer.writerow(row)


def job_row(row: JobRow) -> list[Cell]:
    """An ended job in the columns of JOBS."""
    start_ns, wait_ns = row.start_ns, row.wait_ns
    return [
        row.name,
        row.submit_ns / SECOND_NS,
        None if start_ns is None else start_ns / SECOND_NS,
        row.end_ns / SECOND_NS,
        None if wait_ns is None else wait_ns / SECOND_NS,
        row.run_ns / SECOND_NS,
        row.hosts,
        row.host_ns / SECOND_NS,
        row.host_time.productive / SECOND_NS,
        row.attempts,
        float(f"{row.slowdown:.6g}"),
        row.outcome.value,
    ]


def event_row(version: int, event: Event, done: Iterable[EventEffect]) -> list[Cell]:
    """An event in the columns of EVENTS, from what it did (`done`); what its kind does not have
    is left empty."""
    row: dict[str, Cell] = {"version": version, "time_s": event.time_ns / SECOND_NS}
    row |= {"type": type(event).__name__, "reason": getattr(event, "reason", "") or None}
    for effect in done:
        match effect:
            case JobChange():
                row |= _of_job(effect)
            case HostTransition():
                row |= {"host": effect.host, "move": effect.move.value}
            case HostReport():
                row["host"] = effect.host
            case HostsChange() | WindowChange() | LinkChange():
                pass
            case _:
                assert_never(effect)
    return [row.get(name) for name in EVENTS]


def _of_job(change: JobChange) -> dict[str, Cell]:
    job, before = change.job, change.before
    cut = job.present.cuts[0].bytes_per_step if job.present.cuts else 0  # over the outermost tier
    match change.kind:
        case JobChangeKind.STARTED | JobChangeKind.RESIZED:
            return {
                "job": job.name,
                "attempt": job.attempt,
                "hosts": len(job.hosts),
                "spares": len(job.spares),
                "cut_bytes": cut,
                "bound_bytes": job.present.lower_bound,
            }
        case JobChangeKind.SWAPPED:
            assert before is not None
            pairs = zip(before.hosts, job.hosts, strict=True)
            names = [change.fabric.names(pair) for pair in pairs if pair[0] != pair[1]]
            swaps = ", ".join(f"{left} > {joined}" for left, joined in names)
            return {"job": job.name, "attempt": job.attempt, "cut_bytes": cut, "reason": swaps}
        case JobChangeKind.ENDED:
            return {"job": job.name, "move": job.state.value}
        case JobChangeKind.SUBMITTED | JobChangeKind.UPDATED | JobChangeKind.REQUEUED:
            return {"job": job.name}
        case JobChangeKind.SPARES_CHANGED | JobChangeKind.LAUNCHED | JobChangeKind.SAVED:
            return {"job": job.name}
        case JobChangeKind.HUNG:
            return {"job": job.name}
        case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
            return {"job": job.name}
        case JobChangeKind.INTERRUPTED | JobChangeKind.SPARE_LOST:
            return {}  # the row is that of the host
        case _:
            assert_never(change.kind)
