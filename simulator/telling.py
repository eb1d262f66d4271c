"""What is told of a replay: its log to the byte, tables, and what pages show, from the
events and the rows of ended jobs alone."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from placement.fabric.tree import Fabric
from scheduler.core.model.events import Event
from simulator.accounts import Account
from simulator.log import Log
from simulator.metrics import JobRow
from simulator.report import Growing
from simulator.story import Story


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
