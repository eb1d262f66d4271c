"""Jobs and events as tables for notebooks: CSV always, Parquet where pyarrow is there.

Both have the same columns. Times are seconds on the clock of the trace.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
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
from scheduler.files.errors import InputError, Problem
from simulator.collectors.metrics import JobRow

Cell = str | int | float | None
Columns = tuple[tuple[str, type], ...]

JOBS: Columns = (
    ("job", str),
    ("submit_s", float),
    ("start_s", float),
    ("end_s", float),
    ("wait_s", float),
    ("run_s", float),
    ("hosts", int),
    ("host_s", float),
    ("productive_host_s", float),
    ("attempts", int),
    ("bounded_slowdown", float),
    ("outcome", str),
)
EVENTS: Columns = (
    ("version", int),
    ("time_s", float),
    ("type", str),
    ("job", str),
    ("attempt", int),
    ("hosts", int),
    ("spares", int),
    ("cut_bytes", int),
    ("bound_bytes", int),
    ("host", str),
    ("move", str),
    ("reason", str),
)
BATCH = 20_000  # rows of a row group


class CsvTable:
    """Empty cells stand for what is not known."""

    def __init__(self, file: TextIO, columns: Columns) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow([name for name, _ in columns])

    def add(self, row: Sequence[Cell]) -> None:
        self._writer.writerow(row)


def write_parquet(path: Path, columns: Columns) -> None:
    """The CSV table at `path` as Parquet beside it, in row groups of BATCH rows, so that
    memory does not grow with the file."""
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns])
    with (
        path.open(encoding="utf-8", newline="") as file,
        parquet.ParquetWriter(path.with_suffix(".parquet"), schema) as writer,
    ):
        rows = islice(csv.reader(file), 1, None)
        while batch := list(islice(rows, BATCH)):
            cells = [
                [kind(cell) if cell else None for cell in column]
                for (_, kind), column in zip(columns, zip(*batch, strict=True), strict=True)
            ]
            writer.write_table(pyarrow.table(cells, schema=schema))


def need_parquet() -> None:
    """Raises: InputError where nothing can write Parquet."""
    if importlib.util.find_spec("pyarrow") is None:
        message = "needs pyarrow, which is not installed: pip install 'muster-scheduler[notebooks]'"
        raise InputError(Problem("--parquet", message))


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
    return [row.get(name) for name, _ in EVENTS]


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
