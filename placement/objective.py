"""What the zone step minimises: the cut, the worst uplink, or the spread of groups.

A score orders layouts; the cut breaks ties of the other two. The layout of least cut is
always among those compared, so asking for another objective never makes that one worse.
Scores are floats that the search compares, never what is reported: the referee counts that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from placement.bands import band_trees
from placement.fabric import Ints
from placement.grid import BlockAxis, BlockGrid
from placement.layout import Layout, layout_cost
from placement.request import Limits, Objective, Request
from placement.slicing import slice_grid
from placement.spread import spread, spread_layouts
from placement.traffic import Pattern
from placement.zones import ZoneStep, solve_zones

Floats = npt.NDArray[np.float64]
Score = Callable[[Layout], float]
TIE = 1e-6  # weight of the cut beside what comes first


def score_of(request: Request, grid: BlockGrid, uplink: Floats) -> Score:
    """What the request minimises before the cut. `uplink`: bytes/s by zone."""
    match request.objective:
        case Objective.CUT:
            return lambda layout: float(layout_cost(grid, layout))
        case Objective.BOTTLENECK:
            return lambda layout: float((zone_egress(grid, layout, len(uplink)) / uplink).max())
        case Objective.SPREAD:
            return lambda layout: spread(grid, layout, request.spread_alpha)


def solve_scored(
    request: Request,
    grid: BlockGrid,
    capacities: Sequence[int],
    reserved: Sequence[int],
    limits: Limits,
    uplink: Floats,
) -> ZoneStep:
    """The best score met, then the least cut; never worse than what `solve_zones` gives.

    Spares that `reserved` keeps are kept unless the score is better without. The bound is
    on the cut, as everywhere.
    """
    score = score_of(request, grid, uplink)
    by_cut = solve_zones(grid, capacities, reserved, limits)
    found = [by_cut.layout]
    for room in [reserved, capacities] if list(reserved) != list(capacities) else [capacities]:
        if sum(room) < grid.size:
            continue
        if request.objective is Objective.SPREAD:
            found += spread_layouts(grid, room, request.spread_alpha)
        found.append(_searched(grid, room, limits, score, _tie(request, grid, uplink)))
    costs = [layout_cost(grid, layout) for layout in found]
    best = min(range(len(found)), key=lambda i: (score(found[i]), costs[i], i))
    return ZoneStep(found[best], costs[best], by_cut.bound)


def _tie(request: Request, grid: BlockGrid, uplink: Floats) -> float:
    """Weight of the cut beside the score: it never makes up for a worse one that counts."""
    if request.objective is Objective.BOTTLENECK:
        return TIE / float(uplink.min())
    return TIE / max(1, 2 * sum(grid.weights) * grid.size)


def _searched(
    grid: BlockGrid, room: Sequence[int], limits: Limits, score: Score, tie: float
) -> Layout:
    """By slicing trees."""

    def value(layout: Layout) -> float:
        return score(layout) + tie * layout_cost(grid, layout)

    return slice_grid(grid, room, band_trees(grid, room), limits.trees, -1, score=value)[1]


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
