"""How far the ranks of an attempt have come, how fast, and whether they still come on.

A gang hangs when no step has been complete for as long as its owner says, and for five times the
longest pause that it has made before: an evaluation, a save or a compilation comes back, and the
second one is no surprise. While ranks say that they are busy with something else than steps
(`muster.progress.busy`, `saving`) four times as long is waited.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

PAUSES: Final = 5.0  # times the longest pause before
BUSY: Final = 4.0  # times as long where ranks are busy otherwise
_KEPT: Final = 64  # words of which the rate is made


@dataclass(slots=True, eq=False)
class StepWatch:
    """Follows how far the ranks of one gang are, to notice when steps stop coming. Clock: seconds
    of the launcher. `steps`: the last step of each rank that says so. `computed`: the step that
    each has done its own part of, once agents were asked after the newest step. `busy`: with what
    the ranks of a host are, by host. `total`: steps of the run, `loss`: of the newest step; as
    reported. `copied_step`: the newest of which all copies are in memory."""

    step: int = 0
    since_s: float | None = None  # when that step was complete; None: none has been
    longest_s: float = 0.0  # pause between two words of steps
    steps: dict[int, int] = field(default_factory=dict)
    busy: dict[str, str] = field(default_factory=dict)
    computed: dict[int, int] = field(default_factory=dict)
    total: int = 0
    loss: float = math.nan
    copied_step: int = 0
    _paces: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def take(self, step: int, now_s: float) -> None:
        """Note that this step is complete."""
        if step <= self.step:
            return
        if self.since_s is not None:
            pause_s = now_s - self.since_s
            self.longest_s = max(self.longest_s, pause_s)
            self._paces.append(pause_s / (step - self.step))
        self.step, self.since_s = step, now_s
        self.computed.clear()

    def take_ranks(self, first_rank: int, steps: Sequence[int]) -> None:
        """Note the last steps of the ranks of a host; 0 for a rank that reports none."""
        for rank, step in enumerate(steps, first_rank):
            if step > self.steps.get(rank, 0):
                self.steps[rank] = step

    def forget_ranks(self, first_rank: int) -> None:
        """Forget how far the ranks from `first_rank` on are, which begin again."""
        for known in (self.steps, self.computed):
            for rank in [rank for rank in known if rank >= first_rank]:
                del known[rank]

    def take_busy(self, host: str, activity: str, now_s: float) -> None:
        """Note what the ranks of a host are busy with; "" with steps. Time spent on that is no
        pause."""
        if activity:
            self.busy[host] = activity
        elif self.busy.pop(host, None) and self.since_s is not None:
            self.longest_s = max(self.longest_s, now_s - self.since_s)

    @property
    def step_s(self) -> float | None:
        """Usual seconds of a step; None while they are not known."""
        return statistics.median(self._paces) if len(self._paces) > 1 else None

    def limit_s(self, after_s: float) -> float:
        """Return the seconds that may pass without a step: `after_s`, the limit of the job, or
        longer where its pauses have been."""
        limit_s = max(after_s, PAUSES * self.longest_s)
        return BUSY * limit_s if self.busy else limit_s

    def is_overdue(
        self, after_s: float, now_s: float, *, first_s: float | None = None, start_s: float = 0
    ) -> bool:
        """Return whether the ranks, which started at `start_s`, hang. `first_s`: how long the first
        step may take, None: for ever."""
        if self.since_s is not None:
            return now_s - self.since_s > self.limit_s(after_s)
        return first_s is not None and now_s - start_s > (BUSY if self.busy else 1) * first_s

    def lagging(self) -> list[int]:
        """Return the ranks that are behind the furthest step, of those that report steps: first
        those for which others wait inside a step, else those behind in complete steps."""
        furthest = max(self.computed.values(), default=0)
        late = [rank for rank, step in self.computed.items() if 0 < step < furthest]
        return sorted(late or (rank for rank, step in self.steps.items() if step < self.step))

    @property
    def awaited_step(self) -> int | None:
        """Return the step inside which ranks wait for others; None where they are not known to."""
        steps = set(self.computed.values()) - {0}
        return max(steps) if len(steps) > 1 else None
