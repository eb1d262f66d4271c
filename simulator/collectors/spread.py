"""How values are spread, in memory that does not grow with their number."""

from __future__ import annotations

from collections import Counter
from math import exp, floor, log

RATIO = 1.02  # between the edges of a bucket: quantiles are right to one percent
_LOG = log(RATIO)
_ZERO = -(10**9)  # sorts before every bucket


class Distribution:
    """Counts of values of 0 or more, in buckets of equal ratio. `total` is exact."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self._buckets[floor(log(value) / _LOG) if value > 0 else _ZERO] += 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The value that `share` of them do not exceed, to one percent; 0 of nothing."""
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= share * self.count:
                return _middle(bucket)
        return 0.0

    def curve(self, most: int = 120) -> list[tuple[float, float]]:
        """(value, share of all that do not exceed it), `most` points about even in share."""
        points: list[tuple[float, float]] = []
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            share = seen / self.count
            if not points or share - points[-1][1] >= 1 / most or seen == self.count:
                points.append((_middle(bucket), share))
        return points


def _middle(bucket: int) -> float:
    return 0.0 if bucket == _ZERO else exp((bucket + 0.5) * _LOG)
