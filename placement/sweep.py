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

import numpy as np

from placement.blockgraph import BlockGraph
from placement.fabric import Ints
from placement.slicing import Tree

WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction


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

    def layout(self, tree: Tree) -> Ints:
        """The zone of each block."""
        graph = self._graph
        self._layout = np.zeros(graph.blocks, dtype=np.int64)
        everything = np.arange(graph.blocks)
        self._fill(tree, everything, np.arange(len(graph.tail)), np.arange(len(graph.members)))
        return self._layout

    def _capacity(self, tree: Tree) -> int:
        if tree.first is None or tree.second is None:
            return self._capacities[tree.zone]
        return self._capacity(tree.first) + self._capacity(tree.second)

    def _fill(self, tree: Tree, blocks: Ints, edges: Ints, members: Ints) -> None:
        """`edges`, `members`: those with all ends, or that are, among `blocks`."""
        if tree.first is None or tree.second is None:
            self._layout[blocks] = tree.zone
            return
        graph, at = self._graph, self._at
        ordered = blocks[np.argsort(self._place[tree.axis][blocks], kind="stable")]
        at[ordered] = np.arange(len(blocks))
        ends = at[graph.tail[edges]], at[graph.head[edges]]
        low, high = np.minimum(*ends), np.maximum(*ends)
        curve = self._curve(len(blocks), low, high, edges, members)
        size = self._size(tree, curve)
        in_first = at[graph.members[members]] < size
        if size:
            self._fill(tree.first, ordered[:size], edges[high < size], members[in_first])
        if size < len(blocks):
            self._fill(tree.second, ordered[size:], edges[low >= size], members[~in_first])

    def _curve(self, blocks: int, low: Ints, high: Ints, edges: Ints, members: Ints) -> Ints:
        """Bytes between the first n blocks and the others. Shape: (blocks + 1,)."""
        graph = self._graph
        change = np.zeros(blocks + 2, dtype=np.int64)
        np.add.at(change, low + 1, graph.weight[edges])
        np.subtract.at(change, high + 1, graph.weight[edges])
        if len(members):
            at, group = self._at[graph.members[members]], graph.group[members]
            starts = np.flatnonzero(np.diff(group, prepend=-1))
            weight = graph.group_weight[group[starts]]
            np.add.at(change, np.minimum.reduceat(at, starts) + 1, weight)
            np.subtract.at(change, np.maximum.reduceat(at, starts) + 1, weight)
        return np.cumsum(change[: blocks + 1])

    def _size(self, tree: Tree, curve: Ints) -> int:
        """Where to cut; ties to the size that shares the blocks by capacity."""
        assert tree.first is not None
        assert tree.second is not None
        blocks = len(curve) - 1
        capacity_1, capacity_2 = self._capacity(tree.first), self._capacity(tree.second)
        least, most = max(0, blocks - capacity_2), min(capacity_1, blocks)
        window = (most - least) // WINDOW
        if tree.lean == 0:
            most = least + window
        elif tree.lean == 2:
            least = most - window
        wish = blocks * capacity_1 // (capacity_1 + capacity_2)
        sizes = np.arange(least, most + 1)
        best = np.flatnonzero(curve[sizes] == curve[sizes].min())
        return int(sizes[best[np.argmin(np.abs(sizes[best] - wish))]])
