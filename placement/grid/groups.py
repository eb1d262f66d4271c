"""Groups of one axis kept whole: a smaller grid that is often all there is to search.

Where parting any group of an axis costs more than what is still open, no best layout parts
one. Blocks of a group then move together: the grid has one slot for each group, zones hold
as many groups as fit, and layouts and bounds of that grid are those of the whole.

That no layout which parts a group is better needs a bound of its own. Of the weight of the
axis some share is taken off: what is left is a grid with a bound like any other, and a
layout that parts a group pays at least what the cheapest such group has lost on top.

Where groups may be parted, the step is the least of zones that part one and of those that do not,
and a bound mixes them: one zone holds a part of a group whose rest is nowhere. But a group is
parted by two zones or by none, so a proof may be split there (`Parting`): in each row no zone
parts a group, and zones pay what whole groups cost, or at least two do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH, BlockAxis, parted_plane, steps
from placement.grid.layout import Layout
from placement.proof.master import Counter
from placement.workload.traffic import Pattern

FINE = 4096  # parts in which what whole groups cost more is told, at most
TAKEN, OF = 3, 4  # of the weight; a little is left, so that groups do not fall apart for free


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """`whole`: the grid of groups, of `size` blocks each. `group`: of each slot of the grid.

    `loose`: the grid with less weight on the axis. `parted`: what that takes off the doubled
    cut of any layout for each group that it parts, at least; `price`: what such a group costs.
    """

    whole: BlockGrid
    size: int
    group: Ints
    loose: BlockGrid
    parted: int
    price: int

    def room(self, capacities: Sequence[int]) -> list[int]:
        """Whole groups that zones hold."""
        return [c // self.size for c in capacities]

    def laid_out(self, layout: Layout) -> Layout:
        """A layout of groups as one of blocks."""
        return np.asarray(layout[:, self.group])


@dataclass(frozen=True, slots=True)
class Parting:
    """Whether zones part a group of some row: none of them does, or at least two do.

    `some[n]`: 1 where a zone of n slots may, 0 where it pays `price` more than the step if it does.
    `more[n]`: what it pays more than the step if it does not, at least, in units of `unit`.
    """

    some: tuple[int, ...]
    price: int
    more: tuple[int, ...]
    unit: int

    def counters(self, row: int) -> tuple[Counter, Counter]:
        """Of zones that part a group, for at least two; and of what is paid more, for none."""
        some = Counter(row, turn=self.some, price=self.price)
        return some, Counter(row, turn=self.more, price=self.unit)


def parting_of(grid: BlockGrid) -> Parting | None:
    """Of the axis that is dearest to part; None where it costs nothing, is hierarchical, or is not
    one of two."""
    groups = groups_of(grid)
    if groups is None or len(grid.slice_axes) > 2:
        return None
    axis = _dearest(grid)
    price = _parted(axis, axis.weight)
    if not price or axis.pattern is Pattern.HIERARCHICAL:
        return None
    [other] = [a for a in grid.slice_axes if a is not axis]
    whole = np.full(grid.width + 1, MUCH)
    whole[:: axis.size] = np.maximum(groups.whole.step, grid.step[:: axis.size])
    some = parted_plane(axis, other) < whole + price
    some[[0, -1]] = False
    more = np.minimum(whole - grid.step, grid.step.max())
    unit = max(1, gcd(*more.tolist()), int(more.max()) // FINE)
    return Parting(tuple(some.astype(int).tolist()), price, tuple((more // unit).tolist()), unit)


def _dearest(grid: BlockGrid) -> BlockAxis:
    return max(grid.slice_axes, key=lambda a: (_parted(a, a.weight), -a.size))


def groups_of(grid: BlockGrid) -> Groups | None:
    """Of the axis that is dearest to part; None where there are no two axes to tell apart."""
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
    taken = axis.weight * TAKEN // OF
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
    """So many lines of an axis that are cut together."""
    return replace(axis, weight=axis.weight * many)


def _parted(axis: BlockAxis, weight: int) -> int:
    """What a group in several zones costs at least, doubled, at this weight."""
    if axis.pattern is Pattern.HIERARCHICAL:
        return 2 * weight
    return 4 * weight * (axis.size - 1 if axis.pattern is Pattern.ALL_TO_ALL else 1)


def _loosened(grid: BlockGrid, axis: BlockAxis, taken: int) -> BlockGrid:
    axes = tuple(replace(a, weight=a.weight - taken) if a is axis else a for a in grid.slice_axes)
    step, offset = steps(axes, grid.width)
    return replace(grid, slice_axes=axes, step=step, offset=offset * grid.rows)
