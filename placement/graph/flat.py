"""A graph of pieces as flat arrays, merged and rated in long vector operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.pieces import PieceGraph
from placement.search.annealing import Board

FEW = 8  # members of a group up to which everyone is near everyone


@dataclass(frozen=True, eq=False)
class FlatGraph:
    """Links a -> b, each both ways and sorted by (a, b); members of groups, sorted by group.

    Shapes: sizes (vertices,); tail, head, weight (links,); group, member, blocks
    (memberships,); group_weight, is_clique, 0 or 1, (groups,).
    """

    sizes: Ints
    tail: Ints
    head: Ints
    weight: Ints
    group: Ints
    member: Ints
    blocks: Ints
    group_weight: Ints
    is_clique: Ints

    @property
    def order(self) -> int:
        """Number of vertices."""
        return len(self.sizes)

    def cost(self, at: Sequence[int] | Ints) -> int:
        """The cut with vertex v in domain `at[v]`, in the units of the weights."""
        where = np.asarray(at, dtype=np.int64)
        cut = int(self.weight[where[self.tail] != where[self.head]].sum()) // 2
        if not len(self.group_weight):
            return cut
        key = self.group * (int(where.max()) + 1) + where[self.member]
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        held = np.add.reduceat(self.blocks[order], starts)
        group = self.group[order][starts]
        domains = np.bincount(group, minlength=len(self.group_weight))
        total, squares = np.zeros((2, len(self.group_weight)), dtype=np.int64)
        np.add.at(total, group, held)
        np.add.at(squares, group, held * held)
        apart = np.where(self.is_clique, total * total - squares, domains - 1)
        return cut + int((self.group_weight * apart).sum())

    @cached_property
    def rated(self) -> tuple[Ints, Ints, Ints]:
        """Pairs a < b, each once and in order, with what it saves to keep the two together.

        Of a group only members next to each other count as neighbours.
        """
        is_pair = self.group[1:] == self.group[:-1]
        a, b = self.member[:-1][is_pair], self.member[1:][is_pair]
        group = self.group[1:][is_pair]
        each = np.where(
            self.is_clique[group], 2 * self.blocks[:-1][is_pair] * self.blocks[1:][is_pair], 1
        )
        once = self.tail < self.head
        low = np.concatenate([self.tail[once], np.minimum(a, b)])
        high = np.concatenate([self.head[once], np.maximum(a, b)])
        saved = np.concatenate([self.weight[once], self.group_weight[group] * each])
        return _summed(low, high, saved, self.order)

    @cached_property
    def board(self) -> Board:
        """The same by vertex, for annealing."""
        by_vertex = np.argsort(self.member, kind="stable")
        group = self.group[by_vertex]
        is_clique = self.is_clique[group]
        blocks = self.blocks[by_vertex]
        vertices = np.arange(self.order + 1)
        near_begin, near_to = self._near()
        return Board(
            self.sizes,
            np.searchsorted(self.tail, vertices),
            self.head,
            self.weight,
            near_begin,
            near_to,
            np.searchsorted(self.member[by_vertex], vertices),
            group,
            np.where(is_clique, blocks, 1),
            self.group_weight[group] * np.where(is_clique, 2 * blocks, 1),
            is_clique,
        )

    def _near(self) -> tuple[Ints, Ints]:
        """By vertex: others whose domain is worth a try, as far as there are any: neighbours,
        and everyone in a small group, those next in a ring of its members in a large one."""
        begin = np.searchsorted(self.group, np.arange(len(self.group_weight) + 1))
        length = np.diff(begin)
        each = length[self.group]
        place = np.arange(len(self.group)) - begin[self.group]
        tails, heads = [self.tail], [self.head]
        for step in range(1, FEW):
            wide = (each <= FEW) & (step < each)
            if step == 1:
                wide |= each > FEW
            other = begin[self.group] + (place + step) % np.maximum(each, 1)
            tails.append(self.member[wide])
            heads.append(self.member[other[wide]])
            if step == 1:
                large = each > FEW
                tails.append(self.member[other[large]])
                heads.append(self.member[large])
        tail, head = np.concatenate(tails), np.concatenate(heads)
        order = np.argsort(tail, kind="stable")
        return np.searchsorted(tail[order], np.arange(self.order + 1)), head[order]

    def contracted(self, labels: Sequence[int] | Ints) -> FlatGraph:
        """Vertices with equal labels merged; labels are 0, 1, .. without holes."""
        label = np.asarray(labels, dtype=np.int64)
        count = int(label.max()) + 1
        if count == self.order and (label == np.arange(count)).all():
            return self
        sizes = np.zeros(count, dtype=np.int64)
        np.add.at(sizes, label, self.sizes)
        tail, head = label[self.tail], label[self.head]
        apart = tail != head
        links = _summed(tail[apart], head[apart], self.weight[apart], count)
        return FlatGraph(sizes, *links, *self._groups_of(label, count))

    def _groups_of(self, label: Ints, count: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Groups of merged vertices that are still apart, equal ones taken together."""
        group, member, blocks = _summed(self.group, label[self.member], self.blocks, count)
        begin = np.searchsorted(group, np.arange(len(self.group_weight) + 1)).tolist()
        number: dict[tuple[bytes, bytes, bool], int] = {}
        weights: list[int] = []
        kept: list[slice] = []
        for g, weight in enumerate(self.group_weight.tolist()):
            part = slice(begin[g], begin[g + 1])
            if begin[g + 1] - begin[g] < 2:
                continue
            kind = bool(self.is_clique[g])
            key = (member[part].tobytes(), blocks[part].tobytes(), kind)
            if number.setdefault(key, len(weights)) < len(weights):
                weights[number[key]] += weight
            else:
                weights.append(weight)
                kept.append(part)
        cliques = np.array([kind for _, _, kind in number], dtype=np.int64)
        return _of_groups([member[p] for p in kept], [blocks[p] for p in kept], weights, cliques)


def flat_graph(graph: PieceGraph) -> FlatGraph:
    tails = [v for v, links in enumerate(graph.links) for _ in links]
    heads = [other for links in graph.links for other in links]
    weights = [weight for links in graph.links for weight in links.values()]
    groups = graph.groups
    members = [np.array([v for v, _ in g.members], dtype=np.int64) for g in groups]
    blocks = [np.array([n for _, n in g.members], dtype=np.int64) for g in groups]
    cliques = np.array([g.is_clique for g in groups], dtype=np.int64)
    tail, head, weight = (np.array(part, dtype=np.int64) for part in (tails, heads, weights))
    return FlatGraph(
        np.array(graph.sizes, dtype=np.int64),
        *_summed(tail, head, weight, graph.order),
        *_of_groups(members, blocks, [g.weight for g in groups], cliques),
    )


def _of_groups(
    members: Sequence[Ints], blocks: Sequence[Ints], weights: Sequence[int], cliques: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    nothing = np.zeros(0, dtype=np.int64)
    return (
        np.repeat(np.arange(len(members)), [len(part) for part in members]),
        np.concatenate([nothing, *members]),
        np.concatenate([nothing, *blocks]),
        np.array(weights, dtype=np.int64),
        cliques,
    )


def _summed(tail: Ints, head: Ints, weight: Ints, order: int) -> tuple[Ints, Ints, Ints]:
    """Pairs sorted, equal ones with the sum of their weights."""
    key = tail * order + head
    by_key = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[by_key], prepend=-1))
    if not len(starts):
        return key, key, key
    first = key[by_key][starts]
    return first // order, first % order, np.add.reduceat(weight[by_key], starts)
