"""What an interruption costs: the work since the last checkpoint, and a restart."""

from __future__ import annotations

from enum import Enum, auto

from muster.structs import struct

SECOND_NS = 1_000_000_000  # as in job, which stands on this


class Ending(Enum):
    """End of an attempt."""

    COMPLETE = auto()  # nothing of it is done again
    STOPPED = auto()  # at somebody's wish
    FAILED = auto()  # a host did, which nobody knew at once


@struct(frozen=True, slots=True)
class TimeShares:
    """Parts of the time of one attempt; they add up to it. Units: ns."""

    restart_ns: int
    productive_ns: int
    rework_ns: int
    detection_ns: int


@struct(frozen=True, slots=True)
class Observed:
    """Progress of an attempt that agents reported. Units: ns since its start.

    `launch_ns`: when all its ranks had started, None = they have not. `saved_ns`: when it made its
    newest checkpoint, 0 where it has made none, None where its job has never reported any.
    """

    launch_ns: int | None
    saved_ns: int | None


@struct(frozen=True, slots=True)
class Costs:
    """The costs of interrupting an attempt: the one rule for preemption, defragmentation,
    accounts and replays, where agents report nothing.

    `checkpoint_s`: productive time between checkpoints, 0 = nothing is ever lost. `restart_s`: from
    the start of every attempt but the first to its first new step. `detect_s`: how long a host has
    failed before that is reported.
    """

    checkpoint_s: int = 1800
    restart_s: int = 300
    detect_s: int = 0

    def overhead_ns(self, attempt: int) -> int:
        """Time of an attempt before it makes progress."""
        return self.restart_s * SECOND_NS if attempt > 1 else 0

    def shares(
        self, attempt: int, ran_ns: int, ending: Ending, observed: Observed | None = None
    ) -> TimeShares:
        """Return what the time of an attempt that ran so long went to. In order: restart, progress
        that is kept, progress that is lost, and standing still unnoticed."""
        overhead_ns = self.overhead_ns(attempt)
        if observed is not None:
            overhead_ns = ran_ns if observed.launch_ns is None else observed.launch_ns
        restart_ns = min(ran_ns, overhead_ns)
        progress_ns = ran_ns - restart_ns
        if ending is Ending.COMPLETE:
            return TimeShares(restart_ns, progress_ns, 0, 0)
        unseen_s = self.detect_s if ending is Ending.FAILED else 0
        detection_ns = min(progress_ns, unseen_s * SECOND_NS)
        progress_ns -= detection_ns
        if observed is not None and observed.saved_ns is not None:
            rework_ns = progress_ns - min(progress_ns, max(0, observed.saved_ns - restart_ns))
        else:
            interval_ns = self.checkpoint_s * SECOND_NS
            rework_ns = progress_ns % interval_ns if interval_ns else 0
        return TimeShares(restart_ns, progress_ns - rework_ns, rework_ns, detection_ns)

    def loss_ns(self, attempt: int, ran_ns: int, observed: Observed | None = None) -> int:
        """Return the ns that an interruption costs each host: repeated work, a restart."""
        again_ns = self.shares(attempt, ran_ns, Ending.STOPPED, observed).rework_ns
        return again_ns + self.restart_s * SECOND_NS
