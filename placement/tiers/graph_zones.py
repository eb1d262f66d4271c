"""Gangs whose blocks form no grid: the ranks of a host split an axis unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight line
parts the gang. Layouts come from the hypergraph of the blocks: segments of their orders along the
axes, slicing trees, then moves and exchanges of single blocks.

Where the hypergraph is narrow in some order, or round a ring, a dynamic program over its frontier
knows what a part of any size cuts at least (`pathwidth`, `ring_width`). Beyond that the bound
forgets that the ranks of a host stay together: *cells*, the most neighbouring ranks that do form a
grid, are placed one by one (`cells`). See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from muster.structs import replace
from placement.bound.orbits import least_by_orbits
from placement.bound.pathwidth import PartBound
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
from placement.search.exact_assignment import MOST_BLOCKS, assign_blocks
from placement.search.graph_slicing import SLACKS, SMALL, Sweeper, block_orders
from placement.search.multilevel import PROPOSALS, QUICK, SLOW, refine
from placement.search.portfolio import ONCE, Incumbent, Technique, run_turns
from placement.search.segmentation import LineSearch
from placement.speculative import run_ahead
from placement.workload.request import Limits, Request

CLOSE = 0.98  # of a cut proved: what is that close leaves little to other searches
A_SEQUENCE = 30  # trees that stand for one more sequence of zones along the orders
MOST_CELLS = 50_000_000  # of the tables of all sequences: about a third of a second
PROPOSALS_ANEW = 3_600  # in slow passes over the graph, for each tree
LAST_TURN = (0, 0, 1)


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, Incumbent]:
    """Place a gang that forms no grid over zones: return a layout of one row of blocks, its doubled
    cut in bytes, and a bound."""
    if request.roles:  # blocks of roles have many edges, and later turns have found nothing more
        limits = replace(limits, turns=1)
    gang = _BlockZones(request, gpus, capacities, limits)
    return BlockGrid.shapeless(request.parallelism.world_size // gpus), gang.solved()


class _BlockZones:
    """Searches and proofs of the blocks of one gang over zones.

    Costs and bounds are doubled cuts in bytes; a layout is the zone of each block, shape
    (1, blocks). A search for a better layout or bound gets one part in `share` of what the limits
    allow; tables that are made once get all of `walk`. A gang whose graph has too many edges is not
    linked: its blocks stay in order.
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

    def solved(self) -> Incumbent:
        """Search and prove in turns, each with a larger share of the work."""
        limits, nothing = self._limits, np.zeros((1, self._graph.blocks), dtype=np.int64)
        best = Incumbent(nothing, INFINITE, 0)
        if not self._is_linked:
            best = self._fill_in_order(best)
            return run_turns(best, self._bounds_of_cells() if limits.rounds else [], limits)
        best = run_turns(best, self._portfolio(), limits)
        return run_turns(best, self._last_searches(), limits)

    def _portfolio(self) -> list[Technique]:
        """Cheap bounds, then layouts, then others; layouts alone where nothing is to be proved."""
        lines = Technique("runs of blocks in order", self._cut_in_runs)
        trees = Technique("slicing trees", self._slice)
        moves = Technique("moves of single blocks", self._move_blocks)
        if not self._limits.rounds:
            return [lines, trees, moves]
        sizes, cells = self._bounds_of_cells()
        parts = Technique("bound by sizes of parts", self._bound_by_parts)
        orbits = Technique("bound by orbits", self._bound_by_orbits)
        ring = Technique("bound round a ring", self._bound_round_a_ring)
        return [parts, sizes, lines, trees, orbits, moves, cells, ring]

    def _bounds_of_cells(self) -> list[Technique]:
        sizes = Technique("bound by sizes of cells", self._bound_by_sizes)
        return [sizes, Technique("branch and price over cells", self._bound_by_cells)]

    def _last_searches(self) -> list[Technique]:
        """Small gangs block by block, and, after the last turn, searches from nothing."""
        searches = []
        if self._limits.rounds and self._graph.blocks <= MOST_BLOCKS:
            searches.append(Technique("exact assignment", self._assign_exactly, ONCE))
        return [*searches, Technique("long annealing at the end", self._anneal_long, LAST_TURN)]

    def _assign_exactly(self, best: Incumbent, share: int) -> Incumbent:
        """Decide block by block, where the gang is small."""
        exact = assign_blocks(
            *(self._graph, self._capacities, best.layout[0], self._target(best)),
            self._limits.rounds // share,
        )
        if exact is None:
            return best
        return self._raised(self._offered(best, exact.layout), 2 * exact.bound)

    def _anneal_long(self, best: Incumbent, share: int) -> Incumbent:
        """By slow passes, unless little is left to be gained."""
        if best.bound >= CLOSE * best.cost:
            return best
        return self._refined(best, PROPOSALS_ANEW * self._limits.trees // share, SLOW)

    def _offered(self, best: Incumbent, layout: Ints) -> Incumbent:
        """Return the better of `best` and this layout."""
        cost = 2 * sum(b for _, b in cut_by_axis(self._request, self._gpus, layout))
        return best.offer(layout[None, :], cost)

    def _raised(self, best: Incumbent, least: int) -> Incumbent:
        """Return `best` with a bound in units of the graph, rounded up to whole bytes, if it is
        better."""
        return best.raise_bound(2 * -(-least // (2 * self._graph.scale)))

    def _target(self, best: Incumbent) -> int:
        """The cost, in units of the graph, below which no layout is looked for."""
        return best.bound * self._graph.scale // 2

    def _bound_by_parts(self, best: Incumbent, share: int) -> Incumbent:
        return self._raised(best, self._parts.least_cut(self._capacities, self._limits.walk))

    def _bound_by_sizes(self, best: Incumbent, share: int) -> Incumbent:
        return best.raise_bound(self._cells.by_sizes(self._limits.part(share).entries))

    @cached_property
    def _least_of_orbits(self) -> Ints | None:
        return least_by_orbits(self._graph, self._orders, self._most, self._limits.walk)

    def _bound_by_orbits(self, best: Incumbent, share: int) -> Incumbent:
        return self._raised_by_parts(best, self._least_of_orbits)

    def _bound_round_a_ring(self, best: Incumbent, share: int) -> Incumbent:
        """By parts that pay no more than the dearest one of the best layout."""
        graph, known = self._graph, best.bound * self._graph.scale
        dearest = int(graph.paid_by_zone(best.layout[0]).max())
        each = known // fewest(self._capacities, graph.blocks)
        work = self._limits.walk // share
        least = least_around(graph, self._orders, self._most, dearest, each, work)
        return self._raised_by_parts(best, least)

    def _raised_by_parts(self, best: Incumbent, least: Ints | None) -> Incumbent:
        """Return `best` with the bound by what parts of every size pay at least, where that is
        known."""
        if least is None:
            return best
        return self._raised(best, least_sum(self._graph.blocks, self._capacities, least))

    @property
    def _most(self) -> int:
        """Blocks of a zone."""
        return min(self._graph.blocks, max(self._capacities))

    def _bound_by_cells(self, best: Incumbent, share: int) -> Incumbent:
        rounds = self._limits.part(share).rounds
        bound, layout = self._cells.prove(best.layout[0], best.cost, rounds, best.bound)
        best = best.raise_bound(bound)
        return best if layout is None else self._offered(best, layout)

    def _fill_in_order(self, best: Incumbent) -> Incumbent:
        """Fill zones one after the other, the largest first, along each order."""
        zones = np.argsort(-np.array(self._capacities), kind="stable")
        along = np.repeat(zones, np.array(self._capacities)[zones])
        for order in self._orders:
            layout = np.empty(len(order), dtype=np.int64)
            layout[order] = along[: len(order)]
            best = self._offered(best, layout)
        return best

    def _cut_in_runs(self, best: Incumbent, share: int) -> Incumbent:
        """Zones as segments of the orders."""
        orders, graph = self._orders, self._graph
        work = max(MOST_CELLS, len(orders) * graph.blocks * sum(self._capacities))
        lines = LineSearch(graph, orders, self._capacities, self._target(best), work)
        lines.walk((len(orders),))
        lines.climb(self._limits.part(share).trees // A_SEQUENCE)
        return self._offered(best, lines.layout())

    def _slice(self, best: Incumbent, share: int) -> Incumbent:
        trees, target = self._limits.part(share).trees, self._target(best)
        search = partial(
            Sweeper(self._graph, self._orders).searched, self._capacities, trees, target
        )
        searches = [partial(search, slack) for slack in SLACKS]
        for layout in run_ahead(searches, are_long=self._graph.blocks > SMALL):
            best = self._offered(best, layout)
        return best

    def _move_blocks(self, best: Incumbent, share: int) -> Incumbent:
        return self._refined(best, PROPOSALS * self._limits.part(share).trees, QUICK)

    def _refined(self, best: Incumbent, proposals: int, per_block: int) -> Incumbent:
        """By moves of single blocks, and by searches from nothing."""
        start, room, target = best.layout[0], self._capacities, self._target(best)
        return self._offered(best, refine(self._graph, room, start, proposals, target, per_block))
