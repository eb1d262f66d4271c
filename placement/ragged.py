"""Jobs whose blocks form no grid: sizes that hosts split unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight
line parts the job. Layouts come from runs and sweeps over the explicit graph of the blocks, and
are polished by moves and exchanges of single blocks.

Where a replica is a few hosts, `circle` knows what a part of any size cuts at least. Beyond
that the bound forgets that the ranks of a host stay together. *Cells*, the most neighbouring
ranks that do form a grid, are placed one by one: what no layout of cells beats, no layout
of blocks does. A zone holds whole hosts, so its cells come in lots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import ceil

import numpy as np

from placement.bands import band_trees
from placement.blockgraph import BlockGraph, block_graph
from placement.cells import Cells, cell_views, strands
from placement.curves import by_curves
from placement.cut import cut_by_axis
from placement.fabric import Ints
from placement.grid import BlockGrid, block_grids
from placement.parts import PartBound
from placement.pieces import pieces_of_graph
from placement.refine import refined
from placement.request import Limits, Request
from placement.rounding import attainable
from placement.runs import best_runs
from placement.sequences import best_sequence
from placement.sizes import SizeBound, least_sum
from placement.slicing import best_of_trees, slice_grid
from placement.steps import MUCH
from placement.strips import strip_layouts
from placement.sweep import Sweeper
from placement.tiny import MOST_BLOCKS, best_partition
from placement.traffic import axis_traffic
from placement.trees import Tree, comb
from placement.views import Views
from placement.zones import PROPOSALS, SMALL, WIDE, ZoneStep, best_grid

MOST_ORDERS = 6  # of the axes, along which blocks are swept
SLACKS = (0.03, 0.01)  # of two searches over sweeps: neither finds all
CHANGES = 40  # of a sequence of runs for each tree, where little is proved
PATIENT = SLACKS[:1]  # of a search with so many times as many trees, if that is no better
MORE_TREES = 10
SWEPT = 3_000  # edges; larger graphs get fewer trees
A_SEQUENCE = 30  # trees that stand for one more sequence of zones along the orders
A_SWEEP = 5  # for one over a graph, which is parted as a whole each time
FEW_BLOCKS = 256  # up to which a tenth of the work is tried first
MOST_TOGETHER = 64  # hosts placed as one
MOST_SIZED = 100_000_000  # entries where sizes alone decide: about a second
CLOSE = 0.98  # of a cut proved: strips that close leave little to sweeps
NEAR = 0.9  # of the best bound: what a view has to reach by sizes to be priced
MOST_ONCE = 250_000_000  # the same, once there is a layout to prove


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, ZoneStep]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    grid = BlockGrid.shapeless(request.parallelism.world_size // gpus)
    graph = block_graph(request, gpus)
    if graph is not None and graph.blocks <= MOST_BLOCKS:
        layout = best_partition(graph, capacities)
        cost = 2 * _bytes(request, gpus, layout)
        return grid, ZoneStep(layout[None, :], cost, cost)
    bound = _by_parts(graph, capacities) if graph is not None and limits.rounds else 0
    shares = _shares(grid.size)
    first: Ints | None = None
    if bound and grid.size <= SMALL:
        # Often the first layout is as good as parts allow, before there are any views.
        part = _part(limits, shares[0])
        first = _layout(request, gpus, capacities, part, graph, bound)
        cost = 2 * _bytes(request, gpus, first)
        if cost <= bound:
            return grid, ZoneStep(first[None, :], cost, bound)
    views = cell_views(request, gpus) if limits.rounds else []
    if not bound and views:
        bound, views = _by_views(request, gpus, capacities, views)
    proofs = Views(views, capacities)
    best = ZoneStep(np.zeros((1, grid.size), dtype=np.int64), int(MUCH), bound)
    for share in shares:
        if best.bound < best.cost:
            part = _part(limits, share)
            best = _step(request, gpus, capacities, part, graph, proofs, best, first)
            first = None
    if graph is not None and grid.size <= FEW_BLOCKS and best.bound < WIDE * best.cost:
        best = _patient(request, gpus, capacities, limits.trees, graph, best)
    return grid, best


def _patient(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    trees: int,
    graph: BlockGraph,
    best: ZoneStep,
) -> ZoneStep:
    """The better of `best` and what sequences of runs come to; if they are no better, a longer
    search over sweeps."""
    target, known = best.bound * graph.scale // 2, graph.cost(best.layout[0])
    orders = _orders(request, gpus)
    layout = best_sequence(graph, orders, capacities, CHANGES * trees, known, target)
    if layout is None or graph.cost(layout) >= known:
        layout = _swept(graph, orders, capacities, MORE_TREES * trees, target, PATIENT)
        layout = _moved(graph, capacities, 0, layout, best.bound)
    cost = 2 * _bytes(request, gpus, layout)
    return ZoneStep(layout[None, :], cost, best.bound) if cost < best.cost else best


def _shares(blocks: int) -> tuple[int, ...]:
    """One part in so many of the work at a time: the first is often enough."""
    return (50, 10, 1) if blocks <= SMALL else (10, 1) if blocks <= FEW_BLOCKS else (1,)


def _part(limits: Limits, share: int) -> Limits:
    return Limits(limits.rounds // share, limits.trees // share)


def _step(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    limits: Limits,
    graph: BlockGraph | None,
    views: Views,
    best: ZoneStep,
    layout: Ints | None,
) -> ZoneStep:
    """A layout and a bound at least as good as `best`. `layout`: to begin with, if there is one."""
    is_small = best.layout.size <= SMALL  # a proof is cheaper than single moves
    if layout is None:
        best, layout = _begun(request, gpus, capacities, limits, graph, views, best)
    cost = 2 * _bytes(request, gpus, layout)
    if best.bound < cost:
        # Sizes alone need no layout, and tell the moves where to end.
        best = replace(best, bound=max(best.bound, _by_large_sizes(views.all, capacities, cost)))
    if best.bound < cost:
        best, strips = _by_rings(request, gpus, capacities, views, best)
        layout = min([layout, *strips], key=lambda each: _bytes(request, gpus, each))
    if graph is not None and not is_small:
        layout = _moved(graph, capacities, limits.trees, layout, best.bound)
    best = _proved(request, gpus, capacities, limits.rounds, views, best, layout)
    if graph is not None and is_small and best.bound < best.cost:
        layout = _moved(graph, capacities, limits.trees, best.layout[0], best.bound)
        if 2 * _bytes(request, gpus, layout) < best.cost:
            best = _proved(request, gpus, capacities, limits.rounds, views, best, layout)
    return best


def _begun(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    limits: Limits,
    graph: BlockGraph | None,
    views: Views,
    best: ZoneStep,
) -> tuple[ZoneStep, Ints]:
    """A first layout, and what is proved by then."""
    known = _known(request, gpus, capacities, limits.trees, graph, best.bound)
    is_large = best.layout.size > FEW_BLOCKS  # sweeps are dearer than curves
    if is_large and best.bound < min(2 * _bytes(request, gpus, each) for each in known):
        best, strips = _by_rings(request, gpus, capacities, views, best)
        known += strips
        if any(CLOSE * 2 * _bytes(request, gpus, each) <= best.bound for each in strips):
            return best, min(known, key=lambda each: _bytes(request, gpus, each))
    return best, _layout(request, gpus, capacities, limits, graph, best.bound, known)


def _proved(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    rounds: int,
    views: Views,
    best: ZoneStep,
    layout: Ints,
) -> ZoneStep:
    """The better of two layouts, with what the views prove."""
    cost, bound = 2 * _bytes(request, gpus, layout), best.bound
    if cost > best.cost:
        layout, cost = best.layout[0], best.cost
    bound, found = views.prove(layout, cost, rounds, bound)
    if found is not None and 2 * _bytes(request, gpus, found) < cost:
        layout, cost = found, 2 * _bytes(request, gpus, found)
    return ZoneStep(layout[None, :], cost, min(cost, bound))


def _moved(
    graph: BlockGraph, capacities: Sequence[int], trees: int, layout: Ints, bound: int
) -> Ints:
    """The same after moves of single blocks. `bound`: a doubled cut in bytes."""
    target = bound * graph.scale // 2
    if graph.cost(layout) <= target:
        return layout
    pieces = pieces_of_graph(graph, np.arange(graph.blocks))
    return np.array(refined(pieces, capacities, layout.tolist(), PROPOSALS * trees, target))


def _bytes(request: Request, gpus: int, zones: Ints) -> int:
    return sum(b for _, b in cut_by_axis(request, gpus, zones))


def _known(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    trees: int,
    graph: BlockGraph | None,
    bound: int,
) -> list[Ints]:
    """The best of runs of single blocks, or zones filled one after the other."""
    if graph is None:
        return _filled(request, gpus, capacities)
    target = bound * graph.scale // 2
    return [best_runs(graph, _orders(request, gpus), capacities, trees // A_SEQUENCE, target)]


def _layout(
    request: Request,
    gpus: int,
    capacities: Sequence[int],
    limits: Limits,
    graph: BlockGraph | None,
    bound: int,
    known: Sequence[Ints] = (),
) -> Ints:
    """The best of those known, runs if there are none, of sweeps over single blocks, and of a grid
    of several hosts at once; of a small gang after one pass of single moves, which is cheaper
    than a proof.

    `bound`: a doubled cut in bytes that nothing beats.
    """
    target = 0 if graph is None else bound * graph.scale // 2
    layouts = [*(known or _known(request, gpus, capacities, limits.trees, graph, bound))]
    if graph is not None and min(map(graph.cost, layouts)) > target:
        swept = _swept(graph, _orders(request, gpus), capacities, limits.trees, target)
        layouts.insert(0, swept)
    if graph is None or min(map(graph.cost, layouts)) > target:
        layouts += _together(request, gpus, capacities, limits.trees)
    best = min(layouts, key=lambda layout: _bytes(request, gpus, layout))
    if graph is None or graph.blocks > SMALL:
        return best
    return _moved(graph, capacities, 0, best, bound)


def _largest_first(capacities: Sequence[int]) -> list[int]:
    return sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))


def _filled(request: Request, gpus: int, capacities: Sequence[int]) -> list[Ints]:
    """Zones filled one after the other, along each order."""
    zones = _largest_first(capacities)
    layouts = []
    for order in _orders(request, gpus):
        layout = np.empty(len(order), dtype=np.int64)
        layout[order] = np.repeat(zones, [capacities[z] for z in zones])[: len(order)]
        layouts.append(layout)
    return layouts


def _swept(
    graph: BlockGraph,
    orders: Sequence[Ints],
    capacities: Sequence[int],
    trees: int,
    target: int,
    slacks: Sequence[float] = SLACKS,
) -> Ints:
    zones = [Tree(zone=z) for z in _largest_first(capacities)]
    starts = [comb(zones, axis, lean) for axis in range(len(orders)) for lean in (1, 2)]
    sweeper = Sweeper(graph, orders)
    tries = max(1, trees // A_SWEEP * min(SWEPT, len(graph.tail)) // max(1, len(graph.tail)))
    seed, axes = f"{graph.blocks}:{sorted(capacities)}", len(orders)
    layouts = [
        best_of_trees(
            sweeper.layout, graph.cost, starts, capacities, tries, target, seed, axes, slack
        )
        for slack in slacks
    ]
    return min(layouts, key=graph.cost)


def _together(request: Request, gpus: int, capacities: Sequence[int], trees: int) -> list[Ints]:
    """The fewest neighbouring hosts that form a grid, placed together; nothing where zones
    do not hold enough of them."""
    for hosts in range(2, MOST_TOGETHER + 1):
        if request.parallelism.world_size % (hosts * gpus):
            continue
        grids = block_grids(request, hosts * gpus)
        if grids:
            room = [c // hosts for c in capacities]
            if sum(room) < grids[0].size:
                return []
            grid = best_grid(grids, room)
            _, layout = slice_grid(grid, room, band_trees(grid, room), trees, 0)
            zone = np.empty(grid.size, dtype=np.int64)
            zone[grid.block] = layout
            return [np.repeat(zone, hosts)]
    return []


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


def _by_sizes(view: Cells, capacities: Sequence[int], entries: int = MOST_SIZED) -> int:
    """A doubled cut in bytes that no layout beats, from sizes alone."""
    room = [c * view.lot for c in capacities]
    everything = np.ones((view.grid.rows, view.grid.width), dtype=np.bool_)
    sizes = SizeBound(view.grid, view.lot, view.closing)
    return view.in_bytes(sizes.least_cut(everything, room, entries))


def _by_large_sizes(views: Sequence[Cells], capacities: Sequence[int], cost: int) -> int:
    """As `_by_sizes`, of views whose tables were too large before there was a layout; until
    the bound is its `cost`."""
    bound = 0
    for view in reversed(views):
        if bound < cost and view.states([c * view.lot for c in capacities]) > MOST_SIZED:
            bound = max(bound, _by_sizes(view, capacities, MOST_ONCE))
    return bound


def _by_views(
    request: Request, gpus: int, capacities: Sequence[int], views: Sequence[Cells]
) -> tuple[int, list[Cells]]:
    """The best bound from sizes, and the views that may prove more than it."""
    by_sizes = [_by_sizes(view, capacities) for view in views]
    bound = max(*by_sizes, _by_strands(request, gpus, capacities))
    kept = [v for v, s in zip(views, by_sizes, strict=True) if not s or s >= NEAR * bound]
    return bound, kept


def _by_rings(
    request: Request, gpus: int, capacities: Sequence[int], views: Views, best: ZoneStep
) -> tuple[ZoneStep, list[Ints]]:
    """Once, where each stage is one ring of hosts: layouts of strips, and what curves prove."""
    layouts: list[Ints] = []
    if views.ahead is not None:
        return best, layouts
    views.ahead = 0
    for view in views.all:
        if view.ring is None:
            continue
        for rows in strip_layouts(view.grid, view.ring, capacities):
            layouts.append(np.empty(best.layout.size, dtype=np.int64))
            layouts[-1][view.grid.block // view.cells_of_host] = rows
        costs = (2 * _bytes(request, gpus, each) for each in layouts)
        if best.bound < min(costs, default=MUCH):
            known = int(max(best.bound, views.ahead) / view.grid.unit)
            curves = by_curves(view.grid, view.ring, max(capacities), known)
            views.ahead = max(views.ahead, view.in_bytes(curves))
    return replace(best, bound=max(best.bound, views.ahead)), layouts


def _by_strands(request: Request, gpus: int, capacities: Sequence[int]) -> int:
    """As `_by_sizes`, where replicas are staggered over hosts; 0 where that is not known."""
    found = strands(request, gpus)
    if found is None:
        return 0
    side_by_side, grid = found
    cost = side_by_side.part_costs()
    if cost is None:
        return 0
    least = attainable(grid, least_sum(side_by_side.hosts, capacities, cost))
    return 2 * ceil(grid.to_bytes(least))


def _by_parts(graph: BlockGraph, capacities: Sequence[int]) -> int:
    """As `_by_sizes`, from what parts of every size cut at least, where that is known."""
    return 2 * -(-PartBound(graph).least_cut(capacities) // (2 * graph.scale))
