"""What an interruption costs: the work since the last checkpoint, and a restart."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """`checkpoint_s`: productive time between checkpoints, 0 = nothing is ever lost.
    `restart_s`: from the start of every attempt but the first to its first new step."""

    checkpoint_s: int = 1800
    restart_s: int = 300

    def overhead_ns(self, attempt: int) -> int:
        """Time of an attempt before it makes progress."""
        return self.restart_s * SECOND_NS if attempt > 1 else 0

    def productive_ns(self, attempt: int, ran_ns: int, is_complete: bool) -> int:
        """The part of an attempt that the next one does not have to repeat."""
        progress_ns = max(0, ran_ns - self.overhead_ns(attempt))
        interval_ns = self.checkpoint_s * SECOND_NS
        if is_complete or not interval_ns:
            return progress_ns
        return progress_ns - progress_ns % interval_ns
