"""What is kept of a replay while it runs, from one pass over its log."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TextIO

from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from scheduler.eventlog.codec import encode
from scheduler.files.errors import unwritable
from simulator.collectors.invariants import InvariantChecker
from simulator.collectors.metrics import JobRow, Metrics
from simulator.collectors.report_data import ReportData
from simulator.replay import Replay


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / SECOND_NS


# The columns of jobs.csv, empty where a value is not known. Times are on the clock of the trace.
JOBS: dict[str, Callable[[JobRow], Any]] = {
    "job": lambda row: row.name,
    "submit_s": lambda row: _seconds(row.submit_ns),
    "start_s": lambda row: _seconds(row.start_ns),
    "end_s": lambda row: _seconds(row.end_ns),
    "wait_s": lambda row: _seconds(row.wait_ns),
    "run_s": lambda row: _seconds(row.run_ns),
    "gpus": lambda row: row.gpus,
    "hosts": lambda row: row.hosts,
    "host_s": lambda row: _seconds(row.host_ns),
    "productive_host_s": lambda row: _seconds(row.host_time.productive),
    "attempts": lambda row: row.attempts,
    "bounded_slowdown": lambda row: float(f"{row.slowdown:.6g}"),
    "outcome": lambda row: row.outcome.value,
    "tenant": lambda row: row.tenant,
    "user": lambda row: row.user,
}


class EventLogWriter:
    """Keeps the digest of a log's events, and writes them when it has a `file`.

    Two runs with the same digest took the same decisions, to the byte: the digest is the SHA-256 of
    events.jsonl.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._version = 0
        self._sha256 = hashlib.sha256()

    def feed(self, event: Event) -> None:
        self._version += 1
        kind, body = encode(event)
        line = f'{{"version":{self._version},"type":"{kind}","event":{body}}}\n'
        self._sha256.update(line.encode())
        if self._file:
            self._file.write(line)

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()


class Recorder(AbstractContextManager["Recorder"]):
    """Everything that reads the log of a replay, in one pass: totals, the checks of what must add
    up, the log and the rows of ended jobs as files, and the data of the report. `folder`: where
    files are written, None for none; `has_report_data`: whether to collect what pages show. A
    context manager that closes the files. Raises: InputError on a folder in which no file can be
    made."""

    def __init__(
        self, fabric: Fabric, folder: Path | None = None, has_report_data: bool = False
    ) -> None:
        self._files = ExitStack()
        self._jobs = None
        events = None
        if folder:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                events = self._open(folder / "events.jsonl")
                self._jobs = csv.writer(self._open(folder / "jobs.csv"), lineterminator="\n")
                self._jobs.writerow(JOBS)
            except OSError as error:
                self._files.close()
                raise unwritable(folder, "--report", error) from None
        self.log = EventLogWriter(events)
        self.metrics = Metrics(self._ended)
        self.invariants = InvariantChecker()
        self._effects = EffectReader()
        self._report_data = ReportData(fabric) if has_report_data else None

    def _open(self, path: Path) -> TextIO:
        return self._files.enter_context(path.open("w", encoding="utf-8", newline=""))

    def follow(self, replay: Replay) -> None:
        """Read the effects of the log with this replay, and what it knows beyond its log."""
        self._effects = replay.effects
        self.metrics.follow(replay)

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def feed(self, event: Event, state: State) -> None:
        """Take one event. `state`: right after it. Raises: InvariantViolated."""
        self.metrics.feed(event, state)
        self.invariants.feed(event, state)
        self.log.feed(event)
        if self._report_data:
            self._report_data.feed(event, self._effects.read(event, state), state)

    def _ended(self, row: JobRow) -> None:
        """Take one job that is over; the event that ended it comes next."""
        if self._jobs:
            self._jobs.writerow([column(row) for column in JOBS.values()])
        if self._report_data:
            self._report_data.ended(row)

    def report_data(self) -> dict[str, Any]:
        """Return the data of report pages, see `ReportData.data`; empty without a page."""
        return self._report_data.data(self.metrics.settled()) if self._report_data else {}
