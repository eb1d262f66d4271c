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

import numpy as np

from placement.fabric import Ints
from placement.pieces import PieceGraph

NEVER = -(np.int64(1) << 60)


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
        self._tail, self._head, self._weight = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
        self._line, self._line_weight = _padded(graph)
        sizes = np.count_nonzero(self._line >= 0, axis=1)
        self._total = int(self._weight.sum() + (self._line_weight * (sizes - 1)).sum())

    def add(self, walks: Sequence[Ints]) -> range:
        """The numbers of these walks."""
        first = len(self._walks)
        self._walks += walks
        self._tables += [self._saved(walk) for walk in walks]
        return range(first, len(self._walks))

    def costs(self, walks: Sequence[int], domains: Sequence[int]) -> Ints:
        """What each walk cuts at least when `domains` take segments in this order; any of
        them may stay empty, and together they hold the graph. Shape: (walks,)."""
        tables = np.stack([self._tables[walk] for walk in walks])
        return np.asarray(self._total - self._most_saved(tables, domains)[-1][:, self._blocks])

    def cut(self, walk: int, domains: Sequence[int]) -> Ints:
        """The domain of each block for one of these costs; ties to the shortest segments
        of the last domains."""
        table = self._tables[walk]
        values = self._most_saved(table[None], domains)
        at = np.empty(self._blocks, dtype=np.int64)
        end = self._blocks
        for domain, before, after in reversed(list(zip(domains, values, values[1:], strict=False))):
            lengths = np.arange(min(end, self._capacities[domain]) + 1)
            met = before[0, end - lengths] + table[end - lengths, lengths] == after[0, end]
            length = int(np.argmax(met))
            at[self._walks[walk][end - length : end]] = domain
            end -= length
        return at

    def _most_saved(self, tables: Ints, domains: Sequence[int]) -> list[Ints]:
        """Most that the first n blocks save in the first k domains, for k = 0, 1, ..

        Shape of each: (walks, blocks + 1). Only as many blocks as the first k domains hold
        are covered, and only as few as leave the rest to the others.
        """
        n = self._blocks
        value = np.full((len(tables), n + 1), NEVER)
        value[:, 0] = 0
        values = [value]
        held, left = 0, sum(self._capacities[domain] for domain in domains)
        low = high = 0
        for domain in domains:
            capacity = self._capacities[domain]
            held, left = held + capacity, left - capacity
            to_low, to_high = max(0, n - left), min(n, held)
            value = value.copy()
            for length in range(1, capacity + 1):
                first, last = max(low, to_low - length), min(high, to_high - length) + 1
                if first < last:
                    saved = values[-1][:, first:last] + tables[:, first:last, length]
                    reached = value[:, first + length : last + length]
                    np.maximum(reached, saved, out=reached)
            values.append(value)
            low, high = to_low, to_high
        return values

    def _saved(self, walk: Ints) -> Ints:
        """[i, n]: weight of the pairs inside the n blocks from position i of the walk on.

        Shape: (blocks + 1, longest + 1); segments past the end are never looked at.
        """
        low, high, weight = self._pairs(walk)
        reach = self._longest
        near = high - low < reach
        # By the end of the pair and its length; sums of whole numbers stay below 2^53.
        by_end = np.bincount(
            high[near] * reach + (high - low)[near],
            weights=weight[near].astype(np.float64),
            minlength=self._blocks * reach,
        )
        joined = np.cumsum(by_end.reshape(-1, reach), axis=1).astype(np.int64)
        table = np.zeros((self._blocks + 1, reach + 1), dtype=np.int64)
        for length in range(2, reach + 1):
            starts = self._blocks + 1 - length
            table[:starts, length] = table[:starts, length - 1]
            table[:starts, length] += joined[length - 1 :, length - 1]
        return table

    def _pairs(self, walk: Ints) -> tuple[Ints, Ints, Ints]:
        """Positions of the two ends on the walk, and what keeping them together saves."""
        at = np.empty(self._blocks + 1, dtype=np.int64)
        at[walk] = np.arange(self._blocks)
        at[-1] = self._blocks  # of nobody: the padding of short groups
        a, b = at[self._tail], at[self._head]
        where = np.sort(at[self._line], axis=1)
        there = where[:, 1:] < self._blocks
        weight = np.broadcast_to(self._line_weight[:, None], there.shape)[there]
        return (
            np.concatenate([np.minimum(a, b), where[:, :-1][there]]),
            np.concatenate([np.maximum(a, b), where[:, 1:][there]]),
            np.concatenate([self._weight, weight]),
        )


def _padded(graph: PieceGraph) -> tuple[Ints, Ints]:
    """Members of the hierarchical groups, -1 where one has fewer, and their weights."""
    groups = [group for group in graph.groups if not group.is_clique]
    most = max((len(group.members) for group in groups), default=1)
    line = np.full((len(groups), most), -1, dtype=np.int64)
    for row, group in zip(line, groups, strict=True):
        row[: len(group.members)] = [vertex for vertex, _ in group.members]
    return line, np.array([group.weight for group in groups], dtype=np.int64)


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
