"""A graph of blocks along an order: what of the blocks behind matters to those to come.

Once the blocks up to some place are in or out of a part, that is which of those are in that have
edges to later blocks, and which groups that go on the part has touched: the *frontier*.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph

ENTER, TOUCH, LEAVE = 0, 1, 2
MOST_BITS = 18  # of a frontier


class Steps(NamedTuple):
    """What happens along an order: blocks `ENTER` a bit of the frontier, `TOUCH` the bit of a
    group, and either `LEAVE` it.

    Shapes: what, bit, other (a group's bit), weight (a group's, doubled), tie (what a block pays,
    if it is in, beside its edges), used (bits before the step)
    (steps,); begin (steps + 1,), of those that enter, where edges begin in at (bits) and paid
    (their weights).
    """

    what: Ints
    bit: Ints
    other: Ints
    weight: Ints
    tie: Ints
    used: Ints
    begin: Ints
    at: Ints
    paid: Ints


def paid_for(steps: Steps, step: int, state: int) -> tuple[int, int]:
    """What a block that enters pays for its edges where it is in, and where it is out; a part of
    kernels."""
    inside, outside = steps.tie[step], 0 * steps.tie[step]
    for e in range(steps.begin[step], steps.begin[step + 1]):
        if state >> steps.at[e] & 1:
            outside += steps.paid[e]
        else:
            inside += steps.paid[e]
    return inside, outside


class Walk:
    """Along an order of the blocks that are not `pinned`; those are all out of the part.

    `bits`: of the frontier. `states`: that it can have, one step after the other; of the groups in
    it, those that a block in it has touched tell nothing. `done`: for each block of the order,
    after how many steps it is done, and what blocks are in the frontier then.
    """

    def __init__(
        self, graph: Hypergraph, order: Sequence[int], pinned: Collection[int] = frozenset()
    ) -> None:
        """Ends where the frontier has more than `MOST_BITS`."""
        self.bits, self.states = 0, 0
        self.done: list[tuple[int, frozenset[int]]] = []
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._edges: list[list[tuple[int, int]]] = []
        self._bit: dict[tuple[bool, int], int] = {}
        self._spare: list[int] = []
        self._used = 0
        self._go(graph, [block for block in order if block not in pinned], pinned)

    @property
    def is_narrow(self) -> bool:
        return self.bits <= MOST_BITS

    @cached_property
    def steps(self) -> Steps:
        begin = np.cumsum([0, *map(len, self._edges)])
        edges = np.array([e for each in self._edges for e in each], dtype=np.int64).reshape(-1, 2)
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 6)
        what, bit, other, weight, tie, used = rows.T.copy()
        at, paid = edges.T.copy()
        return Steps(what, bit, other, weight, tie, used, begin, at, paid)

    def _go(self, graph: Hypergraph, order: Sequence[int], pinned: Collection[int]) -> None:
        near, tie = _neighbours(graph, pinned)
        groups: list[list[int]] = [[] for _ in range(graph.blocks)]
        for block, group in zip(graph.members.tolist(), graph.group.tolist(), strict=True):
            groups[block].append(group)
        to_come = np.bincount(graph.group, minlength=len(graph.group_weight)).tolist()
        weights = graph.group_weight.tolist()
        waiting, has_come = [len(each) for each in near], [False] * graph.blocks
        for block in order:
            has_come[block] = True
            self._add(ENTER, self._bit_of(False, block), tie=tie[block])
            known = [other for other in near[block] if has_come[other]]
            self._edges[-1] = [(self._bit_of(False, other), near[block][other]) for other in known]
            for group in groups[block]:
                here, there = self._bit_of(False, block), self._bit_of(True, group)
                self._add(TOUCH, here, there, 2 * weights[group])
                to_come[group] -= 1
                if not to_come[group]:
                    self._leave(True, group)
            for other in [*known, block]:
                waiting[other] -= 1 if other != block else len(known)
                if not waiting[other]:
                    self._leave(False, other)
            if not self.is_narrow:
                return
            blocks = frozenset(number for is_group, number in self._bit if not is_group)
            self.done.append((len(self._rows), blocks))

    def _add(self, what: int, bit: int, other: int = 0, weight: int = 0, tie: int = 0) -> None:
        blocks = sum(not is_group for is_group, _ in self._bit)
        self.states += (1 + len(self._bit) - blocks) << blocks
        self._rows.append((what, bit, other, weight, tie, self._used))
        self._edges.append([])
        if what == LEAVE:
            self._used &= ~(1 << bit)
        else:
            self._used |= 1 << (bit if what == ENTER else other)

    def _bit_of(self, is_group: bool, number: int) -> int:
        """Of a block or a group: the lowest that is free, if it has none."""
        if (is_group, number) not in self._bit:
            self._spare.sort(reverse=True)
            if not self._spare:
                self._spare.append(self.bits)
                self.bits += 1
            self._bit[is_group, number] = self._spare.pop()
        return self._bit[is_group, number]

    def _leave(self, is_group: bool, number: int) -> None:
        self._spare.append(self._bit.pop((is_group, number)))
        self._add(LEAVE, self._spare[-1])


def _neighbours(
    graph: Hypergraph, pinned: Collection[int]
) -> tuple[list[dict[int, int]], list[int]]:
    """The edges of each block that is not pinned to others, and what it has to the pinned."""
    near: list[dict[int, int]] = [{} for _ in range(graph.blocks)]
    tie = [0] * graph.blocks
    edges = zip(graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist(), strict=True)
    for a, b, weight in edges:
        if a in pinned or b in pinned:
            tie[a] += weight
            tie[b] += weight
        else:
            near[a][b] = near[b][a] = weight
    return near, tie
