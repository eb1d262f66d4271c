"""A virtual clock: a heap of (time_ns, priority, seq, action), and step().

Everything that will happen stands in one heap. `step` takes the first entry, moves
the clock to its time and calls it; what it calls schedules more. The sequence number
makes the order total: at equal times the lower priority goes first, then whatever was
scheduled first, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Kernel:
    """One virtual clock and what is scheduled on it.

    `now_ns` only grows. Cost: O(log entries) a step.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self.now_ns = start_ns
        self._heap: list[tuple[int, int, int, Action]] = []
        self._waiting: set[int] = set()
        self._seq = 0

    def at(self, time_ns: int, action: Action, priority: int = 0) -> int:
        """Call `action` at `time_ns`; the answer is what `cancel` takes.

        Raises: ValueError on a time that has passed.
        """
        if time_ns < self.now_ns:
            raise ValueError(f"{time_ns} ns is {self.now_ns - time_ns} ns in the past")
        self._seq += 1
        heappush(self._heap, (time_ns, priority, self._seq, action))
        self._waiting.add(self._seq)
        return self._seq

    def cancel(self, seq: int) -> None:
        """Forget an entry. One that was called or cancelled already is no error."""
        # NOTE: it stays in the heap until its turn comes; taking it out is O(entries).
        self._waiting.discard(seq)

    def step(self) -> bool:
        """Call the next entry. False when nothing is left."""
        while self._heap:
            time_ns, _, seq, action = heappop(self._heap)
            if seq not in self._waiting:
                continue
            self._waiting.remove(seq)
            self.now_ns = time_ns
            action()
            return True
        return False
