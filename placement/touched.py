"""Parts of a gang with groups in a row, by the groups they touch.

Where stages are groups, the frontier along the replicas holds a bit for each of them. But a part
falls into pieces that touch neighbouring groups each, and pays for all of them what the pieces pay;
what a piece pays for groups is known beforehand, so the frontier holds blocks of its few groups and
nothing else. Pieces along a row that are alike are told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placement.blockgraph import BlockGraph
from placement.fabric import Ints
from placement.frontier import Walk
from placement.hostset import Mask
from placement.priced import Course


def courses_by_touched(
    graph: BlockGraph, kind: Ints, orders: Sequence[Ints], most: int
) -> tuple[list[Course], Ints] | None:
    """Of pieces, and the order that the first of them, which may touch all groups, are gone along.
    None where groups are not in a row, or where frontiers have more than so many
    states in all."""
    row = _Row.of(graph)
    if row is None:
        return None
    found: dict[bytes, Course] = {}
    states, along = 0, orders[0]
    for groups in range(row.groups, 0, -1):
        for first in range(row.groups - groups + 1):
            inside, paid = row.inside(first, groups), row.paid(first, groups)
            key = row.signature(inside, kind, paid)
            if key in found or not inside.any():
                continue
            pinned = frozenset(np.flatnonzero(~inside).tolist())
            walks = [(Walk(row.plain, order.tolist(), pinned), order) for order in orders]
            narrow = [each for each in walks if each[0].is_narrow]
            if not narrow:
                return None
            walk, order = min(narrow, key=lambda each: each[0].states)
            along = along if found else order
            found[key] = Course(walk, paid=paid)
            states += walk.states
            if states > most:
                return None
    return list(found.values()), along


class _Row:
    """Groups that are neighbours in their order only."""

    def __init__(self, graph: BlockGraph, low: Ints, high: Ints) -> None:
        """`low`, `high`: the first and the last group of each block."""
        nothing = np.zeros(0, dtype=np.int64)
        self.groups = len(graph.group_weight)
        self.plain = replace(graph, members=nothing, group=nothing, group_weight=nothing)
        self._low, self._high, self._weight = low, high, graph.group_weight

    @classmethod
    def of(cls, graph: BlockGraph) -> _Row | None:
        """None where some are neighbours that do not follow each other, or blocks have no group."""
        low = np.full(graph.blocks, len(graph.group_weight))
        high = np.full(graph.blocks, -1)
        np.minimum.at(low, graph.members, graph.group)
        np.maximum.at(high, graph.members, graph.group)
        if (high < 0).any() or (high - low > 1).any():
            return None
        is_paid = graph.weight > 0
        a, b = graph.tail[is_paid], graph.head[is_paid]
        apart = np.maximum(low[a] - high[b], low[b] - high[a])
        return None if (apart > 1).any() else cls(graph, low, high)

    def inside(self, first: int, groups: int) -> Mask:
        """Blocks that touch none but these."""
        return (self._low >= first) & (self._high < first + groups)

    def paid(self, first: int, groups: int) -> int:
        return 2 * int(self._weight[first : first + groups].sum())

    def signature(self, inside: Mask, kind: Ints, paid: int) -> bytes:
        """The same of pieces that are alike, block by block."""
        graph = self.plain
        number = np.cumsum(inside) - 1
        both = inside[graph.tail] & inside[graph.head]
        tie = np.zeros(graph.blocks, dtype=np.int64)
        for here, there in ((graph.tail, graph.head), (graph.head, graph.tail)):
            out = inside[here] & ~inside[there]
            np.add.at(tie, here[out], graph.weight[out])
        edges = number[graph.tail[both]], number[graph.head[both]], graph.weight[both]
        return b"|".join(
            each.tobytes() for each in (*edges, tie[inside], kind[inside], np.array([paid]))
        )
