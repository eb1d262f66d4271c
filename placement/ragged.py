"""Jobs whose blocks form no grid: sizes that hosts split unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight
line parts the job. Layouts come from sweeps over the explicit graph of the blocks, and are
polished by moves and exchanges of single blocks.

The bound forgets that the ranks of a host stay together. *Cells*, the most neighbouring
ranks that do form a grid, are placed one by one: what no layout of cells beats, no layout
of blocks does. A zone holds whole hosts, so its cells come in lots.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from math import ceil

import numpy as np

from placement.blockgraph import BlockGraph, block_graph
from placement.bounds import Prover
from placement.cut import cut_by_axis
from placement.fabric import Ints
from placement.grid import BlockGrid, block_grid
from placement.layout import counts
from placement.master import Pattern
from placement.request import Limits, Request
from placement.slicing import Tree, best_of_trees
from placement.sweep import Sweeper
from placement.traffic import axis_traffic
from placement.zones import ZoneStep

MOST_ORDERS = 6  # of the axes, along which blocks are swept
MOST_STATES = 30_000_000  # of the pricing table; a larger one costs seconds a round
QUICK_STATES = 2_000_000  # up to here a round costs what it does for other jobs


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, ZoneStep]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    blocks = request.parallelism.world_size // gpus
    grid = BlockGrid.shapeless(blocks)
    layout = _layout(request, gpus, capacities, limits)
    cost = 2 * _bytes(request, gpus, layout)
    bound = 0
    if cost and limits.rounds:
        bound = _bound(request, gpus, capacities, layout, limits.rounds)
    return grid, ZoneStep(layout[None, :], cost, min(cost, bound))


def _bytes(request: Request, gpus: int, zones: Ints) -> int:
    return sum(b for _, b in cut_by_axis(request, gpus, zones))


def _layout(request: Request, gpus: int, capacities: Sequence[int], limits: Limits) -> Ints:
    orders = _orders(request, gpus)
    zones = sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))
    graph = block_graph(request, gpus)
    if graph is None:
        filled = np.repeat(zones, [capacities[z] for z in zones])[: len(orders[0])]
        layouts = [_along(order, filled) for order in orders]
        return min(layouts, key=lambda layout: _bytes(request, gpus, layout))
    starts = [comb(zones, axis, lean) for axis in range(len(orders)) for lean in (1, 2)]
    rng = random.Random(f"{graph.blocks}:{sorted(capacities)}")
    sweeper = Sweeper(graph, capacities, orders)
    return best_of_trees(sweeper.layout, graph.cost, starts, limits.trees, 0, rng, len(orders))


def comb(zones: Sequence[int], axis: int, lean: int) -> Tree:
    tree = Tree(zone=zones[-1])
    for zone in reversed(zones[:-1]):
        tree = Tree(first=Tree(zone=zone), second=tree, axis=axis, lean=lean)
    return tree


def _along(order: Ints, filled: Ints) -> Ints:
    layout = np.empty(len(order), dtype=np.int64)
    layout[order] = filled
    return layout


def _orders(request: Request, gpus: int) -> list[Ints]:
    """Blocks sorted along the axes that span hosts, in every order of them."""
    first = np.arange(request.parallelism.world_size // gpus) * gpus
    at = {
        t.axis: first // t.stride % t.size
        for t in axis_traffic(request)
        if t.stride * t.size > gpus
    }
    orders: list[Ints] = []
    for axes in permutations(at):
        order = np.lexsort((first, *(at[axis] for axis in axes)))
        if not any(np.array_equal(order, other) for other in orders):
            orders.append(order)
    return orders[:MOST_ORDERS]


def cell_grid(request: Request, gpus: int) -> tuple[BlockGrid, int]:
    """The grid of the largest cells that form one, and the cells of a host."""
    for cell in range(gpus, 0, -1):
        if gpus % cell == 0:
            grid = block_grid(request, cell)
            if grid is not None:
                return grid, gpus // cell
    raise AssertionError("single ranks always form a grid")


def _bound(
    request: Request, gpus: int, capacities: Sequence[int], layout: Ints, rounds: int
) -> int:
    """A doubled cut in bytes that no layout of blocks beats."""
    grid, lot = cell_grid(request, gpus)
    cells = [c * lot for c in capacities]
    states = grid.rows * (grid.width + 1) * max(cells)
    if states > MOST_STATES:
        return 0
    incumbent = ceil(2 * _bytes(request, gpus, layout) / grid.unit)
    prover = Prover(grid, cells, _cell_patterns(grid, np.repeat(layout, lot), len(cells)), lot)
    few = max(1, rounds * QUICK_STATES // max(states, QUICK_STATES))
    return 2 * ceil(grid.to_bytes(prover.prove(incumbent, few)))


def _cell_patterns(grid: BlockGrid, zone_of_cell: Ints, zones: int) -> list[Pattern]:
    by_zone = counts(zone_of_cell[grid.block], zones)
    return [tuple(int(n) for n in rows) for rows in by_zone if rows.any()]
