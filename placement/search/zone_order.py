"""Which slots of a row each zone has, given how many: side by side, in one order round the ring.

A cover says how many slots of each row a zone holds, and what that costs at least. Where slots
lie on a ring it is reached if every zone is one run in each row, and the runs of neighbouring
rows lie below one another. All rows keep the zones in one order round the ring, and each row is
turned: for a given order the best turns of all rows are a dynamic program, for what two rows
cut depends on the difference of their turns alone. The order is searched, one zone at a time.

What the runs of a zone in two rows share, by that difference, is a trapezoid: it bends at four
places, which are added up over all zones before anything is summed. And what borders cost repeats
with the groups, so the search looks at one turn of each kind; all are distinguished at the end.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random

import numpy as np

from placement.fabric.tree import Ints

TRIES = 400  # orders
MOST_STEPS = 40_000_000  # pairs of slots that lie below one another in all of them


def arranged(slots: Ints, row_weight: int, period: int = 1, parted: int = 0) -> Ints:
    """The zone of each slot of each row. Shapes: (zones, rows) to (rows, width).

    `row_weight`: of a slot that another zone has in the next row. `parted`: of a border between
    zones at no multiple of `period`, where a group ends; the width is one. Ends where nothing else
    is cut than what the counts of slots alone tell.
    """
    zones = [int(z) for z in np.flatnonzero(slots.any(axis=1))]
    begins = np.argmax(slots > 0, axis=1)
    order = sorted(zones, key=lambda z: (begins[z], -slots[z].max(), z))
    ring = _Ring(slots, row_weight, period, parted)
    rng = random.Random(f"arrange {slots.tolist()}")
    cost = ring.least(order)
    target = row_weight * int(np.abs(np.diff(slots, axis=1)).sum()) // 2
    affordable = MOST_STEPS // (slots.shape[1] * int(slots[:, 0].sum()) ** 2)
    for _ in range(min(TRIES, affordable) if len(zones) > 2 else 0):
        if cost <= target:
            break
        tried = order.copy()
        zone = tried.pop(rng.randrange(len(tried)))
        tried.insert(rng.randrange(len(order)), zone)
        found = ring.least(tried)
        if found <= cost:
            cost, order = found, tried
    turned = zip(ring.rows(order), ring.turns(order), strict=True)
    return np.array([np.roll(row, turn) for row, turn in turned])


class _Ring:
    """Rows of runs, each turned by some slots."""

    def __init__(self, slots: Ints, row_weight: int, period: int, parted: int) -> None:
        self._slots, self._weight = slots, row_weight
        self._period, self._parted = period, parted
        self._width = int(slots[:, 0].sum())

    def rows(self, order: list[int]) -> list[Ints]:
        return [np.repeat(order, counts) for counts in self._slots[order].T]

    def least(self, order: list[int]) -> int:
        """The least cost in this order."""
        kinds = self._period if self._parted else 1
        apart = self._apart(order)
        apart = apart.reshape(len(apart), self._width // kinds, kinds).min(axis=1)
        if not self._parted:
            return int(apart.sum())
        first, *others = self.rows(order)
        further = _differences(kinds)
        cost = self._borders(first)[:kinds]
        for below, by_kind in zip(others, apart, strict=True):
            cost = (cost + by_kind[further]).min(axis=1) + self._borders(below)[:kinds]
        return int(cost.min())

    def turns(self, order: list[int]) -> list[int]:
        """Of each row, at the least cost in this order."""
        first, *others = self.rows(order)
        further = _differences(self._width)
        cost, ways = self._borders(first), []
        for below, by_turn in zip(others, self._apart(order), strict=True):
            # By the turn of the row below, and of the row above.
            total = cost + by_turn[further]
            ways.append(np.argmin(total, axis=1))
            cost = total.min(axis=1) + self._borders(below)
        turns = [int(np.argmin(cost))]
        for way in reversed(ways):
            turns.append(int(way[turns[-1]]))
        return turns[::-1]

    def _apart(self, order: list[int]) -> Ints:
        """What each row and the next one cut, by how much further the next one is turned. Shape:
        (rows - 1, width)."""
        slots, width = self._slots[order], self._width
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
        return np.asarray(self._weight * (width - shared - missing[:, None] // width))

    def _borders(self, row: Ints) -> Ints:
        """What borders between zones part, by the turn of the row."""
        at = np.arange(len(row))
        if not self._parted:
            return np.zeros_like(at)
        borders = np.flatnonzero(row != np.roll(row, 1))
        of_residue = np.bincount(borders % self._period, minlength=self._period)
        return np.asarray(self._parted * (len(borders) - of_residue[-at % self._period]))


def _differences(turns: int) -> Ints:
    """How much further the one than the other is turned, on a ring."""
    at = np.arange(turns)
    return (at[:, None] - at[None, :]) % turns
