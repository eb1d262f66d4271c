"""What parts cut at least that share out all blocks of every kind.

The cheapest parts of every size (`levels`) may all want the same kinds: those at the ends of the
pipeline, say. So kinds have prices. What parts pay beyond the prices of their blocks, and the
prices of all blocks, is what they pay; and the least of it, over parts of all sizes that the
domains hold, is a bound whatever the prices are. They go up where too few blocks of a kind are
taken, and down where too many are, by steps that would close what is open if the bound were as
steep as it is here (Polyak, 1969); shorter ones once they lead no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

import numpy as np

from placement.levels import Levels
from placement.sizes import least_sizes

FEWEST_ROUNDS, MOST_ROUNDS = 20, 120  # fewer prove nothing
PROBATION = 15  # rounds, until which so many times as much may be open as is known to be:
OPEN = 1.5
PATIENCE = 10  # rounds without a better bound, after which steps are half as long
SHORTEST = 1 / 32
KEPT = 0.6  # of the direction before


def least_shared(
    levels: Levels, capacities: Sequence[int], blocks: int, known: int, target: int, work: int
) -> int:
    """A doubled cut that no layout beats on domains of these capacities; no more is looked for
    than a `target`, or in more `work`, or if it soon does not come near what is `known`."""
    if not levels.has_names:
        return 0
    room = [min(c, blocks) for c in capacities if c]
    copies, most = levels.kinds.copies, max(room)
    best, since, length, each = 0, 0, 1.0, work // FEWEST_ROUNDS
    prices = at_best = toward = np.zeros(levels.kinds.kinds)
    for turn in range(MOST_ROUNDS):
        paid = np.rint(prices).astype(np.int64)
        cost = levels.least(most, each, paid)
        if cost is None:
            return best
        work -= levels.work + len(room) * blocks * most
        shared, sizes = least_sizes(blocks, room, cost)
        bound = shared + copies * int(paid.sum())
        since += 1
        if bound > best:
            best, since, at_best = bound, 0, prices
        taken = sum(int(sizes[size]) * levels.held(int(size)) for size in np.flatnonzero(sizes))
        toward = copies - taken + KEPT * toward
        is_behind = turn == PROBATION and target - best > OPEN * (target - known)
        if best >= target or work < 0 or is_behind or not toward.any():
            return best
        if since == PATIENCE:
            since, length, prices = 0, length / 2, at_best
            if length < SHORTEST:
                return best
        square = fsum(each * each for each in toward.tolist())  # the same on any machine
        prices = prices + length * (target - bound) / square * toward
    return best
