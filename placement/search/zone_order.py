"""Which slots of a row each zone has, given how many: side by side, in one order round the ring.

A cover says how many slots of each row a zone holds, and what that costs at least. Where slots
lie on a ring it is reached if every zone is one run in each row, and the runs of neighbouring
rows lie below one another. All rows keep the zones in one order round the ring, and each row is
turned against the one before by as much as cuts least. The order is searched, one zone at a time.

What the runs of a zone in two rows share, by that difference, is a trapezoid: it bends at four
places, which are added up over all zones before anything is summed.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random

import numpy as np

from placement.fabric.tree import Ints

TRIES = 400  # orders
MOST_STEPS = 40_000_000  # pairs of slots that lie below one another in all of them


def arranged(slots: Ints, row_weight: int) -> Ints:
    """The zone of each slot of each row. Shapes: (zones, rows) to (rows, width).

    `row_weight`: of a slot that another zone has in the next row. Ends where nothing else is cut
    than what the counts of slots alone tell.
    """
    zones = [int(z) for z in np.flatnonzero(slots.any(axis=1))]
    begins = np.argmax(slots > 0, axis=1)
    order = sorted(zones, key=lambda z: (begins[z], -slots[z].max(), z))
    rng = random.Random(f"arrange {slots.tolist()}")
    cost = _least(slots[order])
    target = int(np.abs(np.diff(slots, axis=1)).sum()) // 2 if row_weight else cost
    affordable = MOST_STEPS // (slots.shape[1] * int(slots[:, 0].sum()) ** 2)
    for _ in range(min(TRIES, affordable) if len(zones) > 2 else 0):
        if cost <= target:
            break
        tried = order.copy()
        zone = tried.pop(rng.randrange(len(tried)))
        tried.insert(rng.randrange(len(order)), zone)
        found = _least(slots[tried])
        if found <= cost:
            cost, order = found, tried
    turns = np.cumsum([0, *np.argmin(_apart(slots[order]), axis=1)])
    rows = [np.repeat(order, counts) for counts in slots[order].T]
    return np.array([np.roll(row, turn) for row, turn in zip(rows, turns, strict=True)])


def _least(slots: Ints) -> int:
    """Slots in another zone than in the next row, in this order of the zones."""
    return int(_apart(slots).min(axis=1).sum())


def _apart(slots: Ints) -> Ints:
    """The same of each row and the next one, by how much further the next one is turned. Shape:
    (rows - 1, width)."""
    width = int(slots[:, 0].sum())
    begins = np.cumsum(slots, axis=0) - slots
    above, below = slots[:, :-1], slots[:, 1:]
    level = begins[:, :-1] - begins[:, 1:]
    lines = np.arange(above.shape[1])

    def at_turn(*turns: Ints) -> Ints:
        """How many slopes change one step after each turn."""
        places = (np.concatenate(turns) + 1) % width + width * lines
        return np.bincount(places.ravel(), minlength=width * len(lines)).reshape(-1, width)

    rises = at_turn(level - below, level + above)
    slope = np.cumsum(rises - at_turn(level, level + above - below), axis=1)
    # All the way round, nothing is gained, and each slot meets each.
    shared = np.cumsum(slope - slope.sum(axis=1, keepdims=True) // width, axis=1)
    missing = (above * below).sum(axis=0) - shared.sum(axis=1)
    return np.asarray(width - shared - missing[:, None] // width)
