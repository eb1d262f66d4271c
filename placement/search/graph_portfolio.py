"""Blocks that form no grid: what a layout of them cuts, and layouts by several ways.

Runs and sweeps part the blocks along their axes, and moves and exchanges of single blocks polish
what that comes to.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from placement.bound.part_sizes import PartBound
from placement.fabric.tree import Ints
from placement.graph.hypergraph import block_graph
from placement.objective.cut import cut_by_axis
from placement.search.graph_slicing import SLACKS, SMALL, Sweeper, orders_along
from placement.search.multilevel import PROPOSALS, SLOW, refined
from placement.search.segmentation import LineSearch
from placement.speculative import ahead
from placement.workload.request import Request
from placement.workload.traffic import axis_traffic

A_SEQUENCE = 30  # trees that stand for one more sequence of zones along the orders
MOST_CELLS = 50_000_000  # of the tables of all sequences: about a third of a second
PROPOSALS_ANEW = 3_600  # in slow passes over the graph, for each tree


class Blocks:
    """The blocks of one gang, for zones of given capacities.

    Costs and bounds are doubled cuts in bytes. `graph`: None where it has too many edges; then
    blocks stay in order. A layout is the zone of each block, shape (blocks,).
    """

    def __init__(self, request: Request, gpus: int, capacities: Sequence[int]) -> None:
        self.request, self.gpus, self.capacities = request, gpus, capacities
        self.graph = block_graph(request, gpus)

    @cached_property
    def orders(self) -> list[Ints]:
        return orders(self.request, self.gpus)

    @cached_property
    def parts(self) -> PartBound:
        assert self.graph is not None
        return PartBound(self.graph, self.orders)

    def cost(self, layout: Ints) -> int:
        return 2 * sum(b for _, b in cut_by_axis(self.request, self.gpus, layout))

    def searched(self, trees: int, bound: int) -> Ints:
        """The best of runs and of slicing trees, until one cuts no more than `bound`."""
        ways = [self._filled] if self.graph is None else [self._runs, self._swept]
        layouts: list[Ints] = []
        for way in ways:
            layouts += way(trees, bound)
            if min(map(self.cost, layouts)) <= bound:
                break
        return min(layouts, key=self.cost)

    def moved(self, layout: Ints, trees: int, bound: int) -> Ints:
        """The same after moves of single blocks, unless it cuts no more than `bound`."""
        graph, target = self.graph, self._target(bound)
        if graph is None or graph.cost(layout) <= target:
            return layout
        return refined(graph, self.capacities, layout, PROPOSALS * trees, target)

    def put_anew(self, layout: Ints, trees: int, bound: int) -> Ints:
        """The best of this one and of many searches from nothing, on the graph."""
        if self.graph is None:
            return layout
        proposals, target = PROPOSALS_ANEW * trees, self._target(bound)
        return refined(self.graph, self.capacities, layout, proposals, target, SLOW)

    def _target(self, bound: int) -> int:
        """A bound in units of the graph."""
        return 0 if self.graph is None else bound * self.graph.scale // 2

    def _filled(self, trees: int, bound: int) -> list[Ints]:
        """Zones filled one after the other, the largest first, along each order."""
        zones = np.argsort(-np.array(self.capacities), kind="stable")
        along, layouts = np.repeat(zones, np.array(self.capacities)[zones]), []
        for order in self.orders:
            layout = np.empty(len(order), dtype=np.int64)
            layout[order] = along[: len(order)]
            layouts.append(layout)
        return layouts

    def _runs(self, trees: int, bound: int) -> list[Ints]:
        """Zones as segments of the orders."""
        graph, orders = self.graph, self.orders
        assert graph is not None
        work = max(MOST_CELLS, len(orders) * graph.blocks * sum(self.capacities))
        lines = LineSearch(graph, orders, self.capacities, self._target(bound), work)
        lines.walk((len(orders),))
        lines.climb(trees // A_SEQUENCE)
        return [lines.layout()]

    def _swept(self, trees: int, bound: int) -> list[Ints]:
        """By slicing trees."""
        assert self.graph is not None
        target = self._target(bound)
        search = partial(Sweeper(self.graph, self.orders).searched, self.capacities, trees, target)
        searches = [partial(search, slack) for slack in SLACKS]
        return list(ahead(searches, are_long=self.graph.blocks > SMALL))


def orders(request: Request, gpus: int) -> list[Ints]:
    """Blocks sorted along the axes that span hosts, in every order of them."""
    first = np.arange(request.parallelism.world_size // gpus) * gpus
    axes = [t for t in axis_traffic(request) if t.stride * t.size > gpus]
    return orders_along([first // t.stride % t.size for t in axes])
