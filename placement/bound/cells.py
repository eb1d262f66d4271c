"""Cells: the most neighbouring ranks that form a grid, for jobs whose blocks form none.

What no layout of cells beats, no layout of blocks does, for a host's cells may part here.
Views of the cells bound a job from below.

*Stages*: rows are pipeline stages, as ever, and the bound of the grid holds. Where stages do not
end where hosts do, each host overlaps two of the other stage. The overlaps make a path, or a circle
where one host holds the last cells of one stage and the first of the next. A zone that holds
neither nothing nor everything cuts a path at its smallest overlap at least, a circle at its two
smallest (`floors`). Who cuts a path once holds one of its ends, so all zones but two cut a path at
its two smallest overlaps too.

*Whole blocks*: where the pipeline is the outermost axis and stages are whole blocks, a slot
is a block, and only the axes inside a stage are bounded cell by cell.

*Runs*: a block holds `lot` consecutive cells. Where replicas of S cells are not whole
blocks, blocks of different replicas are staggered, and rows are the cells of a replica,
in rank order; runs of g = gcd(S, lot) cells never part. Blocks then end after every run,
and at each end those of one residue class of replicas in q = lot / g. A zone with n_i
blocks of class i at some run cuts the ring of replicas there in max n_i - min n_i places
at least, for a run of neighbours has as many of any class, give or take one. Where a
class ends, what the zone holds can change by the sum of these spreads before and behind,
and by all D/q blocks of the class at most. So a difference of d slots between neighbouring
runs costs g w (d - 2), and at most D/q are possible at all. Within a stage it cuts the ring
or chain of the axis inside it as well. Pipeline edges are left out: they do not join
neighbouring runs. The last run of a replica and the first of the next one are neighbours
like all others, and the last replica's, at the end of the job, is next to that of the first
one: blocks end at both. So rows close into a ring (`closing`).

With one cell a stage both are one; with more, the staggering bounds the stages as well,
for the cells of two stages differ by no more than what lies between them adds up to.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd

import numpy as np

from placement.grid.block_grid import BlockGrid, Slopes, block_axes, block_grid, finer, shared
from placement.grid.isoperimetry import BlockAxis
from placement.workload.request import Request
from placement.workload.traffic import Pattern

FREE = 2  # slots by which runs may differ at no cost to the ring of replicas


@dataclass(frozen=True, slots=True)
class Cells:
    """A view: a grid of cells, how many of its slots a host holds, and how many cells.

    `closing`: what a zone pays between the last row and the first; empty where they are not
    neighbours.
    """

    grid: BlockGrid
    lot: int
    cells_of_host: int
    closing: Slopes = ()

    def states(self, room: Sequence[int]) -> int:
        """Of the pricing table, for zones with room for so many slots."""
        return self.grid.rows * (self.grid.width + 1) * max(room)

    def in_bytes(self, doubled: int) -> int:
        """A doubled bound in doubled whole bytes."""
        return 2 * ceil(self.grid.to_bytes(doubled))


@dataclass(frozen=True, slots=True)
class _Staggered:
    """Replicas whose blocks are staggered; sizes in cells."""

    stage: int
    replica: int
    run: int
    classes: int
    axis: BlockAxis

    @property
    def reach(self) -> int:
        """The blocks of one class: what a zone's share changes by at most."""
        return self.axis.size // self.classes

    @property
    def dear(self) -> int:
        """Of one slot beyond the free ones, doubled."""
        return self.axis.weight * self.run if self.axis.pattern is Pattern.RING else 0


