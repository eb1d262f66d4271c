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
from dataclasses import replace
from itertools import permutations
from math import ceil, gcd

import numpy as np

from placement.bands import band_trees
from placement.blockgraph import block_graph
from placement.bounds import Prover
from placement.cut import cut_by_axis
from placement.fabric import Ints
from placement.grid import BlockGrid, block_axes, block_grid, block_grids
from placement.layout import counts
from placement.master import Pattern
from placement.request import Limits, Request
from placement.slicing import Tree, best_of_trees, slice_grid
from placement.sweep import Sweeper
from placement.traffic import Pattern as Talk
from placement.traffic import axis_traffic
from placement.zones import ZoneStep, best_grid

MOST_ORDERS = 6  # of the axes, along which blocks are swept
MOST_TOGETHER = 64  # hosts placed as one
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
    """The best of sweeps over single blocks, and of a grid of several hosts at once."""
    layouts = _swept(request, gpus, capacities, limits.trees)
    together = _together(request, gpus, capacities, limits.trees)
    if together is not None:
        layouts.append(together)
    return min(layouts, key=lambda layout: _bytes(request, gpus, layout))


def _swept(request: Request, gpus: int, capacities: Sequence[int], trees: int) -> list[Ints]:
    orders = _orders(request, gpus)
    zones = sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))
    graph = block_graph(request, gpus)
    if graph is None:
        filled = np.repeat(zones, [capacities[z] for z in zones])[: len(orders[0])]
        return [_along(order, filled) for order in orders]
    starts = [comb(zones, axis, lean) for axis in range(len(orders)) for lean in (1, 2)]
    rng = random.Random(f"{graph.blocks}:{sorted(capacities)}")
    sweeper = Sweeper(graph, capacities, orders)
    return [best_of_trees(sweeper.layout, graph.cost, starts, trees, 0, rng, len(orders))]


def _together(request: Request, gpus: int, capacities: Sequence[int], trees: int) -> Ints | None:
    """The fewest neighbouring hosts that form a grid, placed together; None where zones
    do not hold enough of them."""
    for hosts in range(2, MOST_TOGETHER + 1):
        if request.parallelism.world_size % (hosts * gpus):
            continue
        grids = block_grids(request, hosts * gpus)
        if grids:
            room = [c // hosts for c in capacities]
            if sum(room) < grids[0].size:
                return None
            grid = best_grid(grids, room)
            _, layout = slice_grid(grid, room, band_trees(grid, room), trees, 0)
            zone = np.empty(grid.size, dtype=np.int64)
            zone[grid.block] = layout
            return np.repeat(zone, hosts)
    return None


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
                return _staggered(request, grid, cell, gpus // cell), gpus // cell
    raise AssertionError("single ranks always form a grid")


def _staggered(request: Request, grid: BlockGrid, cell: int, lot: int) -> BlockGrid:
    """`grid` with joints that know that a block holds `lot` consecutive cells.

    Let stages of c cells lie inside replicas of S, and g = gcd(S, lot) < lot. Blocks then
    end every g cells, and at each end those of one residue class of replicas in q =
    lot / g. A zone that holds n_i blocks of class i at some cell cuts the ring of replicas
    there in max n_i - min n_i places at least, for a run of neighbours has as many of any
    class, give or take one. Where one class ends, the zone's cells can change by the sum
    of these spreads before and behind it, and by all D/q blocks of the class at most. So
    each slot by which two rows differ costs g w / c, less a few that come free.
    """
    axes = sorted(block_axes(request, cell) or (), key=lambda axis: axis.stride)
    if len(axes) < 2 or axes[-2].pattern is not Talk.CHAIN:
        return grid
    stage, outer = axes[-2].stride, axes[-1]
    common = gcd(outer.stride, lot)
    classes = lot // common
    if classes == 1:
        return grid
    ends = [
        sum(min(u, 2 * stage - u) for u in range(1, 2 * stage) if (s * stage + u) % common == 0)
        for s in range(grid.rows - 1)
    ]
    most = max(ends, default=0)
    reach, free = most * (outer.size // classes), 2 * most
    weight = next(a.weight for a in grid.slice_axes if a.axis == outer.axis)
    dear = weight * common if outer.pattern is Talk.RING else 0
    grid = _finer(grid, stage)
    return replace(
        grid,
        slopes=((grid.row_weight, free), (grid.row_weight + dear, max(0, reach - free))),
    )


def _finer(grid: BlockGrid, factor: int) -> BlockGrid:
    """The same costs in smaller units."""
    return replace(
        grid,
        row_weight=grid.row_weight * factor,
        row_wrap=grid.row_wrap * factor,
        slice_axes=tuple(replace(a, weight=a.weight * factor) for a in grid.slice_axes),
        step=grid.step * factor,
        offset=grid.offset * factor,
        unit=grid.unit / factor,
        slopes=tuple((weight * factor, many) for weight, many in grid.slopes),
    )


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
