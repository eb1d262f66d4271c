"""Which slots of a row each zone has, given how many: side by side, in one order round the ring.

A cover says how many slots of each row a zone holds, and what that costs at least. Where slots
lie on a ring it is reached if every zone is one run in each row, and the runs of neighbouring
rows lie below one another. All rows keep the zones in one order round the ring, and each row is
turned: for a given order the best turns of all rows are a dynamic program, for what two rows
cut depends on the difference of their turns alone. The order is searched, one zone at a time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.compiled import Kernel, refill
from placement.fabric import Ints

TRIES = 400  # orders
MOST_STEPS = 40_000_000  # slots compared in all of them: some 50 ms


class Ring(NamedTuple):
    """Rows of runs: `slots` by zone and row. `weight`: of a slot that another zone has in the next
    row; `parted`: of a border at no multiple of `period`."""

    slots: Ints
    rows: int
    width: int
    weight: int
    period: int
    parted: int


class Turns(NamedTuple):
    """The best `turns`, by row. Room to work in: by turn of a row, the least `cost` up to it and to
    the `next` one, by their difference, twice round the ring, slots that two rows have `apart`, and
    the best `ways` to each turn of each row. `borders` by residue."""

    turns: Ints
    cost: Ints
    next: Ints
    apart: Ints
    ways: Ints
    borders: Ints


def _bordered(ring: Ring, order: Ints, row: int, turns: Turns) -> None:
    """Add what borders between zones part, by the turn of the row."""
    borders, period = turns.borders, ring.period
    for k in range(period):
        borders[k] = 0
    at = many = 0
    for zone in order:
        held = ring.slots[zone * ring.rows + row]
        if held:
            borders[at % period] += 1
            many += 1
        at += held
    if many > 1:
        for turn in range(ring.width):
            turns.cost[turn] += ring.parted * (many - borders[-turn % period])


def _compared(ring: Ring, order: Ints, row: int, turns: Turns) -> None:
    """Slots that a row and the one above it have in different zones, by how much further it is
    turned."""
    apart, width, above, below = turns.apart, ring.width, 0, 0
    for k in range(2 * width):
        apart[k] = width
    for zone in order:
        end = above + ring.slots[zone * ring.rows + row - 1]
        last = below + ring.slots[zone * ring.rows + row]
        for a in range(above, end):
            for b in range(below, last):
                apart[a - b if a >= b else a - b + width] -= 1
        above, below = end, last
    for k in range(width):
        apart[k + width] = apart[k]


def _turned(ring: Ring, order: Ints, turns: Turns) -> int:
    """The least cost in this order of zones, by a dynamic program over the turns of the rows."""
    cost, following, apart, width = turns.cost, turns.next, turns.apart, ring.width
    for k in range(width):
        cost[k] = 0
    if ring.parted:
        _bordered(ring, order, 0, turns)
    for row in range(1, ring.rows):
        _compared(ring, order, row, turns)
        for turn in range(width):
            least, way = cost[0] + ring.weight * apart[turn + width], 0
            for before in range(1, width):
                found = cost[before] + ring.weight * apart[turn - before + width]
                if found < least:
                    least, way = found, before
            following[turn], turns.ways[row * width + turn] = least, way
        refill(cost, following)
        if ring.parted:
            _bordered(ring, order, row, turns)
    last = 0
    for k in range(width):
        if cost[k] < cost[last]:
            last = k
    paid: int = cost[last]
    for row in range(ring.rows - 1, -1, -1):
        turns.turns[row] = last
        last = turns.ways[row * width + last]
    return paid


turned = Kernel(_turned, _bordered, _compared)


def arranged(slots: Ints, row_weight: int, period: int = 1, parted: int = 0) -> Ints:
    """The zone of each slot of each row. Shapes: (zones, rows) to (rows, width).

    `row_weight`: of a slot that another zone has in the next row. `parted`: of a border between
    zones at no multiple of `period`, where a group ends. Ends where nothing else is cut than what
    the counts of slots alone tell.
    """
    zones = [int(z) for z in np.flatnonzero(slots.any(axis=1))]
    begins = np.argmax(slots > 0, axis=1)
    order = sorted(zones, key=lambda z: (begins[z], -slots[z].max(), z))
    rows, width = slots.shape[1], int(slots[:, 0].sum())
    flat = np.ascontiguousarray(slots, dtype=np.int64).ravel()
    ring = Ring(flat, rows, width, row_weight, period, parted)
    room = Turns(*(np.zeros(n, dtype=np.int64) for n in _sizes(rows, width, period)))
    steps = rows * width**2

    def turn(order: Sequence[int]) -> tuple[int, Ints]:
        cost = turned.run(steps, ring, np.array(order, dtype=np.int64), room)
        return int(cost), room.turns.copy()

    rng = random.Random(f"arrange {slots.tolist()}")
    cost, turns = turn(order)
    target = row_weight * int(np.abs(np.diff(slots, axis=1)).sum()) // 2
    for _ in range(min(TRIES, MOST_STEPS // steps) if len(zones) > 2 else 0):
        if cost <= target:
            break
        tried = order.copy()
        zone = tried.pop(rng.randrange(len(tried)))
        tried.insert(rng.randrange(len(order)), zone)
        found, others = turn(tried)
        if found <= cost:
            cost, order, turns = found, tried, others
    runs = (np.repeat(order, held) for held in slots[order].T)
    return np.array([np.roll(row, by) for row, by in zip(runs, turns.tolist(), strict=True)])


def _sizes(rows: int, width: int, period: int) -> tuple[int, ...]:
    """Of what there is in `Turns`."""
    return rows, width, width, 2 * width, rows * width, period