def cell_views(request: Request, gpus: int) -> list[Cells]:
    """Grids of cells whose bounds hold for blocks, the stages first."""
    cell, grid = _cells(request, gpus)
    lot = gpus // cell
    chain = next((a for a in block_axes(request, cell) or () if a.pattern is Pattern.CHAIN), None)
    stage = chain.stride if chain else grid.size
    if stage * grid.rows == grid.size and stage % lot == 0:
        return [Cells(_whole(grid, lot), 1, lot)]
    if stage * grid.rows == grid.size and stage > 2 * lot:
        fine = replace(grid, floors=floors(grid, lot))
        floored = _floored(fine)
        other = shared(floored)
        grids = [floored] if other is None else [floored, other]
        higher = floors(grid, lot, is_inner=True)
        if fine.floors != higher:
            grids.append(_floored(_but_two(fine, higher)))
        return [Cells(each, lot, lot) for each in grids]
    staggered = _staggered(request, cell, lot, grid)
    if staggered is None:
        return [Cells(grid, lot, lot)]
    stages = Cells(
        _stages(grid, staggered), lot, lot, closing=_after_stage(staggered, grid.rows - 1)
    )
    if staggered.stage == 1:
        return [stages]
    around = _slopes(0, staggered.dear, FREE, staggered.reach)
    runs = Cells(_runs(grid, staggered), lot // staggered.run, lot, closing=around)
    return [stages, runs]


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
    hosts = {host for pair in overlaps for host in pair}
    smallest = sorted(overlaps.values())
    is_circle = len(overlaps) == len(hosts)
    return sum(smallest[:2]) if is_circle or is_inner else smallest[0]


def _cells(request: Request, gpus: int) -> tuple[int, BlockGrid]:
    """The most ranks of a host that form a grid, and that grid."""
    for cell in range(gpus, 0, -1):
        grid = block_grid(request, cell) if gpus % cell == 0 else None
        if grid is not None:
            return cell, grid
    raise AssertionError("single ranks always form a grid")


def _whole(grid: BlockGrid, lot: int) -> BlockGrid:
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


def _staggered(request: Request, cell: int, lot: int, grid: BlockGrid) -> _Staggered | None:
    """None unless the two outermost axes are the chain and, around it, another."""
    axes = sorted(block_axes(request, cell) or (), key=lambda axis: axis.stride)
    if len(axes) < 2 or axes[-2].pattern is not Pattern.CHAIN:
        return None
    chain, outer = axes[-2:]
    run = gcd(outer.stride, lot)
    if run == lot:
        return None
    scaled = next(axis for axis in grid.slice_axes if axis.axis == outer.axis)
    return _Staggered(chain.stride, outer.stride, run, lot // run, scaled)


def _stages(grid: BlockGrid, staggered: _Staggered) -> BlockGrid:
    """`grid` with what the runs between two stages add up to."""
    fine = finer(grid, staggered.stage)
    between = (_after_stage(staggered, s, fine.row_weight) for s in range(grid.rows - 1))
    return replace(fine, slopes=tuple(between))


def _after_stage(staggered: _Staggered, row: int, weight: int = 0) -> Slopes:
    """What a zone pays after stage `row`, its `weight` for each slot included.

    Cell c of a stage and cell c of the next are `stage` cells apart; over all c, the end
    of a run is passed once for each pair that it lies between, at most `stage` times.
    """
    stage, run = staggered.stage, staggered.run
    passed = sum(min(u, 2 * stage - u) for u in range(1, 2 * stage) if (row * stage + u) % run == 0)
    return _slopes(weight, staggered.dear, FREE * passed, passed * staggered.reach)


def _runs(grid: BlockGrid, staggered: _Staggered) -> BlockGrid:
    """Rows are the runs of a replica, slots are replicas; costs of `grid`'s unit."""
    run, axis = staggered.run, staggered.axis
    rows = staggered.replica // run
    inner = [a for a in grid.slice_axes if a is not axis]
    beside = inner[0] if len(inner) == 1 and inner[0].pattern is Pattern.RING else None
    slopes = []
    for s in range(rows - 1):
        is_inside = (s + 1) * run % staggered.stage != 0
        edge = beside.weight * (2 if beside.size == 2 else 1) if beside and is_inside else 0
        slopes.append(_slopes(edge, staggered.dear, FREE, staggered.reach))
    line = np.arange(axis.size + 1) % axis.size != 0
    if axis.pattern is not Pattern.RING:
        line = np.arange(axis.size + 1) > 0
    is_touch = axis.pattern is Pattern.HIERARCHICAL
    cost = 2 * axis.weight * run if axis.pattern is not Pattern.ALL_TO_ALL else 0
    first = np.arange(rows)[:, None] * run
    return replace(
        grid,
        rows=rows,
        width=axis.size,
        step=cost * line.astype(np.int64),
        offset=cost * rows if is_touch else 0,
        block=first + np.arange(axis.size)[None, :] * staggered.replica,
        slopes=tuple(slopes),
    )


def _slopes(weight: int, dear: int, free: int, reach: int) -> Slopes:
    return ((weight, min(free, reach)), (weight + dear, max(0, reach - free)))


def _but_two(grid: BlockGrid, higher: tuple[int, ...]) -> BlockGrid:
    """`grid` with floors that all zones pay but two between any two stages: all are charged
    them, and what two need not pay is taken off."""
    saved = 2 * (sum(higher) - sum(grid.floors))
    return replace(grid, floors=higher, offset=grid.offset + saved)


def _floored(grid: BlockGrid) -> BlockGrid:
    """`grid` with slopes that begin where its floors end."""
    weight = grid.row_weight
    if not weight:
        return grid
    return replace(
        grid,
        slopes=tuple(((0, f // weight), (weight, grid.width - f // weight)) for f in grid.floors),
    )
