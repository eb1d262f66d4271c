"""Gangs whose blocks form no grid: the ranks of a host split an axis unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight line
parts the gang. Layouts come from the hypergraph of the blocks: segments of their orders along the
axes, slicing trees, then moves and exchanges of single blocks.

Where the hypergraph is narrow in some order, or round a ring, a dynamic program over its frontier
knows what a part of any size cuts at least (`part_sizes`, `ring_width`). Beyond that the bound
forgets that the ranks of a host stay together: *cells*, the most neighbouring ranks that do form a
grid, are placed one by one (`cells`). See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import product

import numpy as np

from muster.structs import replace
from placement.bound.orbits import least_by_orbits
from placement.bound.part_sizes import PartBound
from placement.bound.ring_width import least_around
from placement.bound.rounding import fewest
from placement.bound.size_relaxation import least_sum
from placement.fabric.tree import Ints
from placement.graph.hypergraph import block_graph, unlinked
from placement.grid.block_grid import BlockGrid
from placement.kernels import INFINITE
from placement.objective.cut import cut_by_axis
from placement.proof.cell_proofs import CellProof
from placement.proof.role_proofs import RoleProof
from placement.search.exact_assignment import assign_blocks
from placement.search.graph_slicing import SLACKS, SMALL, Sweeper, block_orders
from placement.search.incumbent import Incumbent
from placement.search.multilevel import PROPOSALS, QUICK, SLOW, refine
from placement.search.segmentation import LineSearch
from placement.speculative import run_ahead
from placement.workload.request import SHARES, Limits, Request

CLOSE = 0.98  # of a cut proved: what is that close leaves little to other searches
A_SEQUENCE = 30  # trees that stand for one more sequence of zones along the orders
MOST_CELLS = 50_000_000  # of the tables of all sequences: about a third of a second
PROPOSALS_ANEW = 3_600  # in slow passes over the graph, for each tree


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, Incumbent]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    if request.roles:  # blocks of roles have many edges, and later turns have found nothing more
        limits = replace(limits, turns=1)
    gang = _BlockZones(request, gpus, capacities, limits)
    return BlockGrid.shapeless(request.parallelism.world_size // gpus), gang.solved()


class _BlockZones:
    """The blocks of one gang: the best layout so far, and what no layout cuts less than.

    Costs and bounds are doubled cuts in bytes; a layout is the zone of each block, shape (blocks,).
    A search for a better layout or bound gets one part in `share` of what the limits allow; tables
    that are made once get all of `walk`. A gang whose graph has too many edges is not linked: its
    blocks stay in order.
    """

    def __init__(
        self, request: Request, gpus: int, capacities: Sequence[int], limits: Limits
    ) -> None:
        self._request, self._gpus = request, gpus
        self._capacities, self._limits = capacities, limits
        self._orders = block_orders(request, gpus)
        graph, blocks = block_graph(request, gpus), len(self._orders[0])
        self._graph, self._is_linked = graph or unlinked(blocks), graph is not None
        self._parts = PartBound(self._graph, self._orders)
        kind = RoleProof if request.roles else CellProof
        self._cells = kind(request, gpus, capacities, limits.states)
        self._best = Incumbent(np.zeros((1, blocks), dtype=np.int64), INFINITE, 0)

    def solved(self) -> Incumbent:
        """Search and prove in turns, each with a larger share of the work."""
        turns = SHARES[: self._limits.turns]
        for share, way in product(turns, self._ways()):
            if not self._best.is_closed:
                way(share)
        if self._limits.rounds and not self._best.is_closed and self._is_linked:
            self._assign_exactly()
        if self._best.bound < CLOSE * self._best.cost and turns == SHARES and self._is_linked:
            self._refine(PROPOSALS_ANEW * self._limits.trees, SLOW)
        return self._best

    def _assign_exactly(self) -> None:
        """Decide block by block, where the gang is small."""
        known = self._best.layout[0]
        exact = assign_blocks(
            self._graph, self._capacities, known, self._target, self._limits.rounds
        )
        if exact is not None:
            self._offer(exact.layout)
            self._raise_by_units(2 * exact.bound)

    def _ways(self) -> list[Callable[[int], None]]:
        """Cheap bounds, then layouts, then others; layouts alone where nothing is to be proved."""
        if not self._is_linked:
            is_bounded = self._limits.rounds > 0
            return (
                [self._bound_by_sizes, self._fill_in_order, self._bound_by_cells]
                if is_bounded
                else [self._fill_in_order]
            )
        if not self._limits.rounds:
            return [self._cut_in_runs, self._slice, self._move_blocks]
        first = [self._bound_by_parts, self._bound_by_sizes, self._cut_in_runs, self._slice]
        return [
            *first,
            self._bound_by_orbits,
            self._move_blocks,
            self._bound_by_cells,
            self._bound_round_a_ring,
        ]

    def _offer(self, layout: Ints) -> None:
        """Keep a layout if it cuts less."""
        cost = 2 * sum(b for _, b in cut_by_axis(self._request, self._gpus, layout))
        self._best = self._best.offer(layout[None, :], cost)

    def _raise_bound(self, bound: int) -> None:
        """Keep a bound if it is better."""
        self._best = self._best.raise_bound(bound)

    def _raise_by_units(self, least: int) -> None:
        """Keep a bound in units of the graph, rounded up to whole bytes, if it is better."""
        self._raise_bound(2 * -(-least // (2 * self._graph.scale)))

    @property
    def _target(self) -> int:
        """The cost, in units of the graph, below which no layout is looked for."""
        return self._best.bound * self._graph.scale // 2

    def _bound_by_parts(self, share: int) -> None:
        self._raise_by_units(self._parts.least_cut(self._capacities, self._limits.walk))

    def _bound_by_sizes(self, share: int) -> None:
        self._raise_bound(self._cells.by_sizes(self._limits.part(share).entries))

    @cached_property
    def _least_of_orbits(self) -> Ints | None:
        return least_by_orbits(self._graph, self._orders, self._most, self._limits.walk)

    def _bound_by_orbits(self, share: int) -> None:
        self._raise_by_parts(self._least_of_orbits)

    def _bound_round_a_ring(self, share: int) -> None:
        """By parts that pay no more than the dearest one of the best layout."""
        graph, known = self._graph, self._best.bound * self._graph.scale
        dearest = int(graph.paid_by_zone(self._best.layout[0]).max())
        each = known // fewest(self._capacities, graph.blocks)
        work = self._limits.walk // share
        self._raise_by_parts(least_around(graph, self._orders, self._most, dearest, each, work))

    def _raise_by_parts(self, least: Ints | None) -> None:
        """Keep the bound by what parts of every size pay at least, where that is known."""
        if least is not None:
            self._raise_by_units(least_sum(self._graph.blocks, self._capacities, least))

    @property
    def _most(self) -> int:
        """Blocks of a zone."""
        return min(self._graph.blocks, max(self._capacities))

    def _bound_by_cells(self, share: int) -> None:
        best, rounds = self._best, self._limits.part(share).rounds
        bound, layout = self._cells.prove(best.layout[0], best.cost, rounds, best.bound)
        self._raise_bound(bound)
        if layout is not None:
            self._offer(layout)

    def _fill_in_order(self, share: int) -> None:
        """Zones filled one after the other, the largest first, along each order."""
        zones = np.argsort(-np.array(self._capacities), kind="stable")
        along = np.repeat(zones, np.array(self._capacities)[zones])
        for order in self._orders:
            layout = np.empty(len(order), dtype=np.int64)
            layout[order] = along[: len(order)]
            self._offer(layout)

    def _cut_in_runs(self, share: int) -> None:
        """Zones as segments of the orders."""
        orders, graph = self._orders, self._graph
        work = max(MOST_CELLS, len(orders) * graph.blocks * sum(self._capacities))
        lines = LineSearch(graph, orders, self._capacities, self._target, work)
        lines.walk((len(orders),))
        lines.climb(self._limits.part(share).trees // A_SEQUENCE)
        self._offer(lines.layout())

    def _slice(self, share: int) -> None:
        trees, target = self._limits.part(share).trees, self._target
        search = partial(
            Sweeper(self._graph, self._orders).searched, self._capacities, trees, target
        )
        searches = [partial(search, slack) for slack in SLACKS]
        for layout in run_ahead(searches, are_long=self._graph.blocks > SMALL):
            self._offer(layout)

    def _move_blocks(self, share: int) -> None:
        self._refine(PROPOSALS * self._limits.part(share).trees, QUICK)

    def _refine(self, proposals: int, per_block: int) -> None:
        """By moves of single blocks, and by searches from nothing."""
        start, room = self._best.layout[0], self._capacities
        self._offer(refine(self._graph, room, start, proposals, self._target, per_block))
