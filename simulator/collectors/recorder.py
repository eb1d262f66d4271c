"""What is kept of a replay while it runs, from one pass over its log: `Collectors` feeds the
totals, the checks of what must add up, and the `Recorder`, which writes the log and its
tables and collects the data of the report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TextIO

from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.fold.effects import EventEffect
from scheduler.core.model.events import Event
from scheduler.eventlog.codec import encode
from scheduler.files.errors import unwritable
from simulator.collectors.invariants import InvariantChecker
from simulator.collectors.metrics import JobRow, Metrics
from simulator.collectors.report_data import ReportData
from simulator.collectors.tables import EVENTS, JOBS, Columns, CsvTable, event_row, job_row
from simulator.collectors.time_account import TimeAccount


class EventLogWriter:
    """Feed it events; it keeps their digest, and writes them when it has a `file`.

    Two runs with the same digest took the same decisions, to the byte: the digest is
    the SHA-256 of events.jsonl.
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


class ReportFiles:
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

    def event(self, event: Event, done: Sequence[EventEffect]) -> None:
        """One line of the events table."""
        self._version += 1
        self._event_table.add(event_row(self._version, event, done))


class Recorder(AbstractContextManager["Recorder"]):
    """Takes events and rows in order. `folder`: where files are written, None for none;
    `has_report_data`: whether to collect what pages show. A context manager that closes the
    files. Raises: InputError on a folder in which no file can be made."""

    def __init__(
        self, fabric: Fabric, folder: Path | None = None, has_report_data: bool = False
    ) -> None:
        self._files = ReportFiles(folder) if folder else None
        self.log = EventLogWriter(self._files.events if self._files else None)
        self._effects = EffectReader()
        self._report_data = ReportData(fabric) if has_report_data else None

    def use_effects(self, effects: EffectReader) -> None:
        """Read the log by a reader that others use as well."""
        self._effects = effects

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is written."""
        if self._files:
            self._files.close()

    def feed(self, event: Event, state: State) -> None:
        """One event. `state`: right after it."""
        self.log.feed(event)
        done = self._effects.read(event, state) if self._files or self._report_data else ()
        if self._files:
            self._files.event(event, done)
        if self._report_data:
            self._report_data.feed(event, done)

    def ended(self, row: JobRow) -> None:
        """One job that is over; the event that ended it comes next."""
        if self._files:
            self._files.job(row)
        if self._report_data:
            self._report_data.ended(row)

    def digest(self) -> str:
        """The digest of the log so far."""
        return self.log.digest

    def report_data(self, settled: TimeAccount) -> dict[str, Any]:
        """Return the data of pages, see `ReportData.data`; empty without report data."""
        return self._report_data.data(settled) if self._report_data else {}


class Collectors:
    """Feed it the log. `recorder`: writes the log and collects the report data."""

    def __init__(self, recorder: Recorder) -> None:
        self.metrics = Metrics(recorder.ended)
        self.invariants = InvariantChecker()
        self.recorder = recorder

    def feed(self, event: Event, state: State) -> None:
        """`state`: right after the event. Raises: InvariantViolated."""
        self.metrics.feed(event, state)
        self.invariants.feed(event, state)
        self.recorder.feed(event, state)

    def use_effects(self, effects: EffectReader) -> None:
        """Read the log by a reader that others use as well."""
        self.metrics.use_effects(effects)
        self.recorder.use_effects(effects)

    def report_data(self) -> dict[str, Any]:
        """Return the data of pages; empty without report data."""
        return self.recorder.report_data(self.metrics.settled())
