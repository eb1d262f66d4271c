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

from placement.fabric.tree import Ints
from placement.graph.exhaustive import MOST_BLOCKS, best_partition
from placement.graph.hypergraph import Hypergraph
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH
from placement.proof.cell_proofs import CellProof
from placement.search.graph_portfolio import Blocks
from placement.tiers.grid_zones import ZoneStep
from placement.workload.request import SHARES, Limits, Request

CLOSE = 0.98  # of a cut proved: what is that close leaves little to other searches


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, ZoneStep]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    grid = BlockGrid.shapeless(request.parallelism.world_size // gpus)
    job = Blocks(request, gpus, capacities)
    if job.graph is not None and job.graph.blocks <= MOST_BLOCKS:
        layout = best_partition(job.graph, capacities)
        return grid, ZoneStep(layout[None, :], job.cost(layout), job.cost(layout))
    cells = CellProof(request, gpus, capacities, limits.states)
    best = ZoneStep(np.zeros((1, grid.size), dtype=np.int64), int(MUCH), 0)
    for share in SHARES[: limits.turns]:
        if not best.is_proved:
            best = _step(job, limits.part(share), limits.walk // share, cells, best)
    if best.bound < CLOSE * best.cost and limits.turns >= len(SHARES):
        best = _better(job, best, job.put_anew(best.layout[0], limits.trees, best.bound))
    return grid, best


def _step(job: Blocks, limits: Limits, walk: int, cells: CellProof, best: ZoneStep) -> ZoneStep:
    """A layout and a bound at least as good as `best`: cheap bounds, then layouts, then others.
    `walk`: steps round a ring."""
    is_bounded = limits.rounds > 0
    if is_bounded:
        best = _raised(best, _by_parts(job, limits.walk))
        if not best.bound:
            best = _raised(best, cells.by_sizes(limits.entries))
    best = _better(job, best, job.searched(limits.trees, best.bound))
    if is_bounded and not best.is_proved:
        best = _raised(best, cells.by_sizes(limits.entries))
        if job.graph is not None and not best.is_proved:
            least = job.parts.least_by_orbits(job.capacities, limits.walk)
            best = _raised(best, _in_bytes(job.graph, least))
    if not best.is_proved:
        best = _better(job, best, job.moved(best.layout[0], limits.trees, best.bound))
    if is_bounded and not best.is_proved:
        bound, layout = cells.prove(best.layout[0], best.cost, limits.rounds, best.bound)
        best = _raised(best, bound)
        if layout is not None:
            best = _better(job, best, layout)
    if is_bounded and not best.is_proved and job.graph is not None:
        known, layout = best.bound * job.graph.scale, best.layout[0]
        least = job.parts.least_around(job.capacities, layout, known, walk)
        best = _raised(best, _in_bytes(job.graph, least))
    return best


def _raised(best: ZoneStep, bound: int) -> ZoneStep:
    """With the better of two bounds."""
    return replace(best, bound=max(best.bound, min(best.cost, bound)))


def _better(job: Blocks, best: ZoneStep, layout: Ints) -> ZoneStep:
    """The layout that cuts less."""
    cost = job.cost(layout)
    return replace(best, layout=layout[None, :], cost=cost) if cost < best.cost else best


def _by_parts(job: Blocks, steps: int) -> int:
    """A doubled cut in bytes that no layout beats, from what parts of every size cut at least, if
    that takes no more steps."""
    if job.graph is None:
        return 0
    return _in_bytes(job.graph, job.parts.least_cut(job.capacities, steps))


def _in_bytes(graph: Hypergraph, doubled: int) -> int:
    """A doubled bound in the graph's units in doubled whole bytes."""
    return 2 * -(-doubled // (2 * graph.scale))
