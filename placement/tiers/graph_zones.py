"""Gangs whose blocks form no grid: the ranks of a host split an axis unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight line
parts the gang. Layouts come from the hypergraph of the blocks (`graph_portfolio`).

Where the hypergraph is narrow in some order, or round a ring, a dynamic program over its frontier
knows what a part of any size cuts at least (`part_sizes`, `ring_width`). Beyond that the bound
forgets that the ranks of a host stay together: *cells*, the most neighbouring ranks that do form a
grid, are placed one by one (`cells`). See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placement.bound.cells import Cells, cell_views
from placement.bound.size_relaxation import SizeBound
from placement.fabric.tree import Ints
from placement.graph.exhaustive import MOST_BLOCKS, best_partition
from placement.graph.hypergraph import Hypergraph
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH
from placement.proof.branch_and_price import ROUNDS_EACH
from placement.proof.cell_proofs import Views
from placement.search.graph_portfolio import Blocks
from placement.search.graph_slicing import SMALL
from placement.search.multilevel import WIDE
from placement.tiers.grid_zones import ZoneStep
from placement.workload.request import Limits, Request

QUICKER, LONGER = 30, 3  # share of a limit before any layout, and multiple of one to prove it
FEW_BLOCKS = 256  # up to which a tenth of the work is tried first
CLOSE = 0.98  # of a cut proved: what is that close leaves little to other searches
NEAR = 0.9  # of the best bound: what a view has to reach by sizes to be priced


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, ZoneStep]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    grid = BlockGrid.shapeless(request.parallelism.world_size // gpus)
    job = Blocks(request, gpus, capacities)
    if job.graph is not None and job.graph.blocks <= MOST_BLOCKS:
        layout = best_partition(job.graph, capacities)
        return grid, ZoneStep(layout[None, :], job.cost(layout), job.cost(layout))
    bound = _by_parts(job, limits.walk // QUICKER) if limits.rounds else 0
    shares = _shares(grid.size)
    first: Ints | None = None
    if bound and grid.size <= SMALL:
        # Often the first layout is as good as parts allow, before there are any views.
        first = _layout(job, _part(limits, shares[0]).trees, bound)
        if job.cost(first) <= bound:
            return grid, ZoneStep(first[None, :], job.cost(first), bound)
    views = cell_views(request, gpus) if limits.rounds else []
    if not bound and views:
        bound, views = _by_views(job, views, limits.entries)
    proofs = Views(views, capacities, limits.states)
    best = ZoneStep(np.zeros((1, grid.size), dtype=np.int64), int(MUCH), bound)
    for share in shares:
        if best.bound < best.cost:
            best = _step(job, _part(limits, share), proofs, best, first)
            first = None
    return grid, best if job.graph is None else _searched_on(job, limits.trees, best)


def _searched_on(job: Blocks, trees: int, best: ZoneStep) -> ZoneStep:
    """Where little is proved, other layouts are looked for, and then far from the best one too."""
    for is_anew in (False, True) if best.layout.size <= FEW_BLOCKS else (True,):
        if best.bound < CLOSE * best.cost:
            work = trees // (1 if best.bound < WIDE * best.cost else 2)
            if is_anew:
                layout = job.put_anew(best.layout[0], work, best.bound)
            else:
                layout = job.searched_on(work, best.bound)
            cost = job.cost(layout)
            best = replace(best, layout=layout[None, :], cost=cost) if cost < best.cost else best
    return best


def _shares(blocks: int) -> tuple[int, ...]:
    """One part in so many of the work at a time: the first is often enough."""
    return (50, 10, 1) if blocks <= SMALL else (10, 1) if blocks <= FEW_BLOCKS else (1,)


def _part(limits: Limits, share: int) -> Limits:
    return replace(limits, rounds=limits.rounds // share, trees=limits.trees // share)


def _step(
    job: Blocks, limits: Limits, views: Views, best: ZoneStep, layout: Ints | None
) -> ZoneStep:
    """A layout and a bound at least as good as `best`. `layout`: to begin with, if there is one."""
    is_small = best.layout.size <= SMALL  # a proof is cheaper than single moves
    if layout is None:
        layout = _layout(job, limits.trees, best.bound)
    cost = job.cost(layout)
    if best.bound < cost:
        # Sizes alone need no layout, and tell the moves where to end.
        best = replace(best, bound=max(best.bound, _by_parts(job, limits.walk // 2)))
    if best.bound < cost:
        best = replace(
            best, bound=max(best.bound, _by_large_sizes(job, views.all, cost, limits.entries))
        )
    if not is_small:
        layout = job.moved(layout, limits.trees, best.bound)
        if job.graph is not None and best.bound < job.cost(layout):
            least = job.parts.least_by_orbits(job.capacities, limits.walk)
            best = replace(best, bound=max(best.bound, _in_bytes(job.graph, least)))
    best = _proved(job, min(limits.rounds, ROUNDS_EACH), views, best, layout)
    if limits.rounds > ROUNDS_EACH and best.bound < best.cost:
        best = _around(job, limits.walk, views, best)
        best = _proved(job, limits.rounds, views, best, best.layout[0])
    if is_small and best.bound < best.cost:
        layout = job.moved(best.layout[0], limits.trees, best.bound)
        if job.cost(layout) < best.cost:
            best = _proved(job, limits.rounds, views, best, layout)
    return best


def _layout(job: Blocks, trees: int, bound: int) -> Ints:
    """The best of runs and of a search; of a small gang after one pass of single moves, which is
    cheaper than a proof."""
    best = job.searched(trees, bound)
    return job.moved(best, 0, bound) if len(best) <= SMALL else best


def _around(job: Blocks, walk: int, views: Views, best: ZoneStep) -> ZoneStep:
    """What parts of every size cost round a ring; no view is pursued that is far behind it."""
    if job.graph is None:
        return best
    share = 1 if best.bound < WIDE * best.cost else 4
    known, layout = best.bound * job.graph.scale, best.layout[0]
    least = job.parts.least_around(job.capacities, layout, known, walk // share)
    bound = min(best.cost, _in_bytes(job.graph, least))
    views.leave(bound)
    return replace(best, bound=max(best.bound, bound))


def _proved(job: Blocks, rounds: int, views: Views, best: ZoneStep, layout: Ints) -> ZoneStep:
    """The better of two layouts, with what the views prove."""
    cost = job.cost(layout)
    if cost > best.cost:
        layout, cost = best.layout[0], best.cost
    bound, found = views.prove(layout, cost, rounds, best.bound)
    if found is not None and job.cost(found) < cost:
        layout, cost = found, job.cost(found)
    return ZoneStep(layout[None, :], cost, min(cost, bound))


def _by_sizes(view: Cells, capacities: Sequence[int], entries: int) -> int:
    """A doubled cut in bytes that no layout beats, from sizes alone."""
    room = [c * view.lot for c in capacities]
    everything = np.ones((view.grid.rows, view.grid.width), dtype=np.bool_)
    sizes = SizeBound(view.grid, view.lot, view.closing)
    return view.in_bytes(sizes.least_cut(everything, room, entries))


def _by_large_sizes(job: Blocks, views: Sequence[Cells], cost: int, entries: int) -> int:
    """As `_by_sizes`, of views whose tables were too large before there was a layout; until
    the bound is its `cost`."""
    bound = 0
    for view in reversed(views):
        if bound < cost and view.states([c * view.lot for c in job.capacities]) > entries:
            bound = max(bound, _by_sizes(view, job.capacities, LONGER * entries))
    return bound


def _by_views(job: Blocks, views: Sequence[Cells], entries: int) -> tuple[int, list[Cells]]:
    """The best bound from sizes, and the views that may prove more than it."""
    by_sizes = [_by_sizes(view, job.capacities, entries) for view in views]
    bound = max(by_sizes)
    kept = [v for v, s in zip(views, by_sizes, strict=True) if not s or s >= NEAR * bound]
    return bound, kept


def _by_parts(job: Blocks, steps: int) -> int:
    """As `_by_sizes`, from what parts of every size cut at least, if that takes no more steps."""
    if job.graph is None:
        return 0
    return _in_bytes(job.graph, job.parts.least_cut(job.capacities, steps))


def _in_bytes(graph: Hypergraph, doubled: int) -> int:
    """A doubled bound in the graph's units in doubled whole bytes."""
    return 2 * -(-doubled // (2 * graph.scale))
