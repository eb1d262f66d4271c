"""Free hosts over time, as far as can be foreseen: steps at which gangs begin and end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable


class Profile:
    """The number of free hosts over time. `free` hosts from `now_ns` on, and more after each of
    `ends` (time, hosts).

    The last step lasts for ever. Cost: O(steps) each call.
    """

    def __init__(self, now_ns: int, free: int, ends: Iterable[tuple[int, int]]) -> None:
        self._times = [now_ns]
        self._free = [free]
        for end_ns, hosts in sorted(ends):
            free += hosts
            if end_ns == self._times[-1]:
                self._free[-1] = free
            else:
                self._times.append(end_ns)
                self._free.append(free)

    def least(self, start_ns: int, end_ns: int) -> int:
        """Return the least number of free hosts at any time in [start, end)."""
        first = bisect_right(self._times, start_ns) - 1
        return min(self._free[first : bisect_left(self._times, end_ns)])

    def earliest(
        self, hosts: int, duration_ns: int, may_start: Callable[[int], bool] | None = None
    ) -> int | None:
        """The first moment from which so many hosts are free for so long, among those at
        which it `may_start`."""
        times, free = self._times, self._free
        at, checked = 0, 0
        while checked < len(times):
            if free[checked] < hosts:
                at = checked = checked + 1
            elif checked + 1 < len(times) and times[checked + 1] < times[at] + duration_ns:
                checked += 1
            elif may_start is None or may_start(times[at]):
                return times[at]
            else:
                at = checked = at + 1
        return None

    def book(self, start_ns: int, end_ns: int, hosts: int) -> None:
        """Take `hosts` out of [start, end); negative to give them back."""
        for i in range(self._step(start_ns), self._step(end_ns)):
            self._free[i] -= hosts

    def _step(self, time_ns: int) -> int:
        """The step that begins at `time_ns`, made where there is none."""
        at = bisect_left(self._times, time_ns)
        if at == len(self._times) or self._times[at] != time_ns:
            self._times.insert(at, time_ns)
            self._free.insert(at, self._free[at - 1])
        return at
