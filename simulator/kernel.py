"""A virtual clock: a heap of (time_ns, priority, seq, value), and step().

Everything that will happen stands in one heap, as plain values; a table says who acts on
which kind. `step` takes the first entry, moves the clock to its time and has it done; what
is done schedules more. The sequence number makes the order total: at equal times the lower
priority goes first, then whatever was scheduled first, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

_D = TypeVar("_D")
Entry = tuple[int, int, int, Any]  # time_ns, priority, seq, what is due


class SimulationKernel:
    """A virtual clock, and the values that are due at times on it.

    `now_ns` only grows. Cost: O(log entries) a step.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self.now_ns = start_ns
        self._act: dict[type, Callable[[Any], None]] = {}
        self._heap: list[Entry] = []
        self._waiting: set[int] = set()
        self._seq = 0

    def on(self, kind: type[_D], act: Callable[[_D], None]) -> None:
        """Let `act` be called with every value of this kind when it is due."""
        self._act[kind] = act

    def at(self, time_ns: int, due: object, priority: int = 0) -> int:
        """Schedule the value `due` at `time_ns`, and return what `cancel` takes.

        Raises: ValueError on a time that has passed, KeyError on a kind nobody acts on.
        """
        if time_ns < self.now_ns:
            raise ValueError(f"{time_ns} ns is {self.now_ns - time_ns} ns in the past")
        if type(due) not in self._act:
            raise KeyError(f"nothing handles {due!r}")
        self._seq += 1
        heappush(self._heap, (time_ns, priority, self._seq, due))
        self._waiting.add(self._seq)
        return self._seq

    def cancel(self, seq: int) -> None:
        """Cancel an entry; one that is over or already cancelled is ignored."""
        # NOTE: it stays in the heap until its turn comes; taking it out is O(entries).
        self._waiting.discard(seq)

    def step(self) -> bool:
        """Act on the value that is due next. Return False when nothing is left."""
        while self._heap:
            time_ns, _, seq, due = heappop(self._heap)
            if seq not in self._waiting:
                continue
            self._waiting.remove(seq)
            self.now_ns = time_ns
            self._act[type(due)](due)
            return True
        return False
