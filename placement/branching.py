"""On which count of zones a node of the proof is split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placement.fabric import Ints
from placement.hostset import Mask
from placement.master import WHOLE_GANG, Counter, Floats


def most_fractional(patterns: Ints, share: Floats) -> tuple[Counter | None, float]:
    """Sizes first, then rows touched, then slots of a row; ties to the first in order.

    A zone of a single host satisfies "six zones" at no cost, and the LP mixes such
    zones in; only a split on sizes tells them from real ones.
    """
    for family in (_sizes, _touches, _links, _slots):
        best: tuple[float, Counter | None, float] = (1e-4, None, 0.0)
        for counter, holds in family(patterns):
            value = float(share[holds].sum())
            distance = round(abs(value - round(value)), 6)
            if distance > best[0]:
                best = (distance, counter, value)
        if best[1] is not None:
            return best[1], best[2]
    return None, 0.0


def _sizes(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    """Half way between the sizes in use, where both children have to change."""
    size = patterns.sum(axis=1)
    values = np.unique(size)
    for least in (values[1:] + values[:-1] + 1) // 2:
        yield Counter(WHOLE_GANG, int(least)), size >= least


def _touches(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        yield Counter(s, 1), patterns[:, s] > 0


def _links(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1] - 1):
        yield Counter(s, is_link=True), (patterns[:, s] > 0) & (patterns[:, s + 1] > 0)


def _slots(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        for least in np.unique(patterns[:, s]):
            if least > 0:
                yield Counter(s, int(least)), patterns[:, s] >= least
