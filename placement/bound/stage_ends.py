"""Stages that do not end where hosts do, and what a host means inside a stage.

The pipeline is the outermost axis, a stage is W cells in rank order, and a host holds `lot`
neighbouring cells. What a zone holds of a stage are whole runs of `lot` cells, but for the
ends of the stage, where a host holds cells of two stages.

*Inside a stage* the runs lie on a circle, and every ring joins runs that are near each
other: `ring_cuts` finds the cheapest way to hold n cells (`least_by_cells`).

*Between two stages* runs are staggered unless W is a multiple of `lot`: each overlaps two
of the other stage. The overlaps make a path, or a circle where one host holds the last cells
of one stage and the first of the next. A zone that holds neither nothing nor everything cuts
a path at its smallest overlap at least, a circle at its two smallest (`floors`). Who cuts a path
once holds one of its ends, so all zones but two cut a path at its two smallest overlaps too.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from placement.bound.ring_cuts import Edges, least_cuts
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH, BlockAxis
from placement.workload.traffic import Pattern


def floors(grid: BlockGrid, lot: int, *, is_inner: bool = False) -> tuple[int, ...]:
    """Of each pair of neighbouring stages, as of a BlockGrid; rows are stages of cells.
    `is_inner`: for zones that hold no end of a path."""
    pairs = range(grid.rows - 1)
    return tuple(grid.row_weight * _least_parted(grid.width, lot, s, is_inner) for s in pairs)


def _least_parted(width: int, lot: int, stage: int, is_inner: bool) -> int:
    """Pipeline edges between a stage and the next that any zone cuts which holds a part, or any
    that holds no end as well."""
    cell = np.arange(width) + stage * width
    overlaps = Counter(zip((cell // lot).tolist(), ((cell + width) // lot).tolist(), strict=True))
    runs = {run for pair in overlaps for run in pair}
    smallest = sorted(overlaps.values())
    is_circle = len(overlaps) == len(runs)
    return sum(smallest[:2]) if is_circle or is_inner else smallest[0]


def least_by_cells(grid: BlockGrid, lot: int) -> Ints:
    """`grid.step`, or more where runs of `lot` cells stay together. Shape: (width + 1,)."""
    starts = sorted({s * grid.width % lot for s in range(grid.rows)})
    found = [_least_from(grid, lot, start) for start in starts]
    least = np.min([grid.step if each is None else each for each in found], axis=0)
    return np.where(least < MUCH, np.maximum(least, grid.step), grid.step)


def _least_from(grid: BlockGrid, lot: int, start: int) -> Ints | None:
    """For a stage whose first cell is cell `start` of its host; None if that is not known."""
    if any(axis.pattern is not Pattern.RING for axis in grid.slice_axes):
        return None
    run = (np.arange(grid.width) + start) // lot
    edges, cells = joined(grid.slice_axes, run), np.bincount(run).tolist()
    return least_cuts(edges, cells, grid.width)


def joined(axes: Sequence[BlockAxis], run: Ints) -> Edges:
    """The rings of a stage: (run, later run) -> weight. `run`: of each cell, in rank order."""
    edges: Counter[tuple[int, int]] = Counter()
    cell = np.arange(len(run))
    for axis in axes:
        index = cell // axis.stride % axis.size
        there = run[cell + ((index + 1) % axis.size - index) * axis.stride]
        for a, b in zip(run.tolist(), there.tolist(), strict=True):
            if a != b:
                edges[min(a, b), max(a, b)] += axis.weight
    return edges
