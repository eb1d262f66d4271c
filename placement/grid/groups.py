"""Groups of one axis kept whole: a smaller grid that is often all there is to search.

Blocks of a group move together: the grid has one slot for each group, zones hold as many groups as
fit, and layouts and bounds of that grid are those of the whole, unless it pays to part a group:
then a layout pays at least what the cheapest such group has lost on the *loose* grid, which has
less weight on the axis. See docs/engine.md, "Groups kept together".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.structs import replace, struct
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import BlockAxis, steps
from placement.grid.layout import Layout
from placement.workload.traffic import Pattern

TAKEN, OF = 3, 4  # of the weight; a little is left, so that groups do not fall apart for free


@struct(frozen=True, slots=True, eq=False)
class Groups:
    """Blocks of one axis that are best kept together, as a grid of groups. `whole`: that grid,
    whose groups have `size` blocks each. `group`: of each slot of the grid.

    `loose`: the grid with less weight on the axis. `parted`: the least by which a split group
    lowers the doubled cut there; `price`: the least that it costs at full weight.
    """

    whole: BlockGrid
    size: int
    group: Ints
    loose: BlockGrid
    parted: int
    price: int

    def room(self, capacities: Sequence[int]) -> list[int]:
        """Return how many whole groups fit in each zone."""
        return [c // self.size for c in capacities]

    def laid_out(self, layout: Layout) -> Layout:
        """Convert a layout of groups to a layout of blocks."""
        return np.asarray(layout[:, self.group])


def _dearest(grid: BlockGrid) -> BlockAxis:
    return max(grid.slice_axes, key=lambda a: (_parted(a, a.weight), -a.size))


def groups_of(grid: BlockGrid) -> Groups | None:
    """Return the groups of the axis that costs most to split; None where there are no two axes to
    tell apart."""
    if len(grid.slice_axes) < 2:
        return None
    axis = _dearest(grid)
    group, first = _numbered(grid, axis)
    rest = tuple(_lines(a, axis.size) for a in grid.slice_axes if a is not axis)
    width = grid.width // axis.size
    step, offset = steps(rest, width)
    weight = grid.row_weight * axis.size
    whole = replace(
        grid,
        width=width,
        row_weight=weight,
        row_wrap=grid.row_wrap * axis.size,
        slice_axes=rest,
        step=step,
        offset=offset * grid.rows,
        block=grid.block[:, first],
        slopes=(((weight, width),),) * (grid.rows - 1),
    )
    taken = max(1, axis.weight * TAKEN // OF)
    loose, price = _loosened(grid, axis, taken), _parted(axis, axis.weight)
    return Groups(whole, axis.size, group, loose, _parted(axis, taken), price)


def _numbered(grid: BlockGrid, axis: BlockAxis) -> tuple[Ints, Ints]:
    """The group of each slot, and the first slot of each group."""
    slot = np.arange(grid.width)
    group, first = np.zeros_like(slot), np.ones(grid.width, dtype=np.bool_)
    stride = groups = 1
    for other in grid.slice_axes:
        index = slot // stride % other.size
        stride *= other.size
        if other is axis:
            first &= index == 0
        else:
            group += index * groups
            groups *= other.size
    return group, np.flatnonzero(first)


def _lines(axis: BlockAxis, many: int) -> BlockAxis:
    """How many lines of an axis are cut together."""
    return replace(axis, weight=axis.weight * many)


def _parted(axis: BlockAxis, weight: int) -> int:
    """Bound from below the doubled cost of a group in several zones, at this weight."""
    if axis.pattern is Pattern.HIERARCHICAL:
        return 2 * weight
    return 4 * weight * (axis.size - 1 if axis.pattern is Pattern.ALL_TO_ALL else 1)


def _loosened(grid: BlockGrid, axis: BlockAxis, taken: int) -> BlockGrid:
    axes = tuple(replace(a, weight=a.weight - taken) if a is axis else a for a in grid.slice_axes)
    step, offset = steps(axes, grid.width)
    return replace(grid, slice_axes=axes, step=step, offset=offset * grid.rows)
