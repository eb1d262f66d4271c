"""On which count of zones a node of the proof is split. See docs/engine.md, "The proof"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor

import numpy as np

from placement.fabric.hostset import Mask
from placement.fabric.tree import Floats, Ints
from placement.proof.master import WHOLE_GANG, Counter, Master, Range
from placement.solver import LpSolution

FRACTIONAL = 1e-4  # zones
LEAST_RISE = 1e-6  # of the gap: what a child counts that costs no more
TIE = 1e-6  # of a product of rises
Decision = tuple[Counter, Range]


def split(
    master: Master,
    solution: LpSolution,
    ranges: Mapping[Counter, Range],
    zones: int,
    gap: float,
) -> tuple[Decision, Decision] | None:
    """Choose a counter, and its range in each of two children; None when all counts are whole.

    Of each family the count furthest from whole is a candidate, the first in order on a tie. Which
    family tells zones apart that the program mixes differs: where sizes are what they will, splits
    on sizes go on for ever, and where they decide, nothing else helps. So the program says what
    each child costs more, new patterns aside, and the candidate whose children are dearest,
    multiplied, is taken. `gap`: what closes a child.
    """
    patterns, share = master.support(solution)
    candidates: list[tuple[Decision, Decision]] = []
    for family in FAMILIES:
        fractional = _most_fractional(family(patterns), share)
        if fractional is not None:
            counter, below = fractional
            low, high = ranges.get(counter, (0, zones))
            candidates.append(((counter, (low, below)), (counter, (below + 1, high))))
    best, most = None, -1.0
    for halves in candidates:
        dearer = 1.0
        for counter, half in halves if len(candidates) > 1 else ():
            if counter not in master.ranges:
                master.open({counter: ranges.get(counter, (0, zones))})
            cost = master.cost_within(counter, half) if half[0] <= half[1] else None
            risen = gap if cost is None else min(gap, cost - solution.cost)
            dearer *= max(risen, LEAST_RISE * gap)
        if best is None or dearer > most * (1 + TIE):
            best, most = halves, dearer
    return best


def _most_fractional(
    counted: Iterator[tuple[Counter, Mask]], share: Floats
) -> tuple[Counter, int] | None:
    """The count furthest from whole, and its floor."""
    chosen, furthest = None, FRACTIONAL
    for counter, holds in counted:
        value = float(share @ holds)
        distance = round(abs(value - round(value)), 6)
        if distance > furthest:
            chosen, furthest = (counter, floor(value)), distance
    return chosen


def _sizes(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    """Half way between the sizes in use, where both children have to change, and below the
    smallest: how many zones there are in all."""
    size = patterns.sum(axis=1)
    values = np.append(0, np.unique(size))
    for least in (values[1:] + values[:-1] + 1) // 2:
        yield Counter(WHOLE_GANG, int(least)), size >= least


def _touches(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        yield Counter(s, 1), patterns[:, s] > 0


def _slots(patterns: Ints) -> Iterator[tuple[Counter, Mask]]:
    for s in range(patterns.shape[1]):
        for least in np.unique(patterns[:, s]):
            if least > 0:
                yield Counter(s, int(least)), patterns[:, s] >= least


# Sizes first: a zone of a single host satisfies "six zones" at no cost, and the program mixes
# such zones in; only a split on sizes tells them from real ones.
FAMILIES = (_sizes, _touches, _slots)
