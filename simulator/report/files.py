"""A replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from scheduler.core.model.events import Event
from scheduler.files.errors import unwritable
from simulator.metrics import JobRow
from simulator.report.tables import (
    EVENTS,
    JOBS,
    Columns,
    CsvTable,
    event_row,
    job_row,
    write_parquet,
)
from simulator.report.text import markdown

JOB_COLUMNS = tuple(name for name, _ in JOBS)


class Growing:
    """Files of a report that grow while a replay runs, until they are closed.

    events.jsonl, the log itself; events.csv, jobs.csv.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._version = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.events = self._open("events.jsonl")
            self._job_table = self._table("jobs", JOBS)
            self._event_table = self._table("events", EVENTS)
        except OSError as error:
            self._stack.close()
            raise unwritable(folder, "--report", error) from None

    def _open(self, name: str) -> TextIO:
        path = self._folder / name
        return self._stack.enter_context(path.open("w", encoding="utf-8", newline=""))

    def _table(self, name: str, columns: Columns) -> CsvTable:
        return CsvTable(self._open(f"{name}.csv"), columns)

    def close(self) -> None:
        """Nothing more is written."""
        self._stack.close()

    def job(self, row: JobRow) -> None:
        """One line of the jobs table."""
        self._job_table.add(job_row(row))

    def event(self, event: Event) -> None:
        """One line of the events table."""
        self._version += 1
        self._event_table.add(event_row(self._version, event))


@dataclass(frozen=True, slots=True)
class Report:
    """A folder for people and notebooks: also totals.json, story.json and summary.md.

    `has_pages`: index.html and its figures as PNG and SVG as well. `has_parquet`: the two
    tables as Parquet too.
    """

    folder: Path
    has_pages: bool = True
    has_parquet: bool = False

    def finish(self, totals: Mapping[str, Any], story: Mapping[str, Any]) -> None:
        """Write what is known at the end only, once nothing grows any more."""
        self._write("totals.json", json.dumps(totals, indent=2) + "\n")
        self._write("story.json", json.dumps(story) + "\n")
        self._write("summary.md", markdown(dict(totals)))
        if self.has_parquet:
            for name, columns in (("jobs", JOBS), ("events", EVENTS)):
                write_parquet(self.folder / f"{name}.csv", columns)
        if self.has_pages:
            from simulator.pages import write_run

            write_run(self.folder, totals, story)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8", newline="")
