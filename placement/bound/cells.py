"""Cells: the most neighbouring ranks that form a grid, for jobs whose blocks form none.

What no layout of cells beats, no layout of blocks does, for a host's cells may part here.

Rows are pipeline stages, as ever, and the bound of the grid holds. Where stages do not end where
hosts do, each host overlaps two of the other stage. The overlaps make a path, or a circle where one
host holds the last cells of one stage and the first of the next. A zone that holds neither nothing
nor everything cuts a path at its smallest overlap at least, a circle at its two smallest
(`floors`). Where the pipeline is the outermost axis and stages are whole blocks, a slot is a block,
and only the axes inside a stage are bounded cell by cell.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections import Counter
from math import ceil

import numpy as np

from muster.structs import replace, struct
from placement.grid.block_grid import BlockGrid, block_axes, block_grid
from placement.workload.request import Request
from placement.workload.traffic import Pattern, without_trees


@struct(frozen=True, slots=True)
class Cells:
    """A grid of cells (the ranks that stay together), how many of its slots a host holds, and how
    many cells."""

    grid: BlockGrid
    lot: int
    cells_of_host: int

    def in_bytes(self, doubled: int) -> int:
        """Convert a doubled bound of the grid to doubled whole bytes."""
        return 2 * ceil(self.grid.to_bytes(doubled))


def cells_of(request: Request, gpus: int) -> Cells:
    """Return the grid of cells of a gang, whose bounds hold for its blocks; that of hierarchies
    bounds trees."""
    request = without_trees(request)
    cell, grid = _cells(request, gpus)
    lot = gpus // cell
    chain = next((a for a in block_axes(request, cell) or () if a.pattern is Pattern.CHAIN), None)
    stage = chain.stride if chain else grid.size
    if stage * grid.rows == grid.size and stage % lot == 0:
        return Cells(_merge_into_blocks(grid, lot), 1, lot)
    if stage * grid.rows == grid.size and stage > 2 * lot:
        return Cells(_floored(replace(grid, floors=floors(grid, lot))), lot, lot)
    return Cells(grid, lot, lot)


def floors(grid: BlockGrid, lot: int) -> tuple[int, ...]:
    """Return the least costs between neighbouring stages, as the floors of a BlockGrid; rows are
    stages of cells."""
    pairs = range(grid.rows - 1)
    return tuple(grid.row_weight * _least_split_edges(grid.width, lot, s) for s in pairs)


def _least_split_edges(width: int, lot: int, stage: int) -> int:
    """Pipeline edges between a stage and the next that any zone cuts which holds a part."""
    cell = np.arange(width) + stage * width
    overlaps = Counter(zip((cell // lot).tolist(), ((cell + width) // lot).tolist(), strict=True))
    hosts = {host for pair in overlaps for host in pair}
    smallest = sorted(overlaps.values())
    is_circle = len(overlaps) == len(hosts)
    return sum(smallest[:2]) if is_circle else smallest[0]


def _cells(request: Request, gpus: int) -> tuple[int, BlockGrid]:
    """The most ranks of a host that form a grid, and that grid."""
    for cell in range(gpus, 0, -1):
        grid = block_grid(request, cell) if gpus % cell == 0 else None
        if grid is not None:
            return cell, grid
    raise AssertionError("single ranks always form a grid")


def _merge_into_blocks(grid: BlockGrid, lot: int) -> BlockGrid:
    """Stages of whole blocks, which neither part nor shift between one stage and the next."""
    order = np.argsort(grid.block, axis=1)
    in_ranks = np.take_along_axis(grid.block, order, axis=1)
    width = grid.width // lot
    return replace(
        grid,
        width=width,
        row_weight=grid.row_weight * lot,
        row_wrap=grid.row_wrap * lot,
        step=grid.step[::lot],
        block=in_ranks[:, ::lot],
        slopes=(((grid.row_weight * lot, width),),) * (grid.rows - 1),
    )


def _floored(grid: BlockGrid) -> BlockGrid:
    """`grid` with slopes that begin where its floors end."""
    weight = grid.row_weight
    if not weight:
        return grid
    return replace(
        grid,
        slopes=tuple(((0, f // weight), (weight, grid.width - f // weight)) for f in grid.floors),
    )
