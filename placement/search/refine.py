"""The last word on a layout that is not proved: single blocks moved, and pieces put anew.

Straight lines, sweeps and patterns leave corners that only moves of single blocks round
off, and now and then another shape is better altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.flat import flat_graph
from placement.graph.pieces import PieceGraph
from placement.search.multilevel import multilevel, polished
from placement.speculative import ahead

PER_BLOCK = 160  # proposals for each block and pass
FEW = 100  # blocks, up to which each of them gets more: they are cheap to try again
PER_BLOCK_OF_FEW = 400
MOST_EACH = 400_000  # proposals of a pass, for large graphs: a tenth of a second
LARGEST = (64, 8, 24)  # blocks in the pieces that are put together, in turns
PASSES = (6, 24)  # of pieces put anew: at least, which are one turn of sizes and heats, at most
SLOW, WIDE = (4, 4, 4), 0.95  # passes so many times as long; where less of the cost is proved
# Of pieces put anew as a last resort: proposals of each pass and level, and for each block at most.
ALL_EACH, MOST_PER_BLOCK = 500_000, 2_560
SIZES_ANEW, HEATS_ANEW = (64, 8, 24, 16), (1.7, 1.0, 3.0)
HEATS = (1.7, 1.0)  # of annealing, in turns: some graphs want to be hotter
PROMISING = 1.05  # times the best cost


def refined(
    graph: PieceGraph, capacities: Sequence[int], start: Sequence[int], proposals: int, target: int
) -> list[int]:
    """The best assignment found in about so many proposals; stops at the cost `target`.

    `start`: the domain of each block, within the capacities.
    """
    flat = flat_graph(graph)
    best = np.array(start, dtype=np.int64)
    cost = flat.cost(best)
    seed = f"{graph.order} {sorted(capacities)}"
    per_block = PER_BLOCK_OF_FEW if graph.order <= FEW else PER_BLOCK
    per_block = min(per_block, MOST_EACH // max(1, graph.order))
    each = per_block * graph.order

    def offer(at: Ints) -> int:
        nonlocal best, cost
        found = flat.cost(at)
        if found < cost:
            best, cost = at, found
        return found

    offer(polished(flat, capacities, best, each, seed, target))
    moved, (least, most) = cost, PASSES
    quick = (1,) * max(least, min(most, proposals // (3 * each)))
    for k, times in enumerate(quick + SLOW if proposals else ()):
        if cost <= target or (times > 1 and WIDE * cost <= target):
            break
        if k == 2 * least and cost == moved:  # what is better is met in two turns as a rule
            break
        largest, heat = LARGEST[k % len(LARGEST)], HEATS[k % len(HEATS)]
        at = multilevel(flat, capacities, times * per_block, largest, f"{k} {seed}", target, heat)
        if offer(at) <= PROMISING * cost:
            offer(polished(flat, capacities, at, times * each, f"{k} {seed}", target))
    return [int(domain) for domain in best]


def put_anew(
    graph: PieceGraph, capacities: Sequence[int], start: Sequence[int], passes: int, target: int
) -> list[int]:
    """The best assignment met in so many slow passes, each from nothing, and half as many from the
    best of them, two at a time; stops at the cost `target`. For what little is proved of, where it
    pays to look elsewhere."""
    flat = flat_graph(graph)
    best = np.array(start, dtype=np.int64)
    seed = f"anew {graph.order} {sorted(capacities)}"
    per_block = min(MOST_PER_BLOCK, ALL_EACH // max(1, graph.order))
    proposals = per_block * graph.order
    promising = PROMISING * flat.cost(best)

    def from_nothing(k: int) -> Ints:
        largest, heat = SIZES_ANEW[k % len(SIZES_ANEW)], HEATS_ANEW[k % len(HEATS_ANEW)]
        at = multilevel(flat, capacities, per_block, largest, f"{k} {seed}", target, heat)
        return from_here(at, k) if flat.cost(at) <= promising else at

    def from_here(at: Ints, k: int) -> Ints:
        return polished(flat, capacities, at, proposals, f"{k} {seed}", target)

    def best_of(calls: Sequence[Callable[[], Ints]]) -> Ints:
        found = best
        for at in ahead(calls):
            found = min(found, at, key=flat.cost)
            if flat.cost(found) <= target:
                break
        return found

    if flat.cost(best) > target:
        best = best_of([partial(from_nothing, k) for k in range(passes)])
    for k in range(passes, passes + passes // 2, 2):
        if flat.cost(best) > target:
            best = best_of([partial(from_here, best, k), partial(from_here, best, k + 1)])
    return [int(domain) for domain in best]
