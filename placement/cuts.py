"""What whole zones keep and fractions of zones do not: rows for a linear program that breaks it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.fabric import Ints
from placement.master import Counter, Floats, Range
from placement.zigzag import Ends

VIOLATED = 0.05  # zones; a cut violated by less is not worth a row


def fallen_short(
    row: int,
    held: Ints,
    share: Floats,
    stairs: tuple[Ints, Ints, Ints, Ints],
    most: tuple[int, int],
) -> dict[Counter, Range]:
    """The staircase that the zones fall furthest short of, if they do.

    `held`: of `row` by each pattern, of which there is so much `share`; `stairs`: as of
    `rounding.stairs`; `most`: that one zone holds, and zones.
    """
    rise, run, whole, top = stairs
    if not len(rise):
        return {}
    steps, rest = np.divmod(held[:, None] * rise, run)
    missing = whole + 1 - share @ (steps + np.minimum(rest / top, 1.0))
    worst = int(np.argmax(missing))
    if missing[worst] <= VIOLATED:
        return {}
    part = int(top[worst])
    counter = Counter(row, rise=int(rise[worst]), run=int(run[worst]), top=part)
    largest, zones = most
    climbed = int(counter.values(largest + 1)[-1])
    return {counter: (part * (int(whole[worst]) + 1), climbed * zones)}


def unbalanced(row: int, held: Ints, share: Floats, ends: Sequence[Ends]) -> dict[Counter, Range]:
    """Of the ways to pay for ends in one row, for which a row has one price, the dearest."""
    counters = [Counter(row, turn=each.paid, price=each.price) for each in ends]
    most = int(held.max()) + 1
    off = [abs(float(share @ c.values(most)[held])) * c.price for c in counters]
    worst = int(np.argmax(off))
    is_violated = off[worst] > VIOLATED * counters[worst].price
    return {counters[worst]: (0, 0)} if is_violated else {}
