"""A replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from scheduler.core.events import Event
from scheduler.problems import InputError, Problem
from simulator.metrics import JobRow
from simulator.report.tables import (
    EVENTS,
    JOBS,
    Columns,
    CsvTable,
    ParquetTable,
    Table,
    event_row,
    job_row,
)
from simulator.report.text import markdown

JOB_COLUMNS = tuple(name for name, _ in JOBS)


class Report:
    """Files that grow while the replay runs; a context manager that closes them.

    Always: events.jsonl, the log itself; events.csv, jobs.csv, totals.json, story.json
    and summary.md. `has_pages`: index.html and its figures as PNG and SVG as well.
    `has_parquet`: the two tables as Parquet too.
    """

    def __init__(self, folder: Path, has_pages: bool = True, has_parquet: bool = False) -> None:
        self._folder = folder
        self._has_pages = has_pages
        self._has_parquet = has_parquet
        self._stack = ExitStack()
        self._version = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.events = self._open("events.jsonl")
            self._job_tables = self._tables("jobs", JOBS)
            self._event_tables = self._tables("events", EVENTS)
        except OSError as error:
            self._stack.close()
            raise InputError(Problem("--report", f"cannot be written: {error}")) from None

    def _open(self, name: str) -> TextIO:
        path = self._folder / name
        return self._stack.enter_context(path.open("w", encoding="utf-8", newline=""))

    def _tables(self, name: str, columns: Columns) -> list[Table]:
        tables: list[Table] = [CsvTable(self._open(f"{name}.csv"), columns)]
        if self._has_parquet:
            tables.append(ParquetTable(self._folder / f"{name}.parquet", columns))
            self._stack.callback(tables[-1].close)
        return tables

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def job(self, row: JobRow) -> None:
        """One line of the jobs table."""
        cells = job_row(row)
        for table in self._job_tables:
            table.add(cells)

    def event(self, event: Event) -> None:
        """One line of the events table."""
        self._version += 1
        cells = event_row(self._version, event)
        for table in self._event_tables:
            table.add(cells)

    def finish(self, totals: Mapping[str, Any], story: Mapping[str, Any]) -> None:
        """Write what is known at the end only."""
        self._open("totals.json").write(json.dumps(totals, indent=2) + "\n")
        self._open("story.json").write(json.dumps(story) + "\n")
        self._open("summary.md").write(markdown(dict(totals)))
        if self._has_pages:
            from simulator.pages import write_run

            write_run(self._folder, totals, story)
