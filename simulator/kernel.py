"""A virtual clock: a heap of (time_ns, priority, seq, value), and step().

Everything that will happen stands in one heap, as plain values; a table says who acts on
which kind. `step` takes the first entry, moves the clock to its time and has it done; what
is done schedules more. The sequence number makes the order total: at equal times the lower
priority goes first, then whatever was scheduled first, so a run repeats exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, TypeVar

_D = TypeVar("_D")
Entry = tuple[int, int, int, Any]  # time_ns, priority, seq, what is due


class Kernel:
    """One virtual clock and what is scheduled on it.

    `now_ns` only grows, as `seq` does, the number of the newest entry. Cost: O(log entries) a step.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self.now_ns = start_ns
        self._act: dict[type, Callable[[Any], None]] = {}
        self._heap: list[Entry] = []
        self._waiting: set[int] = set()
        self.seq = 0

    def on(self, kind: type[_D], act: Callable[[_D], None]) -> None:
        """`act` is called with every value of this kind when it is due."""
        self._act[kind] = act

    def at(self, time_ns: int, due: object, priority: int = 0) -> int:
        """`due` is due at `time_ns`; the answer is what `cancel` takes.

        Raises: ValueError on a time that has passed, KeyError on a kind nobody acts on.
        """
        if time_ns < self.now_ns:
            raise ValueError(f"{time_ns} ns is {self.now_ns - time_ns} ns in the past")
        if type(due) not in self._act:
            raise KeyError(f"nobody acts on {due!r}")
        self.seq += 1
        heappush(self._heap, (time_ns, priority, self.seq, due))
        self._waiting.add(self.seq)
        return self.seq

    @property
    def next_ns(self) -> int | None:
        """When something is due next, None when nothing is."""
        while self._heap and self._heap[0][2] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def entries(self) -> tuple[Entry, ...]:
        """What is due, in order."""
        return tuple(sorted(entry for entry in self._heap if entry[2] in self._waiting))

    def go_on(self, now_ns: int, seq: int, entries: Iterable[Entry]) -> None:
        """With these entries, as if `seq` had been scheduled so far."""
        self.now_ns, self.seq = now_ns, seq
        self._heap = sorted(entries)
        self._waiting = {entry[2] for entry in self._heap}

    def drop(self, kind: type) -> None:
        """Forget all entries of this kind. Cost: O(entries)."""
        self._waiting -= {seq for _, _, seq, due in self._heap if isinstance(due, kind)}

    def cancel(self, seq: int) -> None:
        """Forget an entry. One that is over or was cancelled already is no error."""
        # NOTE: it stays in the heap until its turn comes; taking it out is O(entries).
        self._waiting.discard(seq)

    def step(self) -> bool:
        """Do what is due next. False when nothing is left."""
        while self._heap:
            time_ns, _, seq, due = heappop(self._heap)
            if seq not in self._waiting:
                continue
            self._waiting.remove(seq)
            self.now_ns = time_ns
            self._act[type(due)](due)
            return True
        return False
