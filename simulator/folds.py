"""Everything that is counted of a replay while it runs, from one pass over its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.fabric import Fabric
from scheduler.core import State
from scheduler.core.events import Event
from simulator.conserved import Conserved
from simulator.log import Log
from simulator.metrics import JobRow, Metrics
from simulator.report import Growing
from simulator.story import Story


class Folds:
    """Feed it the log. `growing`: files to write besides; `has_story`: what pages show."""

    def __init__(self, fabric: Fabric, growing: Growing | None, has_story: bool) -> None:
        self.metrics = Metrics(self._ended)
        self.conserved = Conserved()
        self.log = Log(growing.events if growing else None)
        self.story = Story(fabric) if has_story else None
        self._growing = growing

    def feed(self, event: Event, state: State) -> None:
        """`state`: right after the event. Raises: NotConserved."""
        self.metrics.feed(event, state)
        self.conserved.feed(event, state)
        self.log.feed(event)
        if self._growing:
            self._growing.event(event)
        if self.story:
            self.story.feed(event)

    def _ended(self, row: JobRow) -> None:
        if self._growing:
            self._growing.job(row)
        if self.story:
            self.story.ended(row)

    def told(self) -> dict[str, Any]:
        """What pages show; empty without a story."""
        return self.story.told(self.metrics.settled()) if self.story else {}

    def kept(self) -> dict[str, Any]:
        """All but the log itself. Only with a story: a page may be asked for later."""
        if self.story is None:
            raise ValueError("a replay without a story is not written down")
        return {
            "metrics": self.metrics.kept(),
            "conserved": self.conserved.kept(),
            "story": self.story.kept(),
        }

    def go_on(self, kept: Mapping[str, Any], state: State, log: bytes) -> None:
        """From where `kept` was taken, at `state`, after this `log`.

        Raises: KeyError, TypeError, ValueError on what `kept` did not make.
        """
        self.metrics.go_on(kept["metrics"], state)
        self.conserved.restore(kept["conserved"])
        self.log.go_on(log)
        if self.story:
            self.story.restore(kept["story"])
