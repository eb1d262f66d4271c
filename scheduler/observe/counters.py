"""Counts and histograms by label: plain values, whoever shows them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

Labels = tuple[str, ...]
Counts = Counter[Labels]


def zeros(values: Iterable[str]) -> Counts:
    """Return counters at zero for one label whose values are known, for a first increase from
    nothing would not show in Prometheus."""
    return Counter({(value,): 0 for value in values})


class Histogram:
    """Counts of values at or below each bound, and above the last bound. One writer at a time."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value. Cost: 0.3 us."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Histograms(defaultdict[Labels, Histogram]):
    """One histogram for each set of labels, all with the same bounds. `values`: of one label,
    as for `zeros`."""

    def __init__(self, bounds: tuple[float, ...], values: Iterable[str] = ()) -> None:
        super().__init__(lambda: Histogram(bounds), {(v,): Histogram(bounds) for v in values})
