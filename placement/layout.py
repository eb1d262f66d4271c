"""Layouts: which zone carries each block of the grid, and what that cuts."""

from __future__ import annotations

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockAxis, BlockGrid
from placement.traffic import Pattern

Layout = Ints  # shape (rows, width): the zone of each block


def layout_cost(grid: BlockGrid, layout: Layout) -> int:
    """Doubled cut of `layout` in the grid's units. Cost: O(blocks), 50 us for 2,048."""
    cost = 2 * grid.row_weight * int(np.count_nonzero(layout[1:] != layout[:-1]))
    if grid.row_wrap:
        cost += 2 * grid.row_wrap * int(np.count_nonzero(layout[0] != layout[-1]))
    stride = 1
    for axis in grid.slice_axes:
        lines = layout.reshape(-1, axis.size, stride)
        cost += 2 * axis.weight * _axis_cuts(axis, lines)
        stride *= axis.size
    return cost


def _axis_cuts(axis: BlockAxis, lines: Ints) -> int:
    """Edges cut along one axis; shape of `lines`: (.., size, stride)."""
    if axis.pattern is Pattern.RING:
        inner = int(np.count_nonzero(lines[:, 1:] != lines[:, :-1]))
        return inner + int(np.count_nonzero(lines[:, 0] != lines[:, -1]))
    groups = np.sort(np.moveaxis(lines, 1, -1).reshape(-1, axis.size), axis=1)
    starts = groups[:, 1:] != groups[:, :-1]
    if axis.pattern is Pattern.HIERARCHICAL:
        return int(np.count_nonzero(starts))
    return _pairs_apart(groups)


def _pairs_apart(groups: Ints) -> int:
    """Ordered pairs of group members in different zones."""
    size = groups.shape[1]
    groups = groups - groups.min()  # what lies outside the region is one zone like any other
    zones = int(groups.max()) + 1
    flat = np.bincount(
        (np.arange(len(groups))[:, None] * zones + groups).ravel(), minlength=len(groups) * zones
    )
    return int(len(groups) * size * size - np.sum(flat**2))


def counts(layout: Layout, zones: int) -> Ints:
    """Blocks of each row in each zone. Shape: (zones, rows)."""
    rows = layout.shape[0]
    flat = np.bincount((layout * rows + np.arange(rows)[:, None]).ravel(), minlength=zones * rows)
    return flat.reshape(zones, rows)
