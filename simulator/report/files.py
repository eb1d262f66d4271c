"""A replay on disk: totals.json, jobs.csv, events.jsonl and a summary for people."""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from scheduler.core.job import SECOND_NS
from scheduler.problems import InputError, Problem
from simulator.metrics import JobRow
from simulator.report.text import markdown

JOB_COLUMNS = (
    "job",
    "submit_s",
    "start_s",
    "end_s",
    "wait_s",
    "run_s",
    "hosts",
    "host_s",
    "attempts",
    "bounded_slowdown",
    "outcome",
)


class Report:
    """Files that grow while the replay runs; a context manager that closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.events = self._open("events.jsonl")
            self._jobs = csv.writer(self._open("jobs.csv"), lineterminator="\n")
        except OSError as error:
            self._stack.close()
            raise InputError(Problem("--report", f"cannot be written: {error}")) from None
        self._jobs.writerow(JOB_COLUMNS)

    def _open(self, name: str) -> TextIO:
        path = self._folder / name
        return self._stack.enter_context(path.open("w", encoding="utf-8", newline=""))

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
        """One line of jobs.csv."""
        start_ns, wait_ns = row.start_ns, row.wait_ns
        self._jobs.writerow(
            [
                row.name,
                row.submit_ns / SECOND_NS,
                "" if start_ns is None else start_ns / SECOND_NS,
                row.end_ns / SECOND_NS,
                "" if wait_ns is None else wait_ns / SECOND_NS,
                row.run_ns / SECOND_NS,
                row.hosts,
                row.host_ns / SECOND_NS,
                row.attempts,
                f"{row.slowdown:.6g}",
                row.outcome.value,
            ]
        )

    def finish(self, totals: dict[str, Any]) -> None:
        """Write the totals and the summary."""
        self._open("totals.json").write(json.dumps(totals, indent=2) + "\n")
        self._open("summary.md").write(markdown(totals))
