"""Step functions of time, kept as their integrals over bins.

A change by d at time t adds d x (end of its bin - t) to the area of that bin, and d to
the level of every later one. Two lists of whole numbers hold both, whatever the number
of changes. When time outgrows the bins, neighbours are joined and bins are twice as
wide. So memory is fixed, no end has to be known, and integrals are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.model.job import SECOND_NS

MOST = 512  # bins; at least half of them are filled once time has outgrown them


class TimeBins:
    """Step functions of time, by index, all 0 at `zero_ns`. Cost: O(1) a change."""

    def __init__(self, channels: int, zero_ns: int, width_ns: int = SECOND_NS) -> None:
        self.width_ns = width_ns
        self._zero_ns = zero_ns
        self._level: list[int] = [0] * channels
        self._area: list[list[int]] = [[0] * MOST for _ in range(channels)]
        self._step: list[list[int]] = [[0] * MOST for _ in range(channels)]

    def add(self, channel: int, change: int, now_ns: int) -> None:
        """Raise the value by `change` from `now_ns` on."""
        at = self._bin(now_ns)
        end_ns = self._zero_ns + (at + 1) * self.width_ns
        self._level[channel] += change
        self._area[channel][at] += change * (end_ns - now_ns)
        self._step[channel][at] += change

    def set(self, channel: int, value: int, now_ns: int) -> None:
        """Set the value to `value` from `now_ns` on."""
        if change := value - self._level[channel]:
            self.add(channel, change, now_ns)

    def starts_s(self, end_ns: int) -> list[float]:
        """Return where each bin begins, in seconds after the zero."""
        return [i * self.width_ns / SECOND_NS for i in range(self._filled(end_ns))]

    def means(self, channel: int, end_ns: int) -> list[float]:
        """Return the mean value in each bin; the last one ends at `end_ns`."""
        return [area / span for area, span in self._integrals(channel, end_ns)]

    def integral(self, channel: int, end_ns: int) -> int:
        """Return value x nanoseconds from the zero to `end_ns`, exactly."""
        return sum(area for area, _ in self._integrals(channel, end_ns))

    def _integrals(self, channel: int, end_ns: int) -> Sequence[tuple[int, int]]:
        """(integral, nanoseconds) of each bin."""
        integrals = []
        level = 0
        filled = self._filled(end_ns)
        for area, step in zip(
            self._area[channel][:filled], self._step[channel][:filled], strict=True
        ):
            integrals.append((area + level * self.width_ns, self.width_ns))
            level += step
        beyond_ns = filled * self.width_ns - (end_ns - self._zero_ns)
        if integrals and beyond_ns > 0:
            area, span = integrals[-1]
            integrals[-1] = (area - level * beyond_ns, span - beyond_ns)
        return integrals

    def _filled(self, end_ns: int) -> int:
        self._bin(end_ns)
        return -(-(end_ns - self._zero_ns) // self.width_ns)

    def _bin(self, now_ns: int) -> int:
        while now_ns - self._zero_ns >= MOST * self.width_ns:
            self._join()
        return (now_ns - self._zero_ns) // self.width_ns

    def _join(self) -> None:
        """Bins 2k and 2k + 1 become bin k."""
        rest = [0] * (MOST // 2)
        for area, step in zip(self._area, self._step, strict=True):
            pairs = range(0, MOST, 2)
            area[:] = [area[i] + step[i] * self.width_ns + area[i + 1] for i in pairs] + rest
            step[:] = [step[i] + step[i + 1] for i in pairs] + rest
        self.width_ns *= 2
