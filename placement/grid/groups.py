"""Groups of one axis kept whole: a smaller grid whose layouts are often the best there are.

Blocks of a group move together: the grid has one slot for each group, and zones hold as many groups
as fit. See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import BlockAxis, steps
from placement.grid.layout import Layout
from placement.workload.traffic import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """`whole`: the grid of groups, of `size` blocks each. `group`: of each slot of the grid."""

    whole: BlockGrid
    size: int
    group: Ints

    def room(self, capacities: Sequence[int]) -> list[int]:
        """Whole groups that zones hold."""
        return [c // self.size for c in capacities]

    def laid_out(self, layout: Layout) -> Layout:
        """A layout of groups as one of blocks."""
        return np.asarray(layout[:, self.group])


def groups_of(grid: BlockGrid) -> Groups | None:
    """Of the axis that is dearest to part; None where there are no two axes to tell apart."""
    if len(grid.slice_axes) < 2:
        return None
    axis = max(grid.slice_axes, key=lambda a: (_to_part(a), -a.size))
    group, first = _numbered(grid, axis)
    rest = tuple(replace(a, weight=a.weight * axis.size) for a in grid.slice_axes if a is not axis)
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
    return Groups(whole, axis.size, group)


def _to_part(axis: BlockAxis) -> int:
    """What a group in several zones costs at least."""
    pairs = axis.size - 1 if axis.pattern is Pattern.ALL_TO_ALL else 1
    return axis.weight * (1 if axis.pattern is Pattern.HIERARCHICAL else 2 * pairs)


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
