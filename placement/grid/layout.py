"""Layouts: which zone carries each block of the grid, and what that cuts.

See docs/engine.md, "The problem".
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.workload.traffic import Pattern

RING, HIERARCHICAL, ALL_TO_ALL = range(3)
KINDS = {Pattern.RING: RING, Pattern.HIERARCHICAL: HIERARCHICAL}
Layout = Ints  # shape (rows, width): the zone of each block
Region = npt.NDArray[np.bool_]  # shape (rows, width): whether a block belongs to it
ZonePattern = tuple[int, ...]  # blocks of each row in one zone


class Axes(NamedTuple):
    """Axes of a grid: `kind` of each, `size` in blocks, `stride`, and `weight`."""

    kind: Ints
    size: Ints
    stride: Ints
    weight: Ints


def _line_cuts(layout: Ints, kind: int, first: int, size: int, stride: int, held: Ints) -> int:
    """Edges cut on one line of cells. `held`: zeros, for each zone and for none, and again
    zeros afterwards."""
    cuts, begin = 0, 0
    if kind == RING:
        before = layout[first + (size - 1) * stride]
        for k in range(size):
            zone = layout[first + k * stride]
            cuts += zone != before
            before = zone
        return cuts
    while begin < size:  # run by run of cells of one zone
        zone, end = layout[first + begin * stride], begin + 1
        while end < size and layout[first + end * stride] == zone:
            end += 1
        if kind == ALL_TO_ALL:
            cuts -= (end - begin) * (2 * held[zone + 1] + end - begin)
        elif not held[zone + 1]:
            cuts += 1
        held[zone + 1] += end - begin
        begin = end
    for k in range(size):
        held[layout[first + k * stride] + 1] = 0
    return cuts + size * size if kind == ALL_TO_ALL else cuts - 1


def row_cost(layout: Ints, row: int, width: int, axes: Axes, held: Ints) -> int:
    """What is cut between the cells of a row."""
    cost = 0
    for axis in range(len(axes.kind)):
        kind, size, stride, cuts = axes.kind[axis], axes.size[axis], axes.stride[axis], 0
        for begin in range(row * width, (row + 1) * width, size * stride):
            for first in range(begin, begin + stride):
                cuts += _line_cuts(layout, kind, first, size, stride, held)
        cost += axes.weight[axis] * cuts
    return cost


def rows_apart(layout: Ints, row: int, other: int, width: int) -> int:
    """Slots that two rows have in different zones."""
    count, more = 0, (other - row) * width
    for cell in range(row * width, (row + 1) * width):
        count += layout[cell] != layout[cell + more]
    return count


COST_PARTS = (_line_cuts, row_cost, rows_apart)


def layout_cost(grid: BlockGrid, layout: Layout) -> int:
    """Doubled cut of `layout` in the grid's units. Cost: O(blocks), 0.1 ms for 2,048."""
    cost = grid.row_weight * np.count_nonzero(layout[1:] != layout[:-1])
    cost += grid.row_wrap * np.count_nonzero(layout[0] != layout[-1])
    stride = 1
    for axis in grid.slice_axes:
        lines = layout.reshape(grid.rows, -1, axis.size, stride)
        cost += axis.weight * _cut_of_lines(np.moveaxis(lines, 2, -1), axis.pattern)
        stride *= axis.size
    return 2 * int(cost)


def _cut_of_lines(lines: Ints, pattern: Pattern) -> int:
    """Edges cut on lines of cells, or zones beyond the first on a hierarchical axis. Shape:
    (.., size)."""
    if pattern is Pattern.RING:
        return int(np.count_nonzero(lines != np.roll(lines, 1, axis=-1)))
    ordered = np.sort(lines, axis=-1)
    begins = ordered[..., 1:] != ordered[..., :-1]
    if pattern is Pattern.HIERARCHICAL:
        return int(np.count_nonzero(begins))
    first = np.ones((*lines.shape[:-1], 1), dtype=np.bool_)
    runs = np.diff(np.flatnonzero(np.concatenate([first, begins], axis=-1)), append=lines.size)
    return int(lines.size * lines.shape[-1] - (runs**2).sum())


def axes_of(grid: BlockGrid) -> Axes:
    """Of the slots, for compiled loops."""
    sizes = [axis.size for axis in grid.slice_axes]
    kinds = [KINDS.get(axis.pattern, ALL_TO_ALL) for axis in grid.slice_axes]
    strides = [prod(sizes[:k]) for k in range(len(sizes))]
    weights = [axis.weight for axis in grid.slice_axes]
    return Axes(*np.array([kinds, sizes, strides, weights], dtype=np.int64))


def counts(layout: Layout, zones: int) -> Ints:
    """Blocks of each row in each zone. Shape: (zones, rows)."""
    rows = layout.shape[0]
    flat = np.bincount((layout * rows + np.arange(rows)[:, None]).ravel(), minlength=zones * rows)
    return flat.reshape(zones, rows)


def patterns_of(layout: Layout, zones: int) -> list[ZonePattern]:
    """Blocks of each row, of each zone that holds some."""
    return [tuple(int(n) for n in rows) for rows in counts(layout, zones) if rows.any()]
