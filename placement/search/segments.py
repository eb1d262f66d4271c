"""Blocks in a line, cut into one segment per domain: the best cuts for that line.

A walk through the gang along one axis, a few lines abreast, keeps neighbours close.
Where to cut it is a dynamic program over (domains used, blocks covered): a domain takes
as many blocks as it has room for, or fewer when the cut then falls between two groups.
Filling every domain to its last host cuts wherever capacities happen to end.

Segments see a group as pairs: members of a clique two by two, and each member of a
hierarchical group with the one before it on the walk, for a segment that holds k members
in a row saves k - 1 domains. So what a set of segments saves is the sum of its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.pieces import PieceGraph
from placement.kernels import Kernel

NEVER = -(1 << 60)


class Pairs(NamedTuple):
    """Whom it saves `weight` to keep together, `tail` and `head`. Groups of which it saves to keep
    those together that come after each other on a walk: vertex v is in group[begin[v]] to
    group[begin[v + 1]], and `saved` by group."""

    tail: Ints
    head: Ints
    weight: Ints
    begin: Ints
    group: Ints
    saved: Ints


def _joined(pairs: Pairs, walks: Ints, blocks: int, at: Ints, last: Ints, tables: Ints) -> None:
    """Of each walk, line n, place i: weight of the pairs inside the n blocks from position i on.

    `walks`: one after the other. `tables`: zeros, of each walk a line of blocks + 1 for each
    length; segments past the end are never looked at. `at`, `last`: room for the position of each
    vertex, and of the last one met of each group.
    """
    line, many = blocks + 1, len(walks) // blocks
    size = len(tables) // many
    lengths = size // line
    for w in range(many):
        walk, table = walks[w * blocks : (w + 1) * blocks], tables[w * size : (w + 1) * size]
        for i in range(blocks):
            at[walk[i]] = i
        for k in range(len(pairs.tail)):
            a, b = at[pairs.tail[k]], at[pairs.head[k]]
            low, length = min(a, b), abs(a - b) + 1
            if length < lengths:
                table[length * line + low] += pairs.weight[k]
        for g in range(len(last)):
            last[g] = -1
        for i in range(blocks):
            for k in range(pairs.begin[walk[i]], pairs.begin[walk[i] + 1]):
                g = pairs.group[k]
                length = i - last[g] + 1
                if last[g] >= 0 and length < lengths:
                    table[length * line + last[g]] += pairs.saved[g]
                last[g] = i
        for length in range(2, lengths):
            now, shorter, before = length * line, (length - 1) * line, (length - 2) * line
            for i in range(line - length):
                inside = table[shorter + i] + table[shorter + i + 1] - table[before + i + 1]
                table[now + i] += inside


def _most_saved(table: Ints, blocks: int, room: Ints, values: Ints) -> None:
    """Most that the first n blocks save in the first k domains, in a line for each k = 0, 1, ..

    `room`: of the domains in their order, which together hold all. Only as many blocks as the
    first k hold are covered, and only as few as leave the rest to the others.
    """
    line = blocks + 1
    for n in range(line):
        values[n] = NEVER
    values[0] = 0
    held = left = low = high = 0
    for capacity in room:
        left += capacity
    for k in range(len(room)):
        held, left = held + room[k], left - room[k]
        to_low, to_high = max(0, blocks - left), min(blocks, held)
        before, now = values[k * line : (k + 1) * line], values[(k + 1) * line : (k + 2) * line]
        for n in range(line):
            now[n] = before[n]
        for length in range(1, room[k] + 1):
            saved = table[length * line : (length + 1) * line]
            for i in range(max(low, to_low - length), min(high, to_high - length) + 1):
                reached = before[i] + saved[i]
                if reached > now[i + length]:
                    now[i + length] = reached
        low, high = to_low, to_high


def _cut(table: Ints, blocks: int, room: Ints, values: Ints, lengths: Ints) -> None:
    """The length of each domain's segment; ties to the shortest ones of the last domains."""
    line, end = blocks + 1, blocks
    for k in range(len(room) - 1, -1, -1):
        length = 0
        while (
            values[k * line + end - length] + table[length * line + end - length]
            != values[(k + 1) * line + end]
        ):
            length += 1
        lengths[k] = length
        end -= length


joined, most_saved, cut = Kernel(_joined), Kernel(_most_saved), Kernel(_cut)


