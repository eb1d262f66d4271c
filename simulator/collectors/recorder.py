"""What is kept of a replay while it runs, from one pass over its log: `Collectors` feeds the
totals, the checks of what must add up, and the `Recorder`, which writes the log and its
tables and collects the data of the report."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TextIO

from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.model.events import Event
from scheduler.eventlog.codec import encode
from scheduler.files.errors import unwritable
from simulator.collectors.invariants import Conserved
from simulator.collectors.metrics import JobRow, Metrics
from simulator.collectors.report_data import Story
from simulator.collectors.tables import EVENTS, JOBS, Columns, CsvTable, event_row, job_row
from simulator.collectors.time_account import Account


class Log:
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


class Telling(AbstractContextManager["Telling"]):
    """Tell it of events and rows in order. `folder`: where files grow, None for none;
    `has_story`: what pages show. A context manager that closes the files. Raises: InputError
    on a folder in which no file can be made."""

    def __init__(self, fabric: Fabric, folder: Path | None = None, has_story: bool = False) -> None:
        self._growing = Growing(folder) if folder else None
        self.log = Log(self._growing.events if self._growing else None)
        self._story = Story(fabric) if has_story else None

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is told."""
        if self._growing:
            self._growing.close()

    def feed(self, event: Event) -> None:
        self.log.feed(event)
        if self._growing:
            self._growing.event(event)
        if self._story:
            self._story.feed(event)

    def ended(self, row: JobRow) -> None:
        """One job that is over; the event that ended it comes next."""
        if self._growing:
            self._growing.job(row)
        if self._story:
            self._story.ended(row)

    def digest(self) -> str:
        """Of the log so far."""
        return self.log.digest

    def story(self, settled: Account) -> dict[str, Any]:
        """What pages show, see `Story.told`; empty without a story."""
        return self._story.told(settled) if self._story else {}


class Folds:
    """Feed it the log. `telling`: what is not counted but told."""

    def __init__(self, telling: Telling) -> None:
        self.metrics = Metrics(telling.ended)
        self.conserved = Conserved()
        self.telling = telling

    def feed(self, event: Event, state: State) -> None:
        """`state`: right after the event. Raises: NotConserved."""
        self.metrics.feed(event, state)
        self.conserved.feed(event, state)
        self.telling.feed(event)

    def story(self) -> dict[str, Any]:
        """What pages show; empty without a story."""
        return self.telling.story(self.metrics.settled())
