"""What parts of a graph cut at least, by their size, and so what domains of given sizes do.

Where the graph is narrow in some order, the cheapest part of each size is known exactly; parts that
hold all blocks and respect the capacities cost at least the least sum.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.bound.pathwidth import least_parts
from placement.bound.size_relaxation import least_sum
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph

QUICK = 20_000_000  # steps along an order: some 20 ms


class PartBound:
    """Lower bounds on what layouts of one graph cut. Tables are made once."""

    def __init__(self, graph: Hypergraph, orders: Sequence[Ints] = ()) -> None:
        """`orders`: of the blocks, in which the graph may be narrow, beside their own."""
        self._graph = graph
        self._orders = [np.arange(graph.blocks), *orders]
        # By size, and with how many steps they were looked for.
        self._costs: dict[int, tuple[int, tuple[Ints, int] | None]] = {}

    def least_cut(self, capacities: Sequence[int], steps: int = QUICK) -> int:
        """Return a doubled cut, in the graph's units, that no layout on these domains beats; 0
        where too little is known of parts, or that takes more than so many steps."""
        most = min(self._graph.blocks, max(capacities))
        tried, costs = self._costs.get(most, (0, None))
        if costs is None and tried < steps:
            costs = least_parts(self._graph, self._orders, most, steps)
            self._costs[most] = steps, costs
        if costs is None:
            return 0
        cost, offset = costs
        return max(0, least_sum(self._graph.blocks, capacities, cost) - offset)
