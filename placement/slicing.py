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
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost
from placement.parting import Cells, Plan, part_grid

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


def plan_of(tree: Tree, capacities: Sequence[int]) -> Plan:
    """The same node by node, for compiled loops."""
    rows: list[list[int]] = []

    def held(node: Tree) -> int:
        row = [node.zone, -1, -1, node.axis, node.lean, 0]
        rows.append(row)
        if node.first is None or node.second is None:
            row[5] = capacities[node.zone]
        else:
            row[1] = len(rows)
            total = held(node.first)
            row[2] = len(rows)
            row[5] = total + held(node.second)
        return row[5]

    held(tree)
    return Plan(*np.array(rows, dtype=np.int64).T.copy())


class Slicer:
    """Builds layouts of a region of the grid from trees over zones of given capacities.

    The zones of a tree must hold the whole region.
    """

    def __init__(self, grid: BlockGrid, capacities: Sequence[int], region: Region) -> None:
        self._capacities = capacities
        # Slots that belong together: whole groups of the first axes, the most first.
        sizes = [axis.size for axis in grid.slice_axes[:-1]]
        grains = [prod(sizes[:k]) for k in range(len(sizes), -1, -1)]
        rows, width = region.shape
        number = np.arange(rows * width).reshape(rows, width // grains[0], grains[0])
        order = number.transpose(1, 0, 2).ravel()
        inside = region.ravel()
        self._by_row, self._by_slot = np.flatnonzero(inside), order[inside[order]]
        self._grains = np.array(grains, dtype=np.int64)
        self._shape = region.shape
        self._room: Ints = np.zeros((3, rows * width), dtype=np.int64)

    def layout(self, tree: Tree) -> Layout:
        """The zone of each block of the region, -1 elsewhere."""
        rows, width = self._shape
        plan = plan_of(tree, self._capacities)
        layout = np.full(rows * width, -1, dtype=np.int64)
        cells = Cells(
            self._by_row.copy(),
            self._by_slot.copy(),
            self._grains,
            width,
            *self._room,
            *np.zeros((2, len(plan.zone)), dtype=np.int64),
        )
        steps = 3 * len(self._by_row) * len(plan.zone).bit_length()
        part_grid.run(steps, plan, cells, layout)
        return layout.reshape(self._shape)


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
