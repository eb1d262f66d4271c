"""What the zone step minimises: the cut, the worst uplink, or the spread of groups.

A score orders layouts; the cut breaks ties of the other two. Scores are floats that the
search compares, never what is reported: the referee counts that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from placement.fabric import Ints
from placement.grid import BlockAxis, BlockGrid
from placement.layout import Layout, layout_cost
from placement.request import Objective
from placement.traffic import Pattern

Floats = npt.NDArray[np.float64]
Score = Callable[[Layout], float]
TIE = 1e-6  # weight of the cut beside what comes first
ALPHA = 0.5  # of the DP spread; the PP spread has the rest (Arnold, 2025, alpha + beta = 1)


def score_of(objective: Objective, grid: BlockGrid, uplink: Floats) -> Score:
    """A function to minimise. `uplink`: bytes/s of each zone, shape (zones,)."""
    everything = max(1, 2 * sum(grid.weights) * grid.size)

    def bottleneck(layout: Layout) -> float:
        worst = float((zone_egress(grid, layout, len(uplink)) / uplink).max())
        scale = everything / float(uplink.min())
        return worst + TIE * scale * layout_cost(grid, layout) / everything

    def weighted_spread(layout: Layout) -> float:
        return spread(grid, layout) + TIE * layout_cost(grid, layout) / everything

    match objective:
        case Objective.CUT:
            return lambda layout: float(layout_cost(grid, layout))
        case Objective.BOTTLENECK:
            return bottleneck
        case Objective.SPREAD:
            return weighted_spread


def zone_egress(grid: BlockGrid, layout: Layout, zones: int) -> Floats:
    """What leaves each zone, in the grid's units. Shape: (zones,).

    Of every cut edge each end sends half: a ring enters a zone as often as it leaves,
    and a chain edge carries as much forwards as back.
    """
    total = grid.row_weight * _ends(layout[:-1], layout[1:], zones)
    total += grid.row_wrap * _ends(layout[-1:], layout[:1], zones)
    stride = 1
    for axis in grid.slice_axes:
        lines = layout.reshape(-1, axis.size, stride)
        total += axis.weight * _axis_egress(axis, lines, zones)
        stride *= axis.size
    return total


def _ends(tail: Ints, head: Ints, zones: int) -> Floats:
    """Half a unit at either end of each edge between zones."""
    apart = tail != head
    ends = np.bincount(tail[apart], minlength=zones) + np.bincount(head[apart], minlength=zones)
    return ends / 2.0


def _axis_egress(axis: BlockAxis, lines: Ints, zones: int) -> Floats:
    """Shape of `lines`: (.., size, stride)."""
    if axis.pattern is Pattern.RING:
        return _ends(lines, np.roll(lines, -1, axis=1), zones)
    groups = np.moveaxis(lines, 1, -1).reshape(-1, axis.size)
    rows = np.arange(len(groups))[:, None] * zones
    held = np.bincount((rows + groups).ravel(), minlength=len(groups) * zones)
    held = held.reshape(len(groups), zones)
    if axis.pattern is Pattern.ALL_TO_ALL:
        return np.asarray((held * (axis.size - held)).sum(axis=0), dtype=np.float64)
    touched = held > 0
    among = touched.sum(axis=1, keepdims=True)
    return np.asarray((touched * (among - 1) / among).sum(axis=0))


def spread(grid: BlockGrid, layout: Layout) -> float:
    """alpha x most zones of a DP group + beta x most zones of a PP group."""
    pipeline = _most_zones(layout.T)
    data = 1
    stride = 1
    for axis in grid.slice_axes:
        if axis.axis == "dp":
            lines = layout.reshape(-1, axis.size, stride)
            data = _most_zones(np.moveaxis(lines, 1, -1).reshape(-1, axis.size))
        stride *= axis.size
    return ALPHA * data + (1 - ALPHA) * pipeline


def _most_zones(groups: Ints) -> int:
    """The most different zones in one row of `groups`."""
    in_order = np.sort(groups, axis=1)
    return int((in_order[:, 1:] != in_order[:, :-1]).sum(axis=1).max(initial=0)) + 1
