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
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from math import log

import numpy as np

from placement.pieces import PieceGraph

STAGES = 40  # temperatures per anneal, falling geometrically
HOT, WARM, COLD = 0.5, 0.6, 0.15  # in weights: of the dearest, the median, the least edge
STRAY = 6_554  # of 65,536 idle proposals that try any domain at all: a tenth
BATCH = 4_096  # proposals, or a little more, that are drawn together
# Draws of Metropolis' rule: -log of evenly spaced numbers, rounded.
DRAWS = np.array([round(-log((i + 0.5) / 1024), 6) for i in range(1024)])


def polished(
    graph: PieceGraph,
    capacities: Sequence[int],
    start: Sequence[int],
    proposals: int,
    seed: str,
    target: int,
) -> list[int]:
    """The best assignment met from `start`, which respects the capacities; the search ends
    at the cost `target`."""
    rng = random.Random(f"polish {seed}")
    return _annealed(graph, capacities, start, proposals, rng, target, is_hot=False)


def multilevel(
    graph: PieceGraph,
    capacities: Sequence[int],
    per_piece: int,
    largest: int,
    seed: str,
    target: int,
) -> list[int]:
    """A domain for each vertex, found without a start.

    `largest`: blocks in a piece of the coarsest level; `per_piece`: proposals per piece
    and level. The capacities must hold the graph, and its vertices are single blocks.
    """
    rng = random.Random(f"multilevel {seed}")
    levels = _levels(graph, largest)
    at, pieces = _fitted(levels, capacities)
    at = _on_level(graph, capacities, at, pieces, per_piece, rng, target, is_hot=True)
    for level in reversed(levels[:-1]):
        pieces = _numbered(list(zip(level, at, strict=True)))
        at = _on_level(graph, capacities, at, pieces, per_piece, rng, target, is_hot=False)
    return at


def _levels(graph: PieceGraph, largest: int) -> list[list[int]]:
    """The piece of each block, level by level; single blocks first."""
    levels = [list(range(graph.order))]
    limit = 1
    while True:
        limit = min(2 * limit, largest)
        labels = _matched(graph, limit)
        if max(labels) + 1 == graph.order:
            return levels
        graph = graph.contracted(labels)
        levels.append([labels[piece] for piece in levels[-1]])


def _matched(graph: PieceGraph, limit: int) -> list[int]:
    """Labels of pairs of neighbours, the dearest for their size first."""
    sizes = graph.sizes
    edges = sorted(
        (-weight / (sizes[a] * sizes[b]), a, b)
        for a, links in enumerate(graph.ratings())
        for b, weight in links.items()
        if a < b and sizes[a] + sizes[b] <= limit
    )
    mate: dict[int, int] = {}
    for _, a, b in edges:
        if a not in mate and b not in mate:
            mate[a] = mate[b] = a
    return _numbered([mate.get(vertex, vertex) for vertex in range(graph.order)])


def _numbered(labels: Sequence[Hashable]) -> list[int]:
    """The same partition with labels 0, 1, .. in order of first occurrence."""
    names: dict[Hashable, int] = {}
    return [names.setdefault(label, len(names)) for label in labels]


