"""Everything that is counted of a replay while it runs, from one pass over its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.core import State
from scheduler.core.model.events import Event
from simulator.beside import Beside
from simulator.conserved import Conserved
from simulator.metrics import Metrics
from simulator.telling import Telling


class Folds:
    """Feed it the log. `telling`: what is not counted but told, here or in another process."""

    def __init__(self, telling: Telling | Beside) -> None:
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

    def kept(self) -> dict[str, Any]:
        """All but the log itself. Only with a story: a page may be asked for later."""
        return {
            "metrics": self.metrics.kept(),
            "conserved": self.conserved.kept(),
            "story": self.telling.kept(),
        }

    def go_on(self, kept: Mapping[str, Any], state: State, log: bytes) -> None:
        """From where `kept` was taken, at `state`, after this `log`.

        Raises: KeyError, TypeError, ValueError on what `kept` did not make.
        """
        self.metrics.go_on(kept["metrics"], state)
        self.conserved.restore(kept["conserved"])
        self.telling.go_on(kept["story"], log)
