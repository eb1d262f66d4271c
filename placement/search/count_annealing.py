"""Annealing of counts: how many slots of each row a zone holds, whichever these are.

Where slots lie on one ring, or in a hierarchical group, what a layout cuts follows from these
counts, so a zone's border moves in one step where single blocks would climb over a hill for each
of them. A proposal is a rectangle, so many slots of some neighbouring rows, that goes from one
zone to another, and often a second one that comes back. Amounts are those that level two rows,
or all there is. `transfer` is the inner loop.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, counts
from placement.kernels import Kernel, refill
from placement.search.annealing import DRAWS, _next
from placement.workload.traffic import Pattern

TEMPERATURES = 200
HOT, COLD = 0.15, 0.3  # of the dearer, and the cheaper, of a border along a row and a slot across
LONGER = 3 << 30  # of 32 bits: a rectangle that has one row more
SINGLE = 1_431_655_765  # of 32 bits: one that stays a row, a third
HALF = 1 << 31
NOTHING = -(1 << 40)  # hosts: no proposal


class ZoneCounts(NamedTuple):
    """`slots` of each zone, row by row, and the `best` so far. By zone: hosts `used`, its `room`,
    and what it pays, `paid`. `here` and `there`: two zones as they would be."""

    slots: Ints
    best: Ints
    used: Ints
    room: Ints
    paid: Ints
    here: Ints
    there: Ints


class BorderPrices(NamedTuple):
    """Of n slots of a row, and of each slot that a zone has more in a row than in the next."""

    step: Ints
    slot: int


def _paid(prices: BorderPrices, held: Ints) -> int:
    """What a zone pays."""
    cost: int = prices.step[held[0]]
    for row in range(1, len(held)):
        apart = held[row] - held[row - 1]
        cost += prices.step[held[row]] + prices.slot * (apart if apart > 0 else -apart)
    return cost


def _some_rows(held: Ints, word: int) -> tuple[int, int, int]:
    """First and last of neighbouring rows of which the zone holds some; -1 for none. And the last
    random word."""
    word = _next(word)
    first = last = word * len(held) >> 32
    if not held[first]:
        return -1, -1, word
    word = _next(word)
    if word > SINGLE:
        word = _next(word)
        while word < LONGER and last + 1 < len(held) and held[last + 1]:
            last += 1
            word = _next(word)
        word = _next(word)
        while word < LONGER and first > 0 and held[first - 1]:
            first -= 1
            word = _next(word)
    return first, last, word


def _beyond(held: Ints, row: int) -> int:
    """What the zone holds of a row; nothing outside the grid."""
    many: int = held[row] if 0 <= row < len(held) else 0
    return many


def _many(held: Ints, other: Ints, first: int, last: int, word: int) -> tuple[int, int]:
    """How many slots of each of these rows may go to the other zone, and the last random word."""
    most = held[first]
    for row in range(first + 1, last + 1):
        most = min(most, held[row])
    word = _next(word)
    kind = word * 5 >> 32
    edge, beyond = (first, first - 1) if word & 1 else (last, last + 1)
    many = most
    if kind == 2:
        many = min(most, held[edge] - _beyond(held, beyond))
    elif kind == 3:
        many = min(most, _beyond(other, beyond) - other[edge])
    elif kind == 4:
        word = _next(word)
        many = 1 + (word * most >> 32)
    return many, word


def _moved(held: Ints, other: Ints, first: int, last: int, many: int) -> None:
    for row in range(first, last + 1):
        held[row] -= many
        other[row] += many


def _proposed(now: ZoneCounts, here: int, there: int, word: int) -> tuple[int, int]:
    """Write how two zones would be: how many hosts more the second one would have, NOTHING where
    that is no proposal. And the last random word."""
    rows = len(now.here)
    held = now.slots[here * rows : here * rows + rows]
    other = now.slots[there * rows : there * rows + rows]
    first, last, word = _some_rows(held, word)
    if first < 0:
        return NOTHING, word
    many, word = _many(held, other, first, last, word)
    if many <= 0:
        return NOTHING, word
    for row in range(rows):
        now.here[row], now.there[row] = held[row], other[row]
    more = many * (last + 1 - first)
    lacking = now.used[there] + more - now.room[there]
    _moved(now.here, now.there, first, last, many)
    word = _next(word)
    if lacking > 0 or word < HALF:
        first, last, word = _some_rows(now.there, word)
        if first >= 0:
            many, word = _many(now.there, now.here, first, last, word)
            word = _next(word)
            if lacking > 0 and word < HALF:
                many = (lacking + last - first) // (last + 1 - first)
            for row in range(first, last + 1):
                many = min(many, now.there[row])
            if many > 0:
                _moved(now.there, now.here, first, last, many)
                more -= many * (last + 1 - first)
    if now.used[there] + more > now.room[there] or now.used[here] - more > now.room[here]:
        return NOTHING, word
    return more, word


def _transfer(
    now: ZoneCounts,
    prices: BorderPrices,
    temperatures: npt.NDArray[np.float64],
    draws: npt.NDArray[np.float64],
    each: int,
    enough: int,
    word: int,
) -> int:
    """So many proposals at each temperature, until `enough` is saved; how much was at most.
    `word`: not zero."""
    rows, zones = len(now.here), len(now.used)
    for zone in range(zones):
        now.paid[zone] = _paid(prices, now.slots[zone * rows : zone * rows + rows])
    saved: int = 0
    most_saved: int = 0
    for warmth in temperatures:
        for _ in range(each):
            word = _next(word)
            here = word * zones >> 32
            word = _next(word)
            there = (here + 1 + (word * (zones - 1) >> 32)) % zones
            more, word = _proposed(now, here, there, word)
            if more == NOTHING:
                continue
            pays, other_pays = _paid(prices, now.here), _paid(prices, now.there)
            dearer = pays + other_pays - now.paid[here] - now.paid[there]
            word = _next(word)
            if dearer > warmth * draws[word >> 22]:
                continue
            for row in range(rows):
                now.slots[here * rows + row] = now.here[row]
                now.slots[there * rows + row] = now.there[row]
            now.paid[here], now.paid[there] = pays, other_pays
            now.used[here] -= more
            now.used[there] += more
            saved -= dearer
            if saved > most_saved:
                most_saved = saved
                refill(now.best, now.slots)
                if most_saved >= enough:
                    return most_saved
    return most_saved


transfer = Kernel(_transfer, _next, _paid, _some_rows, _beyond, _many, _moved, _proposed)


def is_counted(grid: BlockGrid) -> bool:
    """Whether counts tell what a layout cuts, on a ring one in which zones lie in one order in all
    rows; and there is something to weigh."""
    patterns = [axis.pattern for axis in grid.slice_axes]
    return grid.rows > 1 and patterns in ([Pattern.HIERARCHICAL], [Pattern.RING])


def counts_cost(grid: BlockGrid, slots: Ints) -> int:
    """The doubled cut of a layout with so many slots of each row in each zone, at least. Shape:
    (zones, rows)."""
    return int(grid.step[slots].sum() + grid.between(slots).sum()) - grid.offset


def transferred(
    grid: BlockGrid, capacities: Sequence[int], start: Layout, proposals: int, target: int, run: int
) -> Ints:
    """Slots of each row in each zone after so many proposals, the best met. Ends at a doubled cut
    of `target`. `run`: a number, with each of which it goes another way. Shape: (zones, rows)."""
    slots = counts(start, len(capacities))
    zones = [z for z, c in enumerate(capacities) if c]
    held = slots[zones].astype(np.int64)
    row = np.zeros(grid.rows, dtype=np.int64)
    now = ZoneCounts(
        slots=held.ravel(),
        best=held.ravel().copy(),
        used=held.sum(axis=1),
        room=np.array([capacities[z] for z in zones], dtype=np.int64),
        paid=np.zeros(len(zones), dtype=np.int64),
        here=row,
        there=row.copy(),
    )
    scales = [scale for scale in (int(grid.step.max()), grid.row_weight) if scale]
    if len(zones) > 1 and scales:
        first, last = HOT * max(scales), COLD * min(scales)
        ratio = (last / first) ** (1 / (TEMPERATURES - 1))
        heats = np.array([round(first * ratio**k, 3) for k in range(TEMPERATURES)])
        cost = counts_cost(grid, held)
        prices = BorderPrices(grid.step, grid.row_weight)
        each = max(1, proposals // TEMPERATURES)
        word = 7919 * (run + 1)
        transfer.run(*(proposals * grid.rows, now, prices, heats, DRAWS, each, cost - target, word))
    slots[zones] = now.best.reshape(held.shape)
    return slots
