"""What whole edges, whole zones and whole slots can add up to.

A bound is a sum of fractions; these say how far up it may be rounded, and which cuts of a
linear program follow from zones being whole.
See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid

MOST_SUMS = 200_000  # of whole edges: about a millisecond
STAIRS = 9
MOST_RUNS = 500  # lengths of steps; of more, that many are tried


def attainable(grid: BlockGrid, doubled: int) -> int:
    """Return the least doubled cut >= `doubled` that whole edges can add up to.

    Exact for up to three different weights where there are not too many sums to try, a multiple of
    their gcd beyond.
    """
    weights = sorted({2 * w for w in grid.weights}, reverse=True)
    if doubled <= 0 or not weights:
        return max(0, doubled)
    common = gcd(*weights)
    if len(weights) == 1:
        return -(-doubled // common) * common
    *large, small = (w // common for w in weights)
    least = -(-doubled // common)
    # More of a large edge than there are small ones in a common multiple is never needed.
    many = [min(-(-least // w), small) + 1 for w in large]
    if len(large) > 2 or prod(many) > MOST_SUMS:
        return least * common
    sums = np.zeros(1, dtype=np.int64)
    for w, most in zip(large, many, strict=True):
        sums = (sums[:, None] + w * np.arange(most, dtype=np.int64)).ravel()
    rest = np.maximum(0, least - sums)
    return int((sums - (-rest // small) * small).min()) * common


def fewest(capacities: Sequence[int], needed: int) -> int:
    """Return the least number of zones that can hold `needed` hosts together."""
    total = 0
    for count, capacity in enumerate(sorted(capacities, reverse=True), 1):
        total += capacity
        if total >= needed:
            return count
    raise ValueError("the zones do not hold that many hosts")


def stairs(target: int, most: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Staircases for zones that cover `target` together, each at most `most`: rise, run, and
    the whole steps and the rest that the target climbs. Steps of 2 to 2 `most` slots, and
    those of which the target just climbs one more than k.
    """
    runs = np.arange(2, min(target, 2 * most) + 1)
    if len(runs) > MOST_RUNS:
        runs = np.unique(np.geomspace(2, runs[-1], MOST_RUNS).astype(np.int64))
    pairs = [(1, run) for run in runs.tolist()]
    pairs += [(k * target + 1, target * target) for k in range(1, STAIRS)]
    rise, run = np.array(pairs, dtype=np.int64).T
    whole, rest = np.divmod(rise * target, run)
    is_cut = rest > 0
    return rise[is_cut], run[is_cut], whole[is_cut], rest[is_cut]
