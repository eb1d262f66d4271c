"""Layouts from the integer master: whole patterns, one a zone, that cover every row.

The column generation behind the bound leaves patterns that are good in fractions. This
picks whole ones at least cost with CP-SAT, gives each to a zone that it fits, trims what
is covered twice, and lays every row out in one order of the zones.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.bound.pricing import pattern_cost
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, ZonePattern, layout_cost
from placement.search.zone_order import arranged
from placement.solver import INFINITY, IntegerProgram
from placement.workload.traffic import Pattern

WORK = 0.1  # deterministic time of CP-SAT without presolve, about a sixth of a second


def is_counted(grid: BlockGrid) -> bool:
    """Whether counts tell what a layout cuts, on a ring one in which zones lie in one order in all
    rows; and there is something to weigh."""
    patterns = [axis.pattern for axis in grid.slice_axes]
    return grid.rows > 1 and patterns in ([Pattern.HIERARCHICAL], [Pattern.RING])


def counts_cost(grid: BlockGrid, slots: Ints) -> int:
    """The doubled cut of a layout with so many slots of each row in each zone, at least. Shape:
    (zones, rows)."""
    return int(grid.step[slots].sum() + grid.between(slots).sum()) - grid.offset


def covering_slots(
    grid: BlockGrid,
    capacities: Sequence[int],
    patterns: Sequence[ZonePattern],
    known: Sequence[ZonePattern] = (),
) -> Ints | None:
    """Slots of each row in each zone out of these patterns; None when CP-SAT finds no cover in its
    time. `known`: a cover to begin with. Shape: (zones, rows)."""
    is_cover = _is_cover(grid, capacities, patterns)
    chosen = patterns if is_cover else _chosen(grid, capacities, patterns, known)
    if chosen is None:
        return None
    zones = sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))
    slots = np.zeros((len(capacities), grid.rows), dtype=np.int64)
    for zone, pattern in zip(zones, sorted(chosen, key=lambda p: (-sum(p), p)), strict=False):
        slots[zone] = pattern
    return _trimmed(grid, slots)


def laid_out(grid: BlockGrid, slots: Ints) -> Layout:
    """A layout with so many slots of each row in each zone."""
    layouts = [_in_order(grid, slots), _kept(grid, slots)]
    if [axis.pattern for axis in grid.slice_axes] == [Pattern.RING]:
        layouts.append(arranged(slots, grid.row_weight))
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
        program.row(grid.width, INFINITY, entries)
    for size, least in zip(classes, smaller, strict=True):
        entries = [(x, 1) for x, p in zip(copies, patterns, strict=True) if sum(p) > least]
        program.row(-INFINITY, sum(c >= size for c in capacities), entries)
    if known:
        program.hint([known.count(p) for p in patterns])
    values = program.solve(WORK)
    if values is None:
        return None
    return [p for x, p in zip(copies, patterns, strict=True) for _ in range(values[x])]


def _trimmed(grid: BlockGrid, slots: Ints) -> Ints:
    """What a row has too much comes off the zone that holds least of it."""
    for s in np.flatnonzero(slots.sum(axis=0) > grid.width):
        excess = int(slots[:, s].sum()) - grid.width
        for zone in np.argsort(slots[:, s], kind="stable"):
            cut = min(excess, int(slots[zone, s]))
            slots[zone, s] -= cut
            excess -= cut
    return slots


def _kept(grid: BlockGrid, slots: Ints) -> Layout:
    """Every slot stays in the zone of the row before where the zone's count allows it.

    Exact where the order of slots costs nothing, as with one hierarchical axis: two rows
    then differ by as many slots as zones give up, no more.
    """
    layout = _in_order(grid, slots)
    for s in range(1, grid.rows):
        left = slots[:, s].copy()
        row = np.full(grid.width, -1)
        for d, zone in enumerate(layout[s - 1]):
            if left[zone]:
                row[d] = zone
                left[zone] -= 1
        row[row < 0] = np.repeat(np.arange(len(left)), left)
        layout[s] = row
    return layout


def _in_order(grid: BlockGrid, slots: Ints) -> Layout:
    """Every row in the same order of zones: those that begin higher up come first."""
    first_row = np.where(slots.any(axis=1), np.argmax(slots > 0, axis=1), grid.rows)
    order = np.lexsort((np.arange(len(slots)), -slots.max(axis=1), first_row))
    rows = [np.repeat(order, slots[order, s]) for s in range(grid.rows)]
    return np.array(rows, dtype=np.int64)
