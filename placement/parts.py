"""What parts of a graph cut at least, by their size, and so what domains of given sizes do.

Where the blocks are few, or every edge is short, the cheapest part of each size is known
exactly; parts that hold all blocks and respect the capacities cost at least the least sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.blockgraph import BlockGraph
from placement.circle import least_cuts
from placement.fabric import Ints
from placement.sizes import least_sum
from placement.tiny import MOST_IN_PARTS, least_of_parts


class PartBound:
    """Bounds on what layouts of one graph cut; tables are made once."""

    def __init__(self, graph: BlockGraph) -> None:
        self._graph = graph
        self._costs: dict[int, tuple[Ints, int] | None] = {}

    def least_cut(self, capacities: Sequence[int]) -> int:
        """A cut in the graph's units, doubled, that no layout on these domains beats; 0 where
        too little is known of parts."""
        found = self._part_costs(min(self._graph.blocks, max(capacities)))
        if found is None:
            return 0
        cost, offset = found
        return max(0, least_sum(self._graph.blocks, capacities, cost) - offset)

    def _part_costs(self, most: int) -> tuple[Ints, int] | None:
        """What a domain with n = 0 .. most blocks pays at least, and what all of them pay too
        much."""
        if self._graph.blocks <= MOST_IN_PARTS:
            most = self._graph.blocks
        if most not in self._costs:
            self._costs[most] = self._found(most)
        return self._costs[most]

    def _found(self, most: int) -> tuple[Ints, int] | None:
        graph = self._graph
        if graph.blocks <= MOST_IN_PARTS:
            return least_of_parts(graph)
        if len(graph.group):
            return None
        ends = graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist()
        edges = {(a, b): weight for a, b, weight in zip(*ends, strict=True)}
        cost = least_cuts(edges, [1] * graph.blocks, most)
        return None if cost is None else (cost, 0)
