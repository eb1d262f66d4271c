"""Layouts: which zone carries each block of the grid, and what that cuts."""

from __future__ import annotations

from math import prod

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.search.tree_kernels import ALL_TO_ALL, HIERARCHICAL, RING, Axes, grid_cost
from placement.workload.traffic import Pattern

KINDS = {Pattern.RING: RING, Pattern.HIERARCHICAL: HIERARCHICAL}
Layout = Ints  # shape (rows, width): the zone of each block


def layout_cost(grid: BlockGrid, layout: Layout) -> int:
    """Doubled cut of `layout` in the grid's units. Cost: O(blocks), 10 us for 2,048."""
    flat = np.ascontiguousarray(layout).ravel()
    axes = axes_of(grid)
    held = np.zeros(max(int(flat.max()), 0) + 2, dtype=np.int64)
    steps = len(flat) * (1 + 2 * len(axes.kind))
    cost = grid_cost.run(steps, flat, grid.width, grid.row_weight, grid.row_wrap, axes, held)
    return int(cost)


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


def patterns_of(layout: Layout, zones: int) -> list[tuple[int, ...]]:
    """Blocks of each row, of each zone that holds some."""
    return [tuple(int(n) for n in rows) for rows in counts(layout, zones) if rows.any()]
