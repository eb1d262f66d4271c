"""Everything that is counted of a replay while it runs, from one pass over its log."""

from __future__ import annotations

from typing import Any

from scheduler.core import State
from scheduler.core.model.events import Event
from simulator.conserved import Conserved
from simulator.metrics import Metrics
from simulator.telling import Telling


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
