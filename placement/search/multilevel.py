"""Multilevel search for layouts: coarsen, anneal, refine (Walshaw 2004).

One block at a time, a search cannot move a pair that must stay together: the way there costs
too much. So `multilevel` first merges blocks along their dearest edges, two by two; the pieces
are placed and annealed hot, taken apart one level, annealed warm, and so on down to single
blocks. A piece that fits nowhere is taken apart earlier.

`refined` has the last word on a layout that is not proved: straight lines, sweeps and patterns
leave corners that only moves of single blocks round off, and now and then another shape is
better altogether. `put_anew` looks further where little is proved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.search.annealing import annealed
from placement.speculative import ahead

MANY = 4  # graphs whose levels are kept
PROPOSALS = 600  # of single moves, for each tree that the limits allow
PER_BLOCK = 160  # proposals for each block and pass
FEW = 100  # blocks, up to which each of them gets more: they are cheap to try again
PER_BLOCK_OF_FEW = 400
MOST_EACH = 400_000  # proposals of a pass, for large graphs: a tenth of a second
LARGEST = (64, 8, 24)  # blocks in the pieces that are put together, in turns
PASSES = (6, 24)  # of pieces put anew: at least, which are one turn of sizes and heats, at most
SLOW = (4, 4, 4)  # passes so many times as long
WIDE = 0.95  # of the cost: where less is proved, more work is done
# Of pieces put anew as a last resort: proposals of each pass and level, and for each block at most.
ALL_EACH, MOST_PER_BLOCK = 500_000, 2_560
SIZES_ANEW, HEATS_ANEW = (64, 8, 24, 16), (1.7, 1.0, 3.0)
HEATS = (1.7, 1.0)  # of annealing, in turns: some graphs want to be hotter
PROMISING = 1.05  # times the best cost


class Multilevel:
    """Annealing of one graph of single blocks into domains, which hold it, until the cost is
    `target`. `per_block`: proposals for each block, or piece, and level."""

    def __init__(
        self, graph: Hypergraph, capacities: Sequence[int], per_block: int, target: int
    ) -> None:
        self._graph, self._capacities = graph, capacities
        self._per_block, self._target = per_block, target

    def polished(self, start: Ints, seed: str, times: int = 1) -> Ints:
        """The best layout met by moves of single blocks from a good one."""
        rng, proposals = random.Random(f"polish {seed}"), times * self._per_block * len(start)
        return annealed(self._graph, self._capacities, start, proposals, rng, self._target)

    def anew(self, largest: int, seed: str, heat: float = 1.0, times: int = 1) -> Ints:
        """A layout made from pieces, of at most `largest` blocks on the coarsest level."""
        rng = random.Random(f"multilevel {seed}")
        levels = _levels(self._graph, largest)
        at, pieces = _fitted(levels, self._capacities)
        at = self._on_level(at, pieces, rng, heat, times, is_hot=True)
        for level in reversed(levels[:-1]):
            pieces = _numbered(level * len(self._capacities) + at)
            at = self._on_level(at, pieces, rng, heat, times, is_hot=False)
        return at

    def _on_level(
        self, at: Ints, pieces: Ints, rng: random.Random, heat: float, times: int, *, is_hot: bool
    ) -> Ints:
        """Anneal pieces, each of which is in one domain; the domain of each block."""
        coarse = self._graph.merged(pieces)
        start = np.zeros(coarse.blocks, dtype=np.int64)
        start[pieces] = at
        proposals, room = times * self._per_block * coarse.blocks, self._capacities
        best = annealed(coarse, room, start, proposals, rng, self._target, heat, is_hot=is_hot)
        return best[pieces]


@lru_cache(maxsize=MANY)
def _levels(graph: Hypergraph, largest: int) -> list[Ints]:
    """The piece of each block, level by level; single blocks first. Parts that look alike have one
    graph."""
    levels = [np.arange(graph.blocks)]
    limit = 1
    while True:
        limit = min(2 * limit, largest)
        labels = _matched(graph, limit)
        if int(labels.max()) + 1 == graph.blocks:
            return levels
        graph = graph.merged(labels)
        levels.append(labels[levels[-1]])


def _matched(graph: Hypergraph, limit: int) -> Ints:
    """Labels of pairs of neighbours, the dearest for their size first."""
    low, high, saved = graph.savings
    sizes = graph.sizes
    fits = sizes[low] + sizes[high] <= limit
    low, high, saved = low[fits], high[fits], saved[fits]
    order = np.argsort(-saved / (sizes[low] * sizes[high]), kind="stable")
    label = list(range(graph.blocks))
    is_free = [True] * graph.blocks
    for a, b in zip(low[order].tolist(), high[order].tolist(), strict=True):
        if is_free[a] and is_free[b]:
            is_free[a] = is_free[b] = False
            label[b] = a
    return _numbered(np.array(label))


def _numbered(labels: Ints) -> Ints:
    """The same partition with labels 0, 1, .. without holes."""
    return np.asarray(np.unique(labels, return_inverse=True)[1])


def _fitted(levels: Sequence[Ints], capacities: Sequence[int]) -> tuple[Ints, Ints]:
    """Pieces into the first domain with room, roomiest domains first; what fits nowhere in
    the pieces of the level below. The domain of each block, and the pieces as labels."""
    slack = list(capacities)
    order = sorted(range(len(slack)), key=lambda domain: (-slack[domain], domain))
    at = np.full(len(levels[0]), -1, dtype=np.int64)
    label = at.copy()
    for level in reversed(levels):
        left = np.flatnonzero(at < 0)
        pieces: dict[int, list[int]] = {}
        for block, piece in zip(left.tolist(), level[left].tolist(), strict=True):
            pieces.setdefault(piece, []).append(block)
        for members in pieces.values():
            domain = next((z for z in order if slack[z] >= len(members)), -1)
            if domain >= 0:
                slack[domain] -= len(members)
                at[members], label[members] = domain, members[0]
    return at, _numbered(label)


def refined(
    graph: Hypergraph, capacities: Sequence[int], start: Ints, proposals: int, target: int
) -> Ints:
    """The best layout met in about so many proposals; stops at the cost `target`.

    `start`: the domain of each block, within the capacities.
    """
    best, cost, seed = start, graph.cost(start), f"{graph.blocks} {sorted(capacities)}"
    per_block = PER_BLOCK_OF_FEW if graph.blocks <= FEW else PER_BLOCK
    per_block = min(per_block, MOST_EACH // max(1, graph.blocks))
    search = Multilevel(graph, capacities, per_block, target)

    def offer(at: Ints) -> int:
        nonlocal best, cost
        found = graph.cost(at)
        if found < cost:
            best, cost = at, found
        return found

    offer(search.polished(best, seed))
    moved, (least, most) = cost, PASSES
    quick = (1,) * max(least, min(most, proposals // max(1, 3 * per_block * graph.blocks)))
    for k, times in enumerate(quick + SLOW if proposals else ()):
        if cost <= target or (times > 1 and WIDE * cost <= target):
            break
        if k == 2 * least and cost == moved:  # what is better is met in two turns as a rule
            break
        largest, heat = LARGEST[k % len(LARGEST)], HEATS[k % len(HEATS)]
        at = search.anew(largest, f"{k} {seed}", heat, times)
        if offer(at) <= PROMISING * cost:
            offer(search.polished(at, f"{k} {seed}", times))
    return best


def put_anew(
    graph: Hypergraph, capacities: Sequence[int], start: Ints, passes: int, target: int
) -> Ints:
    """The best layout met in so many slow passes, each from nothing, and half as many from the
    best of them, two at a time; stops at the cost `target`. For what little is proved of, where
    it pays to look elsewhere."""
    seed, best = f"anew {graph.blocks} {sorted(capacities)}", start
    per_block = min(MOST_PER_BLOCK, ALL_EACH // max(1, graph.blocks))
    search = Multilevel(graph, capacities, per_block, target)
    promising = PROMISING * graph.cost(best)

    def from_nothing(k: int) -> Ints:
        largest, heat = SIZES_ANEW[k % len(SIZES_ANEW)], HEATS_ANEW[k % len(HEATS_ANEW)]
        at = search.anew(largest, f"{k} {seed}", heat)
        return from_here(at, k) if graph.cost(at) <= promising else at

    def from_here(at: Ints, k: int) -> Ints:
        return search.polished(at, f"{k} {seed}")

    def best_of(calls: Sequence[Callable[[], Ints]]) -> Ints:
        found = best
        for at in ahead(calls):
            found = min(found, at, key=graph.cost)
            if graph.cost(found) <= target:
                break
        return found

    if graph.cost(best) > target:
        best = best_of([partial(from_nothing, k) for k in range(passes)])
    for k in range(passes, passes + passes // 2, 2):
        if graph.cost(best) > target:
            best = best_of([partial(from_here, best, k), partial(from_here, best, k + 1)])
    return best
