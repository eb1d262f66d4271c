"""What is told of a replay: its log to the byte, tables, and what pages show.

From the events and the rows of ended jobs alone, so it needs nothing of the replay that it
tells of, and may be in another process (beside.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from placement.fabric.tree import Fabric
from scheduler.core.model.events import Event
from simulator.accounts import Account
from simulator.log import Log
from simulator.metrics import JobRow
from simulator.report import Growing, Place
from simulator.story import Story


class Telling(AbstractContextManager["Telling"]):
    """Tell it of events and rows in order. `place`: where files grow, None for none;
    `has_story`: what pages show. A context manager that closes the files. Raises: InputError
    on a place where no file can be made."""

    def __init__(self, fabric: Fabric, place: Place | None = None, has_story: bool = False) -> None:
        self._growing = Growing(place) if place else None
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

    def grown(self) -> dict[str, bytes]:
        """What the files hold now, by name."""
        return self._growing.grown() if self._growing else {}

    def kept(self) -> dict[str, Any]:
        """All but the log itself. Only with a story: a page may be asked for later."""
        if self._story is None:
            raise ValueError("a replay without a story is not written down")
        return self._story.kept()

    def go_on(self, kept: dict[str, Any], log: bytes) -> None:
        """From where `kept` was taken, after this `log`.

        Raises: KeyError, TypeError, ValueError on what `kept` did not make.
        """
        self.log.go_on(log)
        if self._story:
            self._story.restore(kept)
