"""Layouts by sweeps: order the blocks along an axis, and cut where the least is cut.

What straight lines are to a grid, sweeps are to any graph. A node of a slicing tree
orders the blocks it gets along one of a few axes and counts the bytes between every
prefix and the rest at once: an edge is cut by the prefixes that end between its ends.
Among the prefixes that the zones on either side can hold, the one that cuts least is
taken. So a cut falls between two replicas or two stages wherever capacities allow it,
whatever the sizes of blocks and replicas are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.blockgraph import BlockGraph
from placement.fabric import Ints
from placement.slicing import Tree

WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction
MOST_KEPT = 1 << 20  # blocks and edges of the sweeps that are remembered


class _Swept(NamedTuple):
    """Some blocks in order, the places of the ends of their edges and of their group members,
    and what a prefix cuts."""

    ordered: Ints
    low: Ints
    high: Ints
    places: Ints
    curve: Ints


class Sweeper:
    """Builds layouts of a graph from trees over zones of given capacities.

    `orders`: blocks along each axis that a tree can cut; shape of each: (blocks,).
    The zones of a tree must hold all blocks.
    """

    def __init__(
        self, graph: BlockGraph, capacities: Sequence[int], orders: Sequence[Ints]
    ) -> None:
        self._graph = graph
        self._capacities = capacities
        self._place = [np.argsort(order, kind="stable") for order in orders]
        self._at: Ints = np.full(graph.blocks, -1, dtype=np.int64)
        self._layout: Ints = np.zeros(graph.blocks, dtype=np.int64)
        self._known: dict[tuple[int, bytes], _Swept] = {}
        self._kept = 0

    def layout(self, tree: Tree) -> Ints:
        """The zone of each block."""
        graph = self._graph
        self._layout = np.zeros(graph.blocks, dtype=np.int64)
        self._held: dict[int, int] = {}  # capacity by the identity of the node
        self._capacity(tree)
        everything = np.arange(graph.blocks)
        self._fill(tree, everything, np.arange(len(graph.tail)), np.arange(len(graph.members)))
        return self._layout

    def _capacity(self, tree: Tree) -> int:
        if tree.first is None or tree.second is None:
            held = self._capacities[tree.zone]
        else:
            held = self._capacity(tree.first) + self._capacity(tree.second)
        self._held[id(tree)] = held
        return held

    def _fill(self, tree: Tree, blocks: Ints, edges: Ints, members: Ints) -> None:
        """`edges`, `members`: those with all ends, or that are, among `blocks`."""
        if tree.first is None or tree.second is None:
            self._layout[blocks] = tree.zone
            return
        swept = self._swept(tree.axis, blocks, edges, members)
        size = self._size(tree, swept.curve)
        in_first = swept.places < size
        first, second = swept.ordered[:size], swept.ordered[size:]
        if size:
            self._fill(tree.first, first, edges[swept.high < size], members[in_first])
        if size < len(blocks):
            self._fill(tree.second, second, edges[swept.low >= size], members[~in_first])

    def _swept(self, axis: int, blocks: Ints, edges: Ints, members: Ints) -> _Swept:
        """Remembered: trees that differ in one node share most of their sweeps."""
        inside = np.sort(blocks)
        key = (axis, inside.tobytes())
        found = self._known.get(key)
        if found is None:
            graph, at = self._graph, self._at
            ordered = inside[np.argsort(self._place[axis][inside], kind="stable")]
            at[ordered] = np.arange(len(blocks))
            ends = at[graph.tail[edges]], at[graph.head[edges]]
            low, high, places = np.minimum(*ends), np.maximum(*ends), at[graph.members[members]]
            curve = self._curve(len(blocks), low, high, places, edges, members)
            self._kept += 2 * len(blocks) + 2 * len(edges) + len(members)
            if self._kept > MOST_KEPT:
                self._known, self._kept = {}, 0
            found = self._known[key] = _Swept(ordered, low, high, places, curve)
        return found

    def _curve(
        self, blocks: int, low: Ints, high: Ints, places: Ints, edges: Ints, members: Ints
    ) -> Ints:
        """Bytes between the first n blocks and the others. Shape: (blocks + 1,)."""
        graph = self._graph
        change = np.zeros(blocks + 2, dtype=np.int64)
        np.add.at(change, low + 1, graph.weight[edges])
        np.subtract.at(change, high + 1, graph.weight[edges])
        if len(members):
            group = graph.group[members]
            starts = np.flatnonzero(np.diff(group, prepend=-1))
            weight = graph.group_weight[group[starts]]
            np.add.at(change, np.minimum.reduceat(places, starts) + 1, weight)
            np.subtract.at(change, np.maximum.reduceat(places, starts) + 1, weight)
        return np.cumsum(change[: blocks + 1])

    def _size(self, tree: Tree, curve: Ints) -> int:
        """Where to cut; ties to the size that shares the blocks by capacity."""
        assert tree.first is not None
        assert tree.second is not None
        blocks = len(curve) - 1
        capacity_1, capacity_2 = self._held[id(tree.first)], self._held[id(tree.second)]
        least, most = max(0, blocks - capacity_2), min(capacity_1, blocks)
        window = (most - least) // WINDOW
        if tree.lean == 0:
            most = least + window
        elif tree.lean == 2:
            least = most - window
        wish = blocks * capacity_1 // (capacity_1 + capacity_2)
        allowed = curve[least : most + 1]
        (places,) = (allowed == allowed.min()).nonzero()
        if len(places) == 1:
            return least + int(places[0])
        return least + int(places[np.abs(places + (least - wish)).argmin()])
