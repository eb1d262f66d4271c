"""Which slots of a row each zone has, given how many: side by side, in one order round the ring.

A cover says how many slots of each row a zone holds, and what that costs at least. Where slots
lie on a ring it is reached if every zone is one run in each row, and the runs of neighbouring
rows lie below one another. All rows keep the zones in one order round the ring, and each row is
turned: for a given order the best turns of all rows are a dynamic program, for what two rows
cut depends on the difference of their turns alone. The order is searched, one zone at a time.
"""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from placement.fabric import Ints

TRIES = 400  # orders
MOST_STEPS = 40_000_000  # slots compared in all of them: some 50 ms


def arranged(slots: Ints, row_weight: int, period: int = 1, parted: int = 0) -> Ints:
    """The zone of each slot of each row. Shapes: (zones, rows) to (rows, width).

    `row_weight`: of a slot that another zone has in the next row. `parted`: of a border between
    zones at no multiple of `period`, where a group ends. Ends where nothing else is cut than what
    the counts of slots alone tell.
    """
    zones = [int(z) for z in np.flatnonzero(slots.any(axis=1))]
    begins = np.argmax(slots > 0, axis=1)
    order = sorted(zones, key=lambda z: (begins[z], -slots[z].max(), z))
    ring = _Ring(slots, row_weight, period, parted)
    rng = random.Random(f"arrange {slots.tolist()}")
    cost, turns = ring.turned(order)
    target = row_weight * int(np.abs(np.diff(slots, axis=1)).sum()) // 2
    affordable = MOST_STEPS // (slots.shape[1] * int(slots[:, 0].sum()) ** 2)
    for _ in range(min(TRIES, affordable) if len(zones) > 2 else 0):
        if cost <= target:
            break
        tried = order.copy()
        zone = tried.pop(rng.randrange(len(tried)))
        tried.insert(rng.randrange(len(order)), zone)
        found, others = ring.turned(tried)
        if found <= cost:
            cost, order, turns = found, tried, others
    return np.array([np.roll(row, turn) for row, turn in zip(ring.rows(order), turns, strict=True)])


class _Ring:
    """Rows of runs, each turned by some slots."""

    def __init__(self, slots: Ints, row_weight: int, period: int, parted: int) -> None:
        self._slots, self._weight = slots, row_weight
        self._period, self._parted = period, parted
        width = int(slots[:, 0].sum())
        at = np.arange(width)
        self._shifted = (at[None, :] - at[:, None]) % width

    def rows(self, order: list[int]) -> list[Ints]:
        return [np.repeat(order, counts) for counts in self._slots[order].T]

    def turned(self, order: list[int]) -> tuple[int, list[int]]:
        """The least cost in this order, and the turn of each row."""
        rows = self.rows(order)
        cost, ways = self._borders(rows[0]), []
        for above, below in pairwise(rows):
            apart = np.count_nonzero(above != below[self._shifted], axis=1)
            # By the turn of the row below, and of the row above.
            total = cost + self._weight * apart[self._shifted.T]
            ways.append(np.argmin(total, axis=1))
            cost = total.min(axis=1) + self._borders(below)
        turn = int(np.argmin(cost))
        turns = [turn]
        for way in reversed(ways):
            turns.append(int(way[turns[-1]]))
        return int(cost.min()), turns[::-1]

    def _borders(self, row: Ints) -> Ints:
        """What borders between zones part, by the turn of the row."""
        at = np.arange(len(row))
        if not self._parted:
            return np.zeros_like(at)
        borders = np.flatnonzero(row != np.roll(row, 1))
        of_residue = np.bincount(borders % self._period, minlength=self._period)
        return np.asarray(self._parted * (len(borders) - of_residue[-at % self._period]))
