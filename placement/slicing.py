"""Layouts by slicing trees: cut the grid in two, again and again, zones at the leaves.

Good layouts are made of near-rectangles, because a rectangle has the least boundary.
A node of the tree parts its region between two sets of zones, across the rows or
across the slots. Where the zones' capacities allow a straight line, the line is
straight; where they do not, it has one jog. Trees are improved by small changes, the
better one kept; the sequence of changes comes from a seed, never from the clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost

Region = npt.NDArray[np.bool_]
SLACK = 0.04  # share by which a kept neighbour may be worse, at the start
SWAP, TURN, LEAN, REGROW = range(4)
MOVES = (SWAP, SWAP, SWAP, TURN, LEAN, LEAN, REGROW)  # tuned on ragged zones


class Tree(NamedTuple):
    """A leaf holds one zone. An inner node cuts what it gets in two along one axis.

    `axis`: on a grid, 0 cuts across slots and 1 across rows.
    `lean`: where the line goes when capacities leave a choice: 0 gives the first
    child as little as they allow, 2 as much, 1 its share by capacity.
    """

    zone: int = -1
    first: Tree | None = None
    second: Tree | None = None
    axis: int = 0
    lean: int = 1


@dataclass(frozen=True, slots=True)
class _Part:
    """Cells of a region by number: in reading order, and group of slots by group of slots."""

    by_row: Ints
    by_slot: Ints


class Slicer:
    """Builds layouts of a region of the grid from trees over zones of given capacities.

    The zones of a tree must hold the whole region.
    """

    def __init__(self, grid: BlockGrid, capacities: Sequence[int], region: Region) -> None:
        self._grid = grid
        self._capacities = capacities
        # Slots that belong together: whole groups of the first axes, the most first.
        sizes = [axis.size for axis in grid.slice_axes[:-1]]
        self._grains = [prod(sizes[:k]) for k in range(len(sizes), -1, -1)]
        rows, width = region.shape
        grain = self._grains[0]
        number = np.arange(rows * width).reshape(rows, width // grain, grain)
        order = number.transpose(1, 0, 2).ravel()
        inside = region.ravel()
        self._region = _Part(np.flatnonzero(inside), order[inside[order]])
        self._shape = region.shape
        self._row_ends = np.arange(1, rows + 1) * width
        self._slot = np.tile(np.arange(width), rows)
        self._in_first = np.zeros(rows * width, dtype=np.bool_)
        self._layout: Layout = np.empty(rows * width, dtype=np.int64)

    def layout(self, tree: Tree) -> Layout:
        """The zone of each block of the region, -1 elsewhere."""
        self._layout = np.full(len(self._in_first), -1, dtype=np.int64)
        self._held: dict[int, int] = {}  # capacity by the identity of the node
        self._capacity(tree)
        self._fill(tree, self._region)
        return self._layout.reshape(self._shape)

    def _capacity(self, tree: Tree) -> int:
        if tree.first is None or tree.second is None:
            held = self._capacities[tree.zone]
        else:
            held = self._capacity(tree.first) + self._capacity(tree.second)
        self._held[id(tree)] = held
        return held

    def _fill(self, tree: Tree, part: _Part) -> None:
        if tree.first is None or tree.second is None:
            self._layout[part.by_row] = tree.zone
            return
        cells = len(part.by_row)
        capacity_1, capacity_2 = self._held[id(tree.first)], self._held[id(tree.second)]
        least, most = max(0, cells - capacity_2), min(capacity_1, cells)
        wish = (least, cells * capacity_1 // (capacity_1 + capacity_2), most)[tree.lean]
        is_across_rows = tree.axis == 1
        size = self._size(part, is_across_rows, least, most, wish)
        if size == 0:
            self._fill(tree.second, part)
        elif size == cells:
            self._fill(tree.first, part)
        else:
            first, second = self._parted(part, is_across_rows, size)
            self._fill(tree.first, first)
            self._fill(tree.second, second)

    def _size(self, part: _Part, is_across_rows: bool, least: int, most: int, wish: int) -> int:
        """How many cells to cut off, `least` to `most`: whole groups if that goes, and
        ended by a straight line if one is in reach."""
        if is_across_rows:
            lines = np.searchsorted(part.by_row, self._row_ends)
        else:
            lines = np.bincount(self._slot[part.by_row], minlength=self._shape[1]).cumsum()
        for grain in self._grains:
            straight = lines if is_across_rows else lines[grain - 1 :: grain]
            size = _nearest(straight, least, most, wish)
            if size is None:
                size = _multiple(grain, least, most, wish)
            if size is not None:
                return size
        raise AssertionError("a grain of 1 always fits")

    def _parted(self, part: _Part, is_across_rows: bool, size: int) -> tuple[_Part, _Part]:
        """The first `size` cells in one order or the other, and the rest."""
        mine, other = part.by_row, part.by_slot
        if not is_across_rows:
            mine, other = other, mine
        first, second = mine[:size], mine[size:]
        self._in_first[first] = True
        is_first = self._in_first[other]
        self._in_first[first] = False
        other_first, other_second = other[is_first], other[~is_first]
        if is_across_rows:
            return _Part(first, other_first), _Part(second, other_second)
        return _Part(other_first, first), _Part(other_second, second)


def _multiple(grain: int, least: int, most: int, wish: int) -> int | None:
    """The multiple of `grain` in [least, most] closest to `wish`."""
    low, high = -(-least // grain) * grain, most // grain * grain
    return min(max(wish // grain * grain, low), high) if low <= high else None


def _nearest(sizes: Ints, least: int, most: int, wish: int) -> int | None:
    """The size in [least, most] closest to `wish`, 0 included; None when there is none.

    `sizes` ascend, and least <= wish <= most.
    """
    at = int(sizes.searchsorted(wish, side="right"))
    lower = int(sizes[at - 1]) if at else -1
    upper = int(sizes[at]) if at < len(sizes) else most + 1
    if lower < least:
        if upper > most:
            return None if least else 0
        return 0 if not least and wish < upper - wish else upper
    return lower if upper > most or wish - lower <= upper - wish else upper


def random_tree(zones: Sequence[int], rng: random.Random, axes: int = 2) -> Tree:
    if len(zones) == 1:
        return Tree(zone=zones[0])
    split = rng.randrange(1, len(zones))
    return Tree(
        first=random_tree(zones[:split], rng, axes),
        second=random_tree(zones[split:], rng, axes),
        axis=axes - 1 - int(rng.random() * axes),
        lean=rng.randrange(3),
    )


def leaves(tree: Tree) -> list[int]:
    if tree.first is None or tree.second is None:
        return [tree.zone]
    return leaves(tree.first) + leaves(tree.second)


def mutate(tree: Tree, rng: random.Random, axes: int = 2) -> Tree:
    """A neighbour: two zones swapped, or one inner node turned, shifted or regrown."""
    zones = leaves(tree)
    if len(zones) < 2:
        return tree
    kind = rng.choice(MOVES)
    if kind == SWAP:
        a, b = rng.sample(zones, 2)
        return _relabel(tree, {a: b, b: a})
    return _change(tree, rng.randrange(len(zones) - 1), kind, rng, axes)[0]


def _relabel(tree: Tree, names: dict[int, int]) -> Tree:
    if tree.first is None or tree.second is None:
        return Tree(zone=names.get(tree.zone, tree.zone))
    first, second = _relabel(tree.first, names), _relabel(tree.second, names)
    return Tree(-1, first, second, tree.axis, tree.lean)


def _change(tree: Tree, index: int, kind: int, rng: random.Random, axes: int) -> tuple[Tree, int]:
    """Change inner node number `index` (preorder); returns what is left of the index."""
    if tree.first is None or tree.second is None:
        return tree, index
    if index == 0:
        return _changed(tree, kind, rng, axes), -1
    first, left = _change(tree.first, index - 1, kind, rng, axes)
    second, left = (tree.second, left) if left < 0 else _change(tree.second, left, kind, rng, axes)
    return tree._replace(first=first, second=second), left


def _changed(tree: Tree, kind: int, rng: random.Random, axes: int) -> Tree:
    if kind == TURN:
        further = 1 if axes <= 2 else rng.randrange(1, axes)
        return tree._replace(axis=(tree.axis + further) % axes)
    if kind == LEAN:
        return tree._replace(lean=(tree.lean + rng.randrange(1, 3)) % 3)
    zones = leaves(tree)
    rng.shuffle(zones)
    return random_tree(zones, rng, axes)


def slice_grid(
    grid: BlockGrid,
    capacities: Sequence[int],
    starts: Sequence[Tree],
    tries: int,
    target: int,
    region: Region | None = None,
    score: Callable[[Layout], float] | None = None,
) -> tuple[int, Layout]:
    """The best layout met, and its doubled cut; `tries` trees, stops at `target`.

    `score`: what is minimised, the doubled cut by default.
    """
    if region is None:
        region = np.ones((grid.rows, grid.width), dtype=np.bool_)
    slicer = Slicer(grid, capacities, region)
    rng = random.Random(f"{grid.rows}x{grid.width}:{sorted(capacities)}")
    value = score or (lambda layout: layout_cost(grid, layout))
    best = best_of_trees(slicer.layout, value, starts, tries, target, rng)
    return layout_cost(grid, best), best


def best_of_trees(
    build: Callable[[Tree], Layout],
    value: Callable[[Layout], float],
    starts: Sequence[Tree],
    tries: int,
    target: float,
    rng: random.Random,
    axes: int = 2,
    slack: float = SLACK,
) -> Layout:
    """Threshold accepting (Dueck and Scheuer 1990) from the best start: a neighbour is kept
    when it is not much worse than the current tree, and "much" shrinks to nothing."""
    layouts = [build(start) for start in starts]
    costs = [value(layout) for layout in layouts]
    first = int(np.argmin(costs))
    now, cost = starts[first], costs[first]
    best, best_cost = layouts[first], cost
    known = dict(zip(starts, costs, strict=True))
    for step in range(tries):
        if best_cost <= target:
            break
        other = mutate(now, rng, axes)
        other_cost = known.get(other)
        if other_cost is None:
            layout = build(other)
            known[other] = other_cost = value(layout)
            if other_cost < best_cost:
                best, best_cost = layout, other_cost
        if other_cost <= cost * (1 + slack * (1 - step / tries) ** 2):
            now, cost = other, other_cost
    return best