def _fitted(
    levels: Sequence[Sequence[int]], capacities: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Pieces into the first domain with room, roomiest domains first; what fits nowhere in
    the pieces of the level below. The domain of each block, and the pieces as labels."""
    slack = list(capacities)
    order = sorted(range(len(slack)), key=lambda domain: (-slack[domain], domain))
    at = [-1] * len(levels[0])
    label = list(at)
    for level in reversed(levels):
        pieces: dict[int, list[int]] = {}
        for block, piece in enumerate(level):
            if at[block] < 0:
                pieces.setdefault(piece, []).append(block)
        for members in pieces.values():
            domain = next((z for z in order if slack[z] >= len(members)), -1)
            if domain >= 0:
                slack[domain] -= len(members)
                for block in members:
                    at[block], label[block] = domain, members[0]
    return at, _numbered(label)


def _on_level(
    graph: PieceGraph,
    capacities: Sequence[int],
    at: Sequence[int],
    pieces: Sequence[int],
    per_piece: int,
    rng: random.Random,
    target: int,
    *,
    is_hot: bool,
) -> list[int]:
    """Anneal whole pieces, each of which is in one domain; the domain of each block."""
    coarse = graph.contracted(pieces)
    start = [0] * coarse.order
    for block, piece in enumerate(pieces):
        start[piece] = at[block]
    proposals = per_piece * coarse.order
    found = _annealed(coarse, capacities, start, proposals, rng, target, is_hot=is_hot)
    return [found[piece] for piece in pieces]


def _annealed(
    graph: PieceGraph,
    capacities: Sequence[int],
    start: Sequence[int],
    proposals: int,
    rng: random.Random,
    target: int,
    *,
    is_hot: bool,
) -> list[int]:
    weights = sorted(w for links in graph.ratings() for w in links.values() if w)
    excess = graph.cost(start) - target
    if not weights or excess <= 0:
        return list(start)
    first = HOT * weights[-1] if is_hot else WARM * weights[len(weights) // 2]
    last = min(first, COLD * weights[0])
    ratio = last / first
    falling = [round(first * ratio ** (stage / (STAGES - 1)), 3) for stage in range(STAGES)]
    run = _Run(graph, capacities, start, rng)
    run.anneal(falling, proposals // STAGES + 1, excess)
    return run.best_at


class _Run:
    """An assignment on its way: domains of pieces, and what is in each domain."""

    def __init__(
        self,
        graph: PieceGraph,
        capacities: Sequence[int],
        start: Sequence[int],
        rng: random.Random,
    ) -> None:
        self._rng = rng
        self._sizes = graph.sizes
        self._near = graph.near()
        self._weight = graph.links
        self._links = [list(links.items()) for links in graph.links]
        self._at = list(start)
        self.best_at = list(start)
        self._saved = self.most_saved = 0
        self._slack = list(capacities)
        self._open = [z for z, capacity in enumerate(capacities) if capacity]
        self._members: list[list[int]] = [[] for _ in capacities]
        self._seat = [0] * graph.order  # position among the members of its domain
        for vertex, domain in enumerate(start):
            self._slack[domain] -= self._sizes[vertex]
            self._seat[vertex] = len(self._members[domain])
            self._members[domain].append(vertex)
        self._count(graph)

    def _count(self, graph: PieceGraph) -> None:
        """Members by domain of every group, listed by vertex: hierarchical ones as (count,
        weight), cliques as (count of blocks, twice the weight of all my blocks, my blocks)."""
        self._has_groups = bool(graph.groups)
        self._spans: list[list[tuple[list[int], int]]] = [[] for _ in self._at]
        self._cliques: list[list[tuple[list[int], int, int]]] = [[] for _ in self._at]
        for group in graph.groups:
            count = [0] * len(self._slack)
            for vertex, blocks in group.members:
                if group.is_clique:
                    count[self._at[vertex]] += blocks
                    self._cliques[vertex].append((count, 2 * group.weight * blocks, blocks))
                else:
                    count[self._at[vertex]] += 1
                    self._spans[vertex].append((count, group.weight))

    def anneal(self, temperatures: Sequence[float], each: int, enough: int) -> None:
        """So many proposals at each temperature, until `enough` is saved."""
        at, slack, sizes, dearer = self._at, self._slack, self._sizes, self._dearer
        for vertex, other, stray, most in self._proposals(temperatures, each):
            here, there = at[vertex], at[other]
            if here == there:
                there = stray
                if there < 0 or here == there:
                    continue
            more = dearer(vertex, here, there)
            if slack[there] < sizes[vertex]:
                self._exchange(vertex, there, more, most)
            elif more <= most:
                self._shift(vertex, here, there)
                self._reseat(vertex, here, there)
                self._settle(here, there, sizes[vertex], more)
            if self.most_saved >= enough:
                return

    def _proposals(
        self, temperatures: Sequence[float], each: int
    ) -> Iterator[tuple[int, int, int, float]]:
        """A vertex, a neighbour whose domain is tried, the domain to try where that is its own
        (-1: none), and what the move may cost. Many are drawn at once: one by one, drawing
        takes longer than most moves."""
        movable = np.array([vertex for vertex, near in enumerate(self._near) if near])
        others = np.array([other for near in self._near for other in near])
        degree = np.array([len(near) for near in self._near])
        begin = np.array([0, *accumulate(degree.tolist())])
        domains = np.array(self._open)
        stages = max(1, BATCH // each)
        for stage in range(0, len(temperatures), stages):
            warmth = np.repeat(temperatures[stage : stage + stages], each)
            drawn = np.frombuffer(self._rng.randbytes(16 * len(warmth)), dtype="<u4")
            who, whom, stray, rule = drawn.reshape(4, -1).astype(np.int64)
            vertex = movable[who * len(movable) >> 32]
            other = others[begin[vertex] + (whom * degree[vertex] >> 32)]
            anywhere = domains[(stray >> 16) * len(domains) >> 16]
            try_ = np.where(stray & 0xFFFF < STRAY, anywhere, -1)
            most = warmth * DRAWS[rule >> 22]
            yield from zip(
                vertex.tolist(), other.tolist(), try_.tolist(), most.tolist(), strict=True
            )

    def _exchange(self, vertex: int, there: int, more: int, most: float) -> None:
        """Trade places with a piece of the full domain `there`, if that costs at most `most`.
        `more`: what the move of `vertex` alone costs."""
        members = self._members[there]
        if not members:
            return
        here, sizes = self._at[vertex], self._sizes
        other = members[int(self._rng.random() * len(members))]
        extra = sizes[vertex] - sizes[other]
        if self._slack[there] < extra or self._slack[here] < -extra:
            return
        more += self._dearer_back(vertex, other, here, there)
        if more > most:
            return
        self._shift(vertex, here, there)
        self._shift(other, there, here)
        self._trade(vertex, other, here, there)
        self._settle(here, there, extra, more)

    def _dearer_back(self, vertex: int, other: int, here: int, there: int) -> int:
        """What the cut grows by when `other` comes `here` once `vertex` has gone `there`."""
        if not self._has_groups:
            together = 2 * self._weight[vertex].get(other, 0)
            return together + self._dearer(other, there, here)
        self._shift(vertex, here, there)
        more = self._dearer(other, there, here)
        self._shift(vertex, there, here)
        return more

    def _settle(self, here: int, there: int, size: int, more: int) -> None:
        """Book a move of `size` blocks that costs `more`."""
        self._slack[here] += size
        self._slack[there] -= size
        self._saved -= more
        if self._saved > self.most_saved:
            self.most_saved = self._saved
            self.best_at = self._at.copy()

    def _dearer(self, vertex: int, here: int, there: int) -> int:
        """What the cut grows by when `vertex` goes from `here` to `there`."""
        at = self._at
        more = 0
        for other, weight in self._links[vertex]:
            where = at[other]
            if where == here:
                more += weight
            elif where == there:
                more -= weight
        if self._has_groups:
            for count, weight in self._spans[vertex]:
                if count[here] > 1:
                    more += weight
                if count[there]:
                    more -= weight
            for count, weight, blocks in self._cliques[vertex]:
                more += weight * (count[here] - blocks - count[there])
        return more

    def _shift(self, vertex: int, here: int, there: int) -> None:
        self._at[vertex] = there
        if not self._has_groups:
            return
        for count, _ in self._spans[vertex]:
            count[here] -= 1
            count[there] += 1
        for count, _, blocks in self._cliques[vertex]:
            count[here] -= blocks
            count[there] += blocks

    def _reseat(self, vertex: int, here: int, there: int) -> None:
        """From one list of members to the other; the last one takes the empty seat."""
        seat = self._seat
        last = self._members[here].pop()
        if last != vertex:
            self._members[here][seat[vertex]] = last
            seat[last] = seat[vertex]
        seat[vertex] = len(self._members[there])
        self._members[there].append(vertex)

    def _trade(self, vertex: int, other: int, here: int, there: int) -> None:
        seat = self._seat
        self._members[here][seat[vertex]] = other
        self._members[there][seat[other]] = vertex
        seat[vertex], seat[other] = seat[other], seat[vertex]
