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
from placement.parting import Links, Sweeps, part_graph
from placement.trees import Plan

WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction


class Sweeper:
    """Builds layouts of a graph from trees over zones.

    `orders`: blocks along each axis that a tree can cut; shape of each: (blocks,).
    The zones of a tree must hold all blocks.
    """

    def __init__(self, graph: BlockGraph, orders: Sequence[Ints]) -> None:
        self._links = _links(graph, orders)
        groups = len(graph.group_weight)
        self._by_block: Ints = np.zeros((3, graph.blocks), dtype=np.int64)
        self._by_group: Ints = np.zeros((2, groups), dtype=np.int64)
        self._curve: Ints = np.zeros(graph.blocks + 2, dtype=np.int64)

    def layout(self, plan: Plan) -> Ints:
        """The zone of each block."""
        nodes, blocks = len(plan.zone), len(self._links.begin) - 1
        layout = np.zeros(blocks, dtype=np.int64)
        begin, end, path = np.zeros((3, nodes), dtype=np.int64)
        inside, node, place = self._by_block
        group_node, last = self._by_group
        sweeps = Sweeps(inside, node, place, group_node, last, self._curve, begin, end, path)
        steps = blocks * nodes + len(self._links.to) * nodes.bit_length()
        part_graph.run(steps, plan, self._links, sweeps, WINDOW, layout)
        return layout


def _links(graph: BlockGraph, orders: Sequence[Ints]) -> Links:
    tail = np.concatenate([graph.tail, graph.head])
    by_tail = np.argsort(tail, kind="stable")
    by_member = np.argsort(graph.members, kind="stable")
    ends = np.arange(graph.blocks + 1)
    return Links(
        np.searchsorted(tail[by_tail], ends),
        np.concatenate([graph.head, graph.tail])[by_tail],
        np.concatenate([graph.weight, graph.weight])[by_tail],
        np.searchsorted(graph.members[by_member], ends),
        graph.group[by_member],
        graph.group_weight,
        np.concatenate(orders),
    )
