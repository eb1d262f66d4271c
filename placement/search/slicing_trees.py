"""Slicing trees, and how one becomes its neighbour.

A node parts what it gets between two sets of zones; a leaf holds one zone. A search keeps a tree as
flat arrays (`TreeArrays`) and changes it in place (`_change`), inside a compiled loop or node by
node from Python. A few kinds of small change reach every tree.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.kernels import refill
from placement.search.annealing import _next

SWAP, TURN, LEAN, SHUFFLE, GRAFT = range(5)
MOVES = (SWAP, SWAP, SWAP, TURN, LEAN, LEAN, SHUFFLE, GRAFT, GRAFT)  # tuned on ragged zones
NOWHERE = -1


class TreeArrays(NamedTuple):
    """A tree as arrays, by node; the root is node 0. Of leaves: the zone. Of the others, where
    that is -1: the two children, and the axis; and how the line leans where capacities leave a
    choice: 0 gives the first child as little as they allow, 2 as much, 1 its share by capacity.
    `above`: the parent, -1 for the root. `held`: capacity of all zones below."""

    zone: Ints
    first: Ints
    second: Ints
    above: Ints
    axis: Ints
    lean: Ints
    held: Ints


def plan_of(
    zones: Sequence[Any], capacities: Sequence[int], axes: Sequence[int], lean: int = 2
) -> TreeArrays:
    """Make the tree that cuts a block of ranks into zones: those of `zones` lie side by side along
    the first of the axes; a nested sequence is one part of that, whose zones lie side by side
    along the next axis. `lean`: of every cut, as in `TreeArrays`."""
    rows: list[list[int]] = []

    def add(inside: Any, depth: int, above: int) -> int:
        number, row = len(rows), [NOWHERE, -1, -1, above, 0, 1, 0]
        if isinstance(inside, int):
            rows.append([inside, *row[1:-1], capacities[inside]])
        elif len(inside) == 1:
            return add(inside[0], depth + 1, above)
        else:
            rows.append(row)
            row[1], row[2] = add(inside[0], depth + 1, number), add(inside[1:], depth, number)
            row[4:] = axes[depth], lean, rows[row[1]][-1] + rows[row[2]][-1]
        return number

    add(zones, 0, NOWHERE)
    return TreeArrays(*np.array(rows, dtype=np.int64).T.copy())


def copy_of(plan: TreeArrays) -> TreeArrays:
    return TreeArrays(*(part.copy() for part in plan))


def copied(to: TreeArrays, plan: TreeArrays) -> None:
    refill(to.zone, plan.zone)
    refill(to.first, plan.first)
    refill(to.second, plan.second)
    refill(to.above, plan.above)
    refill(to.axis, plan.axis)
    refill(to.lean, plan.lean)
    refill(to.held, plan.held)


def below(plan: TreeArrays, node: int, path: Ints) -> int:
    """Write `node` and all nodes below it to `path`, and return how many they are."""
    path[0] = node
    many, at = 1, 0
    while at < many:
        node = path[at]
        at += 1
        if plan.zone[node] < 0:
            path[many] = plan.first[node]
            path[many + 1] = plan.second[node]
            many += 2
    return many


def _drawn(plan: TreeArrays, is_leaf: bool, word: int) -> tuple[int, int]:
    """A leaf or an inner node, and the last random word."""
    word = _next(word)
    node = word * len(plan.zone) >> 32
    while (plan.zone[node] >= 0) != is_leaf:
        word = _next(word)
        node = word * len(plan.zone) >> 32
    return node, word


def _meeting(plan: TreeArrays, a: int, b: int, path: Ints) -> int:
    """The lowest node that both are below, or are."""
    for node in range(len(plan.zone)):
        path[node] = 0
    while a >= 0:
        path[a] = 1
        a = plan.above[a]
    while not path[b]:
        b = plan.above[b]
    return b


def _add_capacity(plan: TreeArrays, node: int, top: int, more: int) -> None:
    """`more` capacity at `node` and above it, below `top`."""
    while node != top:
        plan.held[node] += more
        node = plan.above[node]


def _put(plan: TreeArrays, above: int, old: int, new: int) -> None:
    """`new` in the place of a child."""
    if plan.first[above] == old:
        plan.first[above] = new
    else:
        plan.second[above] = new
    plan.above[new] = above


def _swapped(plan: TreeArrays, path: Ints, word: int) -> tuple[int, int]:
    """Two leaves trade zones."""
    a, word = _drawn(plan, True, word)
    b, word = _drawn(plan, True, word)
    if a == b:
        return NOWHERE, word
    meeting, more = _meeting(plan, a, b, path), plan.held[b] - plan.held[a]
    _add_capacity(plan, a, meeting, more)
    _add_capacity(plan, b, meeting, -more)
    plan.zone[a], plan.zone[b] = plan.zone[b], plan.zone[a]
    return meeting, word


def _shuffled(plan: TreeArrays, axes: int, path: Ints, word: int) -> tuple[int, int]:
    """A part of the tree with zones, axes and leans as they come."""
    top, word = _drawn(plan, False, word)
    many = below(plan, top, path)
    leaves = 0
    for k in range(many):
        node = path[k]
        if plan.zone[node] >= 0:
            path[leaves] = node
            leaves += 1
        else:
            word = _next(word)
            plan.axis[node] = word * axes >> 32
            word = _next(word)
            plan.lean[node] = word * 3 >> 32
    for k in range(leaves - 1, 0, -1):
        word = _next(word)
        a, b = path[k], path[word * (k + 1) >> 32]
        more = plan.held[b] - plan.held[a]
        plan.zone[a], plan.zone[b] = plan.zone[b], plan.zone[a]
        _add_capacity(plan, a, plan.above[top], more)
        _add_capacity(plan, b, plan.above[top], -more)
    return top, word


def _grafted(plan: TreeArrays, axes: int, path: Ints, word: int) -> tuple[int, int]:
    """A leaf beside another node: its parent goes with it, and its sibling stays."""
    leaf, word = _drawn(plan, True, word)
    word = _next(word)
    target, stem = word * len(plan.zone) >> 32, plan.above[leaf]
    if 0 in (stem, target) or target in (leaf, stem):
        return NOWHERE, word
    more, old = plan.held[leaf], plan.above[stem]
    sibling = plan.second[stem] if plan.first[stem] == leaf else plan.first[stem]
    _add_capacity(plan, old, NOWHERE, -more)
    _put(plan, old, stem, sibling)
    _put(plan, plan.above[target], target, stem)
    word = _next(word)
    plan.first[stem], plan.second[stem] = (leaf, target) if word & 1 else (target, leaf)
    plan.above[target] = stem
    word = _next(word)
    plan.axis[stem] = word * axes >> 32
    word = _next(word)
    plan.lean[stem] = word * 3 >> 32
    plan.held[stem] = plan.held[target] + more
    _add_capacity(plan, plan.above[stem], NOWHERE, more)
    return _meeting(plan, old, stem, path), word


def _change(plan: TreeArrays, axes: int, path: Ints, word: int) -> tuple[int, int]:
    """Make the tree a neighbour: two zones trade places, one goes elsewhere, or a node is
    turned, shifted or shuffled. The node below which everything has changed, NOWHERE for
    nothing, and the last random word.

    `axes`: of the blocks; the tree has an inner node. `path`: room, a place for each node.
    """
    word = _next(word)
    kind = MOVES[word * len(MOVES) >> 32]
    if kind == SWAP:
        return _swapped(plan, path, word)
    if kind == GRAFT:
        return _grafted(plan, axes, path, word)
    if kind == SHUFFLE:
        return _shuffled(plan, axes, path, word)
    node, word = _drawn(plan, False, word)
    word = _next(word)
    if kind == TURN and axes > 1:
        plan.axis[node] = (plan.axis[node] + 1 + (word * (axes - 1) >> 32)) % axes
    else:
        plan.lean[node] = (plan.lean[node] + 1 + (word >> 31)) % 3
    return node, word


PARTS = (
    copied,
    below,
    _next,
    _drawn,
    _meeting,
    _add_capacity,
    _put,
    _swapped,
    _shuffled,
    _grafted,
    _change,
)
