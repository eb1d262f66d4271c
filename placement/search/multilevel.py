"""Better layouts by annealing on the explicit graph: `polished`, and `multilevel` anew.

A proposal takes a piece to the domain of one of its neighbours; where that is full, in
exchange for a piece that is there. It is accepted by Metropolis' rule (Kirkpatrick et al.
1983): always when it cuts less, and the more rarely the more it cuts, as the temperature
falls. `polished` starts warm from a good layout.

One block at a time, a search cannot move a pair that must stay together: the way there
costs too much. So `multilevel` (Walshaw 2004) first merges blocks along their dearest
edges, two by two; the pieces are placed and annealed hot, taken apart one level, annealed
warm, and so on down to single blocks. A piece that fits nowhere is taken apart earlier.

Work is counted in proposals, random numbers come from a seed, and everything that decides
is an integer or a rounded constant: the same answer on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.flat import FlatGraph
from placement.search.annealing import DRAWS, Standing, anneal

MANY = 4  # graphs whose levels are kept
STAGES = 40  # temperatures per anneal, falling geometrically
HOT, WARM, COLD = 0.5, 0.6, 0.15  # in weights: of the dearest, the median, the least edge


def polished(
    graph: FlatGraph,
    capacities: Sequence[int],
    start: Ints,
    proposals: int,
    seed: str,
    target: int,
) -> Ints:
    """The best assignment met from `start`, which respects the capacities; the search ends
    at the cost `target`."""
    rng = random.Random(f"polish {seed}")
    return _annealed(graph, capacities, start, proposals, rng, target, 1.0, is_hot=False)


def multilevel(
    graph: FlatGraph,
    capacities: Sequence[int],
    per_piece: int,
    largest: int,
    seed: str,
    target: int,
    heat: float = 1.0,
) -> Ints:
    """A domain for each vertex, found without a start.

    `largest`: blocks in a piece of the coarsest level; `per_piece`: proposals per piece
    and level; `heat`: times the usual temperatures. The capacities must hold the graph, and
    its vertices are single blocks.
    """
    rng = random.Random(f"multilevel {seed}")
    levels = _levels(graph, largest)
    at, pieces = _fitted(levels, capacities)
    at = _on_level(graph, capacities, at, pieces, per_piece, rng, target, heat, is_hot=True)
    for level in reversed(levels[:-1]):
        pieces = _numbered(level * len(capacities) + at)
        at = _on_level(graph, capacities, at, pieces, per_piece, rng, target, heat, is_hot=False)
    return at


@lru_cache(maxsize=MANY)
def _levels(graph: FlatGraph, largest: int) -> list[Ints]:
    """The piece of each block, level by level; single blocks first. Parts that look alike have one
    graph."""
    levels = [np.arange(graph.order)]
    limit = 1
    while True:
        limit = min(2 * limit, largest)
        labels = _matched(graph, limit)
        if int(labels.max()) + 1 == graph.order:
            return levels
        graph = graph.contracted(labels)
        levels.append(labels[levels[-1]])


def _matched(graph: FlatGraph, limit: int) -> Ints:
    """Labels of pairs of neighbours, the dearest for their size first."""
    low, high, saved = graph.rated
    sizes = graph.sizes
    fits = sizes[low] + sizes[high] <= limit
    low, high, saved = low[fits], high[fits], saved[fits]
    order = np.argsort(-saved / (sizes[low] * sizes[high]), kind="stable")
    label = list(range(graph.order))
    is_free = [True] * graph.order
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


def _on_level(
    graph: FlatGraph,
    capacities: Sequence[int],
    at: Ints,
    pieces: Ints,
    per_piece: int,
    rng: random.Random,
    target: int,
    heat: float,
    *,
    is_hot: bool,
) -> Ints:
    """Anneal whole pieces, each of which is in one domain; the domain of each block."""
    coarse = graph.contracted(pieces)
    start = np.zeros(coarse.order, dtype=np.int64)
    start[pieces] = at
    proposals = per_piece * coarse.order
    found = _annealed(coarse, capacities, start, proposals, rng, target, heat, is_hot=is_hot)
    return np.asarray(found[pieces])


def _annealed(
    graph: FlatGraph,
    capacities: Sequence[int],
    start: Ints,
    proposals: int,
    rng: random.Random,
    target: int,
    heat: float,
    *,
    is_hot: bool,
) -> Ints:
    weights = np.sort(graph.rated[2])
    weights = weights[weights > 0]
    excess = graph.cost(start) - target
    if not len(weights) or excess <= 0:
        return start
    first = HOT * int(weights[-1]) if is_hot else WARM * int(weights[len(weights) // 2])
    first *= heat
    last = min(first, COLD * int(weights[0]))
    ratio = last / first
    falling = [round(first * ratio ** (stage / (STAGES - 1)), 3) for stage in range(STAGES)]
    board, now = graph.board, _standing(graph, capacities, start)
    movable = np.flatnonzero(np.diff(board.near_begin))
    open_ = np.flatnonzero(np.array(capacities))
    each, word = proposals // STAGES + 1, rng.randrange(1, 1 << 32)
    anneal.run(proposals, board, now, movable, open_, np.array(falling), DRAWS, each, excess, word)
    return now.best


def _standing(graph: FlatGraph, capacities: Sequence[int], start: Ints) -> Standing:
    domains, order = len(capacities), graph.order
    slack = np.array(capacities, dtype=np.int64)
    np.subtract.at(slack, start, graph.sizes)
    held = np.bincount(start, minlength=domains)
    by_domain = np.argsort(start, kind="stable")
    seat = np.empty(order, dtype=np.int64)
    seat[by_domain] = np.arange(order) - (np.cumsum(held) - held)[start[by_domain]]
    members = np.zeros(domains * order, dtype=np.int64)
    members[start * order + seat] = np.arange(order)
    counts = np.zeros(len(graph.group_weight) * domains, dtype=np.int64)
    each = np.where(graph.is_clique[graph.group], graph.blocks, 1)
    np.add.at(counts, graph.group * domains + start[graph.member], each)
    return Standing(start.copy(), start.copy(), slack, held, members, seat, counts)
