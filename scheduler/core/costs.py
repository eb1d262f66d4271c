"""What an interruption costs: the work since the last checkpoint, and a restart."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000  # as in job, which stands on this


@dataclass(frozen=True, slots=True)
class Costs:
    """The one rule for preemption, defragmentation and replays: no gang reports when it saves.

    `checkpoint_s`: productive time between checkpoints, 0 = nothing is ever lost.
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

    def lost_ns(self, attempt: int, ran_ns: int) -> int:
        """What an interruption now costs each host: work done again, and a restart."""
        progress_ns = max(0, ran_ns - self.overhead_ns(attempt))
        again_ns = progress_ns - self.productive_ns(attempt, ran_ns, is_complete=False)
        return again_ns + self.restart_s * SECOND_NS
