"""Blocks that form no grid: what a layout of them cuts, and layouts by several ways.

Runs and sweeps part the blocks along their axes, several hosts at once are placed as a grid of
their own, and moves and exchanges of single blocks polish what that comes to.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from placement.bound.part_sizes import PartBound
from placement.fabric.tree import Ints
from placement.graph.hypergraph import block_graph
from placement.grid.block_grid import block_grid
from placement.objective.cut import cut_by_axis
from placement.search.graph_slicing import SMALL, Sweeper, orders_along, slice_grid
from placement.search.multilevel import PROPOSALS, SLOW, refined
from placement.search.segmentation import LineSearch
from placement.speculative import ahead
from placement.workload.request import Request
from placement.workload.traffic import axis_traffic

SLACKS = (0.03, 0.01)  # of two searches over sweeps: neither finds all
PATIENT = SLACKS[:1]  # of a search with so many times as many trees, where little is proved
MORE_TREES = 10
SWEPT = 3_000  # edges; larger graphs get fewer trees
A_SEQUENCE = 30  # trees that stand for one more sequence of zones along the orders
MOST_CELLS = 50_000_000  # of the tables of all sequences: about a third of a second
PROPOSALS_ANEW = 3_600  # in slow passes over the graph, for each tree
A_SWEEP = 5  # for one over a graph, which is parted as a whole each time
MOST_TOGETHER = 64  # hosts placed as one


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

    def best(self, layouts: Sequence[Ints]) -> Ints:
        """The first one that cuts least."""
        return min(layouts, key=self.cost)

    def searched(self, trees: int, bound: int) -> Ints:
        """The best of runs and of sweeps of single blocks and of a grid of several hosts at once,
        until one cuts no more than `bound`."""
        if self.graph is None:
            return self.best([*self._filled(), *self._together(trees)])
        layouts = [self._runs(trees, bound)]
        if self._is_above(layouts, bound):
            layouts.insert(0, self._swept(trees, bound))
        if self._is_above(layouts, bound):
            layouts += self._together(trees)
        return self.best(layouts)

    def moved(self, layout: Ints, trees: int, bound: int) -> Ints:
        """The same after moves of single blocks, unless it cuts no more than `bound`."""
        graph, target = self.graph, self._target(bound)
        if graph is None or graph.cost(layout) <= target:
            return layout
        return refined(graph, self.capacities, layout, PROPOSALS * trees, target)

    def put_anew(self, layout: Ints, trees: int, bound: int) -> Ints:
        """The best of this one and of many searches from nothing, on the graph."""
        assert self.graph is not None
        proposals, target = PROPOSALS_ANEW * trees, self._target(bound)
        return refined(self.graph, self.capacities, layout, proposals, target, SLOW)

    def searched_on(self, trees: int, bound: int) -> Ints:
        """A longer search over sweeps."""
        return self.moved(self._swept(MORE_TREES * trees, bound, PATIENT), 0, bound)

    def _target(self, bound: int) -> int:
        """A bound in units of the graph."""
        return 0 if self.graph is None else bound * self.graph.scale // 2

    def _is_above(self, layouts: Sequence[Ints], bound: int) -> bool:
        assert self.graph is not None
        return min(map(self.graph.cost, layouts)) > self._target(bound)

    def _largest_first(self) -> list[int]:
        zones = (z for z, c in enumerate(self.capacities) if c)
        return sorted(zones, key=lambda z: (-self.capacities[z], z))

    def _filled(self) -> list[Ints]:
        """Zones filled one after the other, along each order."""
        zones, layouts = self._largest_first(), []
        for order in self.orders:
            layout = np.empty(len(order), dtype=np.int64)
            held = [self.capacities[z] for z in zones]
            layout[order] = np.repeat(zones, held)[: len(order)]
            layouts.append(layout)
        return layouts

    def _runs(self, trees: int, bound: int) -> Ints:
        """Zones as segments of the orders."""
        graph, orders = self.graph, self.orders
        assert graph is not None
        work = max(MOST_CELLS, len(orders) * graph.blocks * sum(self.capacities))
        lines = LineSearch(graph, orders, self.capacities, self._target(bound), work)
        lines.walk((len(orders),))
        lines.climb(trees // A_SEQUENCE)
        return lines.layout()

    def _swept(self, trees: int, bound: int, slacks: Sequence[float] = SLACKS) -> Ints:
        graph = self.graph
        assert graph is not None
        room = self.capacities
        tries = max(1, trees // A_SWEEP * min(SWEPT, len(graph.tail)) // max(1, len(graph.tail)))
        search = partial(Sweeper(graph, self.orders).searched, room, tries, self._target(bound))
        searches = [partial(search, slack) for slack in slacks]
        return min(ahead(searches, are_long=graph.blocks > SMALL), key=graph.cost)

    def _together(self, trees: int) -> list[Ints]:
        """The fewest neighbouring hosts that form a grid, placed together; nothing where zones
        do not hold enough of them."""
        for hosts in range(2, MOST_TOGETHER + 1):
            if self.request.parallelism.world_size % (hosts * self.gpus):
                continue
            grid = block_grid(self.request, hosts * self.gpus)
            if grid is not None:
                room = [c // hosts for c in self.capacities]
                if sum(room) < grid.size:
                    return []
                layout = slice_grid(grid, room, trees, 0)
                zone = np.empty(grid.size, dtype=np.int64)
                zone[grid.block] = layout
                return [np.repeat(zone, hosts)]
        return []


def orders(request: Request, gpus: int) -> list[Ints]:
    """Blocks sorted along the axes that span hosts, in every order of them."""
    first = np.arange(request.parallelism.world_size // gpus) * gpus
    axes = [t for t in axis_traffic(request) if t.stride * t.size > gpus]
    return orders_along([first // t.stride % t.size for t in axes])
