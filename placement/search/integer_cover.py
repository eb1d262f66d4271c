"""Layouts from the integer master: whole patterns, one a zone, that cover every row.

The column generation behind the bound leaves patterns that are good in fractions. This
picks whole ones at least cost with CP-SAT, gives each to a zone that it fits, trims what
is covered twice, and lays every row out in one order of the zones.

Where slots lie on a ring, what the patterns cost is reached if every zone is one run in each row,
and the runs of neighbouring rows lie below one another. All rows keep the zones in one order round
the ring, and each row is turned against the one before by as much as cuts least; the order is
searched, one zone at a time (`arranged`). What the runs of a zone in two rows share, by the turn,
is a trapezoid: it bends at four places, added up over all zones before anything is summed.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from placement.bound.pricing import pattern_cost
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, ZonePattern, layout_cost
from placement.search.graph_slicing import by_room
from placement.solver import IntegerProgram
from placement.workload.traffic import Pattern

TRIES = 400  # orders of zones
MOST_STEPS = 40_000_000  # pairs of slots that lie below one another in all of them
WORK = 0.1  # deterministic time of CP-SAT without presolve, about a sixth of a second


def is_counted(grid: BlockGrid) -> bool:
    """Return whether the counts of slots tell what a layout cuts (on a ring, a layout in which
    zones lie in one order in all rows), and there is something to cut."""
    patterns = [axis.pattern for axis in grid.slice_axes]
    return grid.rows > 1 and patterns in ([Pattern.HIERARCHICAL], [Pattern.RING])


def counts_cost(grid: BlockGrid, slots: Ints) -> int:
    """Return a lower bound on the doubled cut of layouts with these `slots` of each row in each
    zone. Shape: (zones, rows)."""
    return int(grid.step[slots].sum() + grid.between(slots).sum()) - grid.offset


def covering_slots(
    grid: BlockGrid,
    capacities: Sequence[int],
    patterns: Sequence[ZonePattern],
    known: Sequence[ZonePattern] = (),
) -> Ints | None:
    """Choose patterns that cover the grid, and return the slots of each row in each zone; None when
    CP-SAT finds no cover in its time. `known`: a cover to begin with. Shape: (zones, rows)."""
    is_cover = _is_cover(grid, capacities, patterns)
    chosen = patterns if is_cover else _chosen(grid, capacities, patterns, known)
    if chosen is None:
        return None
    slots = np.zeros((len(capacities), grid.rows), dtype=np.int64)
    largest = sorted(chosen, key=lambda p: (-sum(p), p))
    for zone, pattern in zip(by_room(capacities), largest, strict=False):
        slots[zone] = pattern
    return _trimmed(grid, slots)


def laid_out(grid: BlockGrid, slots: Ints) -> Layout:
    """Return a layout with so many slots of each row in each zone."""
    layouts = _keep_slots(grid, slots), arranged(slots, grid.row_weight)
    return min(layouts, key=lambda layout: layout_cost(grid, layout))


def _is_cover(grid: BlockGrid, capacities: Sequence[int], patterns: Sequence[ZonePattern]) -> bool:
    """Whether they cover each row just once, and there is a zone for each of them."""
    held = sorted(map(sum, patterns), reverse=True)
    fits = len(held) <= len(capacities) and not any(
        many > room for many, room in zip(held, sorted(capacities, reverse=True), strict=False)
    )
    return fits and all(sum(row) == grid.width for row in zip(*patterns, strict=True))


def _chosen(
    grid: BlockGrid,
    capacities: Sequence[int],
    patterns: Sequence[ZonePattern],
    known: Sequence[ZonePattern],
) -> list[ZonePattern] | None:
    """Patterns with repetition: rows covered, and at most as many large ones as there are
    large zones."""
    patterns = list(dict.fromkeys([*patterns, *known]))
    classes = sorted({c for c in capacities if c}, reverse=True)
    smaller = [*classes[1:], 0]
    program = IntegerProgram()
    copies = [program.variable(len(capacities), pattern_cost(grid, p)) for p in patterns]
    for s in range(grid.rows):
        entries = [(x, p[s]) for x, p in zip(copies, patterns, strict=True) if p[s]]
        program.row(grid.width, None, entries)
    for size, least in zip(classes, smaller, strict=True):
        entries = [(x, 1) for x, p in zip(copies, patterns, strict=True) if sum(p) > least]
        program.row(None, sum(c >= size for c in capacities), entries)
    if known:
        program.hint([known.count(p) for p in patterns])
    values = program.solve(WORK)
    if values is None:
        return None
    return [p for x, p in zip(copies, patterns, strict=True) for _ in range(values[x])]


def _trimmed(grid: BlockGrid, slots: Ints) -> Ints:
    """Take what a row has too much from the zone that holds least of it."""
    for s in np.flatnonzero(slots.sum(axis=0) > grid.width):
        excess = int(slots[:, s].sum()) - grid.width
        for zone in np.argsort(slots[:, s], kind="stable"):
            cut = min(excess, int(slots[zone, s]))
            slots[zone, s] -= cut
            excess -= cut
    return slots


def _keep_slots(grid: BlockGrid, slots: Ints) -> Layout:
    """Every slot stays in the zone of the row before where the zone's count allows it.

    Exact where the order of slots costs nothing, as with one hierarchical axis: two rows
    then differ by as many slots as zones give up, no more.
    """
    rows = [np.repeat(np.arange(len(slots)), slots[:, 0])]
    for left in slots.T[1:].copy():
        row = np.full(grid.width, -1)
        for d, zone in enumerate(rows[-1]):
            if left[zone]:
                row[d] = zone
                left[zone] -= 1
        row[row < 0] = np.repeat(np.arange(len(left)), left)
        rows.append(row)
    return np.array(rows)


def arranged(slots: Ints, row_weight: int) -> Ints:
    """Arrange the slots of each row on a ring, and return the zone of each slot. Shapes: (zones,
    rows) to (rows, width).

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
        seating = _least(slots[tried])
        if seating <= cost:
            cost, order = seating, tried
    turns = np.cumsum([0, *np.argmin(_apart(slots[order]), axis=1)])
    rows = [np.repeat(order, counts) for counts in slots[order].T]
    return np.array([np.roll(row, turn) for row, turn in zip(rows, turns, strict=True)])


def _least(slots: Ints) -> int:
    """Slots in another zone than in the next row, in this order of the zones."""
    return int(_apart(slots).min(axis=1).sum())


def _apart(slots: Ints) -> Ints:
    """Count the slots of each row in another zone than in the next, by turn of the next. Shape:
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