class Segmenter:
    """Cuts walks over one graph of single blocks into domains of given capacities.

    Walks are added once and known by their number from then on.
    """

    def __init__(self, graph: PieceGraph, capacities: Sequence[int]) -> None:
        self._blocks = graph.order
        self._capacities = [min(c, graph.order) for c in capacities]
        self._longest = max(self._capacities)
        self._walks: list[Ints] = []
        self._tables: list[Ints] = []
        pairs = [
            (a, b, weight)
            for a, links in enumerate(graph.links)
            for b, weight in links.items()
            if a < b
        ]
        for group in graph.groups:
            if group.is_clique:
                members = [vertex for vertex, _ in group.members]
                pairs += [
                    (a, b, 2 * group.weight) for i, a in enumerate(members) for b in members[:i]
                ]
        tail, head, weight = np.array(pairs, dtype=np.int64).reshape(-1, 3).T.copy()
        begin, number, saved, most = _in_line(graph)
        self._pairs = Pairs(tail, head, weight, begin, number, saved)
        self._total = int(weight.sum()) + most

    def add(self, walks: Sequence[Ints]) -> range:
        """The numbers of these walks."""
        first = len(self._walks)
        self._walks += walks
        pairs, blocks, many = self._pairs, self._blocks, len(walks)
        tables = np.zeros((many, (self._longest + 1) * (blocks + 1)), dtype=np.int64)
        at, last = np.empty(blocks, dtype=np.int64), np.empty(len(pairs.saved), dtype=np.int64)
        steps = tables.size + many * len(pairs.tail)
        joined.run(steps, pairs, np.concatenate(walks), blocks, at, last, tables.ravel())
        self._tables += list(tables)
        return range(first, len(self._walks))

    def costs(self, walks: Sequence[int], domains: Sequence[int]) -> Ints:
        """What each walk cuts at least when `domains` take segments in this order; any of
        them may stay empty, and together they hold the graph. Shape: (walks,)."""
        room, values = self._in_order(domains)
        saved: Ints = np.empty(len(walks), dtype=np.int64)
        for k, walk in enumerate(walks):
            self._fill(walk, room, values)
            saved[k] = values[-1]
        return np.asarray(self._total - saved)

    def cut(self, walk: int, domains: Sequence[int]) -> Ints:
        """The domain of each block for one of these costs; ties to the shortest segments
        of the last domains."""
        room, values = self._in_order(domains)
        self._fill(walk, room, values)
        lengths = np.empty_like(room)
        cut.run(self._blocks, self._tables[walk], self._blocks, room, values, lengths)
        at = np.empty(self._blocks, dtype=np.int64)
        at[self._walks[walk]] = np.repeat(domains, lengths)
        return at

    def _in_order(self, domains: Sequence[int]) -> tuple[Ints, Ints]:
        """Room of these domains, and of what the first blocks save in the first of them."""
        room = np.array([self._capacities[domain] for domain in domains], dtype=np.int64)
        return room, np.empty((len(room) + 1) * (self._blocks + 1), dtype=np.int64)

    def _fill(self, walk: int, room: Ints, values: Ints) -> None:
        held = sum(self._capacities)
        steps = held * (1 + min(self._blocks, held - self._blocks))
        most_saved.run(steps, self._tables[walk], self._blocks, room, values)


def _in_line(graph: PieceGraph) -> tuple[Ints, Ints, Ints, int]:
    """Hierarchical groups by vertex, what each of them saves, and what all do that are whole."""
    groups = [group for group in graph.groups if not group.is_clique]
    members = [(vertex, g) for g, group in enumerate(groups) for vertex, _ in group.members]
    vertex, number = np.array(sorted(members), dtype=np.int64).reshape(-1, 2).T.copy()
    saved = np.array([group.weight for group in groups], dtype=np.int64)
    most = sum(group.weight * (len(group.members) - 1) for group in groups)
    return np.searchsorted(vertex, np.arange(graph.order + 1)), number, saved, most


class Filler:
    """In place of a `Segmenter` where its tables would be too large: every domain is filled
    to its last host."""

    def __init__(self, graph: PieceGraph, capacities: Sequence[int]) -> None:
        self._graph = graph
        self._capacities = capacities
        self._walks: list[Ints] = []

    def add(self, walks: Sequence[Ints]) -> range:
        first = len(self._walks)
        self._walks += walks
        return range(first, len(self._walks))

    def costs(self, walks: Sequence[int], domains: Sequence[int]) -> Ints:
        return np.array([self._graph.cost(self.cut(walk, domains).tolist()) for walk in walks])

    def cut(self, walk: int, domains: Sequence[int]) -> Ints:
        filled = np.repeat(domains, [self._capacities[domain] for domain in domains])
        at = np.empty(self._graph.order, dtype=np.int64)
        at[self._walks[walk]] = filled[: self._graph.order]
        return at
