"""Layouts by slicing trees: cut the grid in two, again and again, zones at the leaves.

Good layouts are made of near-rectangles, because a rectangle has the least boundary.
A node of the tree parts its region between two sets of zones, across the rows or
across the slots. Where the zones' capacities allow a straight line, the line is
straight; where they do not, it has one jog. Trees are improved by small changes, the
better one kept; the sequence of changes comes from a seed, never from the clock.

What lies outside the node that changed stays as it is, so only its blocks are parted anew, and only
rows in which that moved something are added up again. `search` is the inner loop over a grid; by
other scores, `best_of_trees`; over other graphs, `Sweeper`.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from placement.bound.charging import by_sizes
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH
from placement.grid.layout import (
    COST_PARTS,
    Axes,
    Layout,
    Region,
    axes_of,
    layout_cost,
    row_cost,
    rows_apart,
)
from placement.kernels import Kernel, refill
from placement.search.bands import band_trees
from placement.search.slicing_trees import (
    PARTS,
    Plan,
    Tree,
    _change,
    below,
    copied,
    copy_of,
    plan_of,
)
from placement.search.tree_kernels import (
    GRID_PARTS,
    GridCells,
    _part_grid,
)
from placement.speculative import ahead

SMALL = 64  # blocks of a gang for which the cheap and exact comes first
FEW_TREES = 200  # of a short search
SLACK = 0.04  # share by which a kept neighbour may be worse, at the start


class GridSearch(NamedTuple):
    """A search on its way. `plan` and `layout` are those kept; `other` and `next` those tried;
    `best` is the best layout so far. `by_row`, `by_slot`: cells of the region, as in `GridCells`.
    What is cut within each row, and between it and the one before, is `paid` and `parted` in the
    layout kept, `next_paid` and `next_parted` in the one tried, which differs in rows that are
    `changed`. Room to work in: `path`, for each node, and `inside` and `held`, for each zone."""

    plan: Plan
    other: Plan
    layout: Ints
    next: Ints
    best: Ints
    by_row: Ints
    by_slot: Ints
    paid: Ints
    parted: Ints
    next_paid: Ints
    next_parted: Ints
    changed: Ints
    path: Ints
    inside: Ints
    held: Ints


def _gathered(now: GridSearch, order: Ints, to: Ints) -> int:
    """Those of the cells in this order that are in the zones `inside`; how many."""
    count = 0
    for cell in order:
        to[count] = cell
        count += now.inside[now.next[cell]]
    return count


def _parted_anew(now: GridSearch, cells: GridCells, node: int) -> None:
    """Part the blocks of the zones below `node` as `other` says."""
    for zone in range(len(now.inside)):
        now.inside[zone] = 0
    for k in range(below(now.other, node, now.path)):
        zone = now.other.zone[now.path[k]]
        if zone >= 0:
            now.inside[zone] = 1
    _gathered(now, now.by_row, cells.by_row)
    count = _gathered(now, now.by_slot, cells.by_slot)
    cells.begin[node], cells.end[node] = 0, count
    _part_grid(now.other, cells, node, now.next)


def _dearer(now: GridSearch, width: int, row_weight: int, row_wrap: int, axes: Axes) -> int:
    """What the layout tried cuts more than the one kept."""
    rows, more = len(now.paid), 0
    for row in range(rows):
        changed = 0
        for cell in range(row * width, (row + 1) * width):
            changed |= now.next[cell] ^ now.layout[cell]
        now.changed[row] = changed
    for row in range(rows):
        weight, before = (row_weight, row - 1) if row else (row_wrap, rows - 1)
        if now.changed[row]:
            now.next_paid[row] = row_cost(now.next, row, width, axes, now.held)
            more += now.next_paid[row] - now.paid[row]
        if weight and (now.changed[row] or now.changed[before]):
            now.next_parted[row] = weight * rows_apart(now.next, row, before, width)
            more += now.next_parted[row] - now.parted[row]
    return 2 * more


def _begun(now: GridSearch, width: int, row_weight: int, row_wrap: int, axes: Axes) -> int:
    """Write down what the layout kept pays; its doubled cut."""
    cost = 0
    for row in range(len(now.paid)):
        now.paid[row] = row_cost(now.layout, row, width, axes, now.held)
        weight, before = (row_weight, row - 1) if row else (row_wrap, len(now.paid) - 1)
        now.parted[row] = weight * rows_apart(now.layout, row, before, width)
        cost += now.paid[row] + now.parted[row]
    refill(now.next_paid, now.paid)
    refill(now.next_parted, now.parted)
    return 2 * cost


def _kept(now: GridSearch) -> None:
    """The neighbour takes the place of what it was tried against."""
    copied(now.plan, now.other)
    refill(now.layout, now.next)
    refill(now.paid, now.next_paid)
    refill(now.parted, now.next_parted)


def _dropped(now: GridSearch) -> None:
    copied(now.other, now.plan)
    refill(now.next, now.layout)
    refill(now.next_paid, now.paid)
    refill(now.next_parted, now.parted)


def _search(
    now: GridSearch,
    cells: GridCells,
    row_weight: int,
    row_wrap: int,
    axes: Axes,
    tries: int,
    slack: float,
    target: int,
    word: int,
) -> int:
    """The layout of `plan`, and so many neighbours from there, until the doubled cut of one is
    `target` or less; the least met. `word`: a random one, not zero."""
    refill(cells.by_row, now.by_row)
    refill(cells.by_slot, now.by_slot)
    cells.begin[0], cells.end[0] = 0, len(now.by_row)
    _part_grid(now.plan, cells, 0, now.layout)
    refill(now.next, now.layout)
    refill(now.best, now.layout)
    cost = least = _begun(now, cells.width, row_weight, row_wrap, axes)
    for step in range(tries):
        if least <= target or len(now.path) == 1:
            break
        node, word = _change(now.other, 2, now.path, word)
        if node < 0:
            continue
        _parted_anew(now, cells, node)
        found = cost + _dearer(now, cells.width, row_weight, row_wrap, axes)
        if found < least:
            least = found
            refill(now.best, now.next)
        if found <= _bar(cost, slack, step, tries):
            cost = found
            _kept(now)
        else:
            _dropped(now)
    return least


def _bar(cost: float, slack: float, step: int, tries: int) -> float:
    """Threshold accepting (Dueck and Scheuer 1990): what a neighbour that is kept costs at most,
    not much more than the current tree, and "much" shrinks to nothing."""
    left = 1 - step / tries
    return cost * (1 + slack * left * left)


SEARCH_PARTS = (
    *PARTS,
    *GRID_PARTS,
    *COST_PARTS,
    _part_grid,
    _gathered,
    _parted_anew,
    _dropped,
    _begun,
    _dearer,
    _kept,
    _bar,
)
search = Kernel(_search, *SEARCH_PARTS, inlines=False)


class Slicer:
    """Builds layouts of a region of the grid from trees over zones of given capacities.

    The zones of a tree must hold the whole region.
    """

    def __init__(self, grid: BlockGrid, capacities: Sequence[int], region: Region) -> None:
        self._grid, self._capacities = grid, capacities
        self.seed = f"{grid.rows}x{grid.width}:{sorted(capacities)}"  # of a search over its trees
        # Slots that belong together: whole groups of the first axes, the most first.
        sizes = [axis.size for axis in grid.slice_axes[:-1]]
        grains = [prod(sizes[:k]) for k in range(len(sizes), -1, -1)]
        rows, width = region.shape
        number = np.arange(rows * width).reshape(rows, width // grains[0], grains[0])
        order = number.transpose(1, 0, 2).ravel()
        inside = region.ravel()
        self._by_row, self._by_slot = np.flatnonzero(inside), order[inside[order]]
        self._row, self._slot = np.divmod(np.arange(rows * width), width)
        self._group, self._place = self._slot // grains[0], np.argsort(order)
        self._grains = np.array(grains, dtype=np.int64)
        self._shape = region.shape
        self._room: Ints = np.zeros((2, rows * width), dtype=np.int64)

    def layout(self, plan: Plan) -> Layout:
        """The zone of each block of the region, -1 elsewhere."""
        return self.searched(plan, 0, 0, 0.0)

    def searched(self, plan: Plan, tries: int, target: int, slack: float) -> Layout:
        """The best layout met among so many neighbours, from this tree on, which is changed. -1
        outside the region."""
        grid, flat = self._grid, np.full(self._shape, -1, dtype=np.int64).ravel()
        by_row: Ints = np.zeros((5, self._shape[0]), dtype=np.int64)
        by_zone: Ints = np.zeros((2, len(self._capacities) + 1), dtype=np.int64)
        now = GridSearch(
            plan=plan,
            other=copy_of(plan),
            layout=flat,
            next=flat.copy(),
            best=flat.copy(),
            by_row=self._by_row,
            by_slot=self._by_slot,
            paid=by_row[0],
            parted=by_row[1],
            next_paid=by_row[2],
            next_parted=by_row[3],
            changed=by_row[4],
            path=np.zeros(len(plan.zone), dtype=np.int64),
            inside=by_zone[0],
            held=by_zone[1],
        )
        search.run(
            self._steps(plan) + tries * (self._steps(plan) // 4 + len(flat)),
            now,
            self._cells(plan),
            grid.row_weight,
            grid.row_wrap,
            axes_of(grid),
            tries,
            slack,
            target,
            random_word(self.seed),
        )
        return now.best.reshape(self._shape)

    def _cells(self, plan: Plan) -> GridCells:
        return GridCells(
            self._by_row.copy(),
            self._by_slot.copy(),
            self._row,
            self._slot,
            self._group,
            self._place,
            self._grains,
            self._shape[1],
            *self._room,
            *np.zeros((3, len(plan.zone)), dtype=np.int64),
        )

    def _steps(self, plan: Plan) -> int:
        return 3 * len(self._by_row) * len(plan.zone).bit_length()


def random_word(seed: str) -> int:
    """Where random words begin."""
    return random.Random(seed).randrange(1, 1 << 32)


def slice_grid(
    grid: BlockGrid,
    capacities: Sequence[int],
    starts: Sequence[Tree],
    tries: int,
    target: int,
    region: Region | None = None,
    slack: float = SLACK,
) -> tuple[int, Layout]:
    """The best layout met, and its doubled cut; `tries` trees, stops at `target`."""
    if region is None:
        region = np.ones((grid.rows, grid.width), dtype=np.bool_)
    slicer = Slicer(grid, capacities, region)
    plans = [plan_of(start, capacities) for start in starts]
    costs = [layout_cost(grid, slicer.layout(plan)) for plan in plans]
    layout = slicer.searched(plans[int(np.argmin(costs))], tries, target, slack)
    return layout_cost(grid, layout), layout


def best_grid(grids: Sequence[BlockGrid], capacities: Sequence[int]) -> BlockGrid:
    """The order of slots in which a short search cuts least; the first one on a tie."""
    if len(grids) == 1:
        return grids[0]
    least = by_sizes(grids[0], capacities)  # the same in every order
    best, lowest = grids[0], int(MUCH)

    def searched(grid: BlockGrid) -> int:
        return slice_grid(grid, capacities, band_trees(grid, capacities), FEW_TREES, least)[0]

    searches = [partial(searched, grid) for grid in grids]
    for grid, cost in zip(grids, ahead(searches, are_long=grids[0].size > SMALL), strict=False):
        if cost < lowest:
            best, lowest = grid, cost
        if lowest <= least:
            break
    return best


def best_of_trees(
    build: Callable[[Plan], Layout],
    value: Callable[[Layout], float],
    starts: Sequence[Tree],
    capacities: Sequence[int],
    tries: int,
    target: float,
    seed: str,
    axes: int = 2,
    slack: float = SLACK,
) -> Layout:
    """The same for any layouts of trees and any value of them."""
    plans = [plan_of(start, capacities) for start in starts]
    layouts = [build(plan) for plan in plans]
    costs = [value(layout) for layout in layouts]
    first = int(np.argmin(costs))
    now, other, cost = plans[first], copy_of(plans[first]), costs[first]
    best, best_cost = layouts[first], cost
    path, word = np.zeros(len(now.zone), dtype=np.int64), random_word(seed)
    for step in range(tries if len(path) > 1 else 0):
        if best_cost <= target:
            break
        node, word = _change(other, axes, path, word)
        if node < 0:
            continue
        layout = build(other)
        found = value(layout)
        if found < best_cost:
            best, best_cost = layout, found
        if found <= _bar(cost, slack, step, tries):
            cost = found
            copied(now, other)
        else:
            copied(other, now)
    return best
