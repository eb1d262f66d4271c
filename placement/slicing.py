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
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost

Region = npt.NDArray[np.bool_]
SLACK = 0.04  # share by which a kept neighbour may be worse, at the start
SWAP, TURN, LEAN, REGROW = range(4)
MOVES = (SWAP, SWAP, SWAP, TURN, LEAN, LEAN, REGROW)  # tuned on ragged zones


@dataclass(frozen=True, slots=True)
class Tree:
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
        self._region = region
        self._layout: Layout = np.empty(region.shape, dtype=np.int64)

    def layout(self, tree: Tree) -> Layout:
        """The zone of each block of the region, -1 elsewhere."""
        self._layout = np.full(self._region.shape, -1, dtype=np.int64)
        self._fill(tree, self._region)
        return self._layout

    def capacity(self, tree: Tree) -> int:
        if tree.first is None or tree.second is None:
            return self._capacities[tree.zone]
        return self.capacity(tree.first) + self.capacity(tree.second)

    def _fill(self, tree: Tree, region: Region) -> None:
        if tree.first is None or tree.second is None:
            self._layout[region] = tree.zone
            return
        cells = int(np.count_nonzero(region))
        capacity_1, capacity_2 = self.capacity(tree.first), self.capacity(tree.second)
        least, most = max(0, cells - capacity_2), min(capacity_1, cells)
        wish = (least, cells * capacity_1 // (capacity_1 + capacity_2), most)[tree.lean]
        part = self._part(region, tree.axis == 1, least, most, wish)
        if part.any():
            self._fill(tree.first, part)
        rest = region & ~part
        if rest.any():
            self._fill(tree.second, rest)

    def _part(
        self, region: Region, is_across_rows: bool, least: int, most: int, wish: int
    ) -> Region:
        """The first `least` to `most` cells: whole groups if that goes, and ended by a
        straight line if one is in reach."""
        lines = np.cumsum(region.sum(axis=1 if is_across_rows else 0))
        for grain in self._grains:
            straight = lines if is_across_rows else lines[grain - 1 :: grain]
            size = _nearest(straight, least, most, wish)
            if size is None:
                size = _multiple(grain, least, most, wish)
            if size is not None:
                return self._first_cells(region, is_across_rows, size)
        raise AssertionError("a grain of 1 always fits")

    def _first_cells(self, region: Region, is_across_rows: bool, size: int) -> Region:
        """`size` cells in reading order, or group of slots by group of slots."""
        rows, width = region.shape
        if is_across_rows:
            cells = np.flatnonzero(region)
        else:
            grain = self._grains[0]
            number = np.arange(rows * width).reshape(rows, width // grain, grain)
            order = number.transpose(1, 0, 2).ravel()
            cells = order[region.ravel()[order]]
        part = np.zeros(rows * width, dtype=np.bool_)
        part[cells[:size]] = True
        return part.reshape(rows, width)


def _multiple(grain: int, least: int, most: int, wish: int) -> int | None:
    """The multiple of `grain` in [least, most] closest to `wish`."""
    low, high = -(-least // grain) * grain, most // grain * grain
    return min(max(wish // grain * grain, low), high) if low <= high else None


def _nearest(sizes: npt.NDArray[np.int64], least: int, most: int, wish: int) -> int | None:
    """The size in [least, most] closest to `wish`, 0 included; None when there is none."""
    choices = sizes[(sizes >= least) & (sizes <= most)]
    if least == 0:
        choices = np.append(choices, 0)
    if not len(choices):
        return None
    return int(choices[np.argmin(np.abs(choices - wish))])


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
    return replace(tree, first=_relabel(tree.first, names), second=_relabel(tree.second, names))


def _change(tree: Tree, index: int, kind: int, rng: random.Random, axes: int) -> tuple[Tree, int]:
    """Change inner node number `index` (preorder); returns what is left of the index."""
    if tree.first is None or tree.second is None:
        return tree, index
    if index == 0:
        return _changed(tree, kind, rng, axes), -1
    first, left = _change(tree.first, index - 1, kind, rng, axes)
    second, left = (tree.second, left) if left < 0 else _change(tree.second, left, kind, rng, axes)
    return replace(tree, first=first, second=second), left


def _changed(tree: Tree, kind: int, rng: random.Random, axes: int) -> Tree:
    if kind == TURN:
        further = 1 if axes <= 2 else rng.randrange(1, axes)
        return replace(tree, axis=(tree.axis + further) % axes)
    if kind == LEAN:
        return replace(tree, lean=(tree.lean + rng.randrange(1, 3)) % 3)
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
    for step in range(tries):
        if best_cost <= target:
            break
        other = mutate(now, rng, axes)
        layout = build(other)
        other_cost = value(layout)
        if other_cost <= cost * (1 + slack * (1 - step / tries) ** 2):
            now, cost = other, other_cost
        if other_cost < best_cost:
            best, best_cost = layout, other_cost
    return best
