"""The cheapest part of every size, block by block, of a graph that is narrow in some order.

Once the blocks up to some place of the order are in or out of a part, what matters to the rest is
which of those are in that have edges to later blocks, and which groups that go on the part has
touched: the *frontier*. So it is enough to know the cheapest part of each size for every state of
the frontier, and both grow and shrink with it: 2^frontier x sizes numbers, gone through once for
each block, each group of it, and each that leaves the frontier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from placement.blockgraph import BlockGraph
from placement.compiled import Kernel
from placement.fabric import Ints
from placement.steps import MUCH

ENTER, TOUCH, LEAVE = 0, 1, 2
MOST_BITS = 18  # of a frontier
MOST_ENTRIES = 1 << 23  # of the table: 64 MB


@dataclass(slots=True)
class _Walk:
    """What happens along an order: blocks `ENTER` a bit of the frontier, `TOUCH` the bit of a
    group, and either `LEAVE` it. `steps`: (what, bit, the group's bit, the group's weight); of
    those that enter, `edges` to bits, and their weights."""

    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    edges: list[list[tuple[int, int]]] = field(default_factory=list)
    bits: int = 0
    _bit: dict[tuple[bool, int], int] = field(default_factory=dict)
    _spare: list[int] = field(default_factory=list)

    def add(self, what: int, bit: int, other: int = 0, weight: int = 0) -> None:
        self.steps.append((what, bit, other, weight))
        self.edges.append([])

    def bit(self, is_group: bool, number: int) -> int:
        """Of a block or a group: the lowest that is free, if it has none."""
        if (is_group, number) not in self._bit:
            self._spare.sort(reverse=True)
            if not self._spare:
                self._spare.append(self.bits)
                self.bits += 1
            self._bit[is_group, number] = self._spare.pop()
        return self._bit[is_group, number]

    def leave(self, is_group: bool, number: int) -> None:
        self._spare.append(self._bit.pop((is_group, number)))
        self.add(LEAVE, self._spare[-1])


def _walk(graph: BlockGraph, order: Sequence[int]) -> _Walk | None:
    """Along this order; None where the frontier has more than `MOST_BITS`."""
    near: list[dict[int, int]] = [{} for _ in range(graph.blocks)]
    for a, b, weight in zip(
        graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist(), strict=True
    ):
        near[a][b] = near[b][a] = weight
    groups: list[list[int]] = [[] for _ in range(graph.blocks)]
    for block, group in zip(graph.members.tolist(), graph.group.tolist(), strict=True):
        groups[block].append(group)
    to_come = np.bincount(graph.group, minlength=len(graph.group_weight)).tolist()
    weights = graph.group_weight.tolist()
    waiting = [len(each) for each in near]
    walk, has_come = _Walk(), [False] * graph.blocks
    for block in order:
        has_come[block] = True
        walk.add(ENTER, walk.bit(False, block))
        known = [other for other in near[block] if has_come[other]]
        walk.edges[-1] = [(walk.bit(False, other), near[block][other]) for other in known]
        for group in groups[block]:
            walk.add(TOUCH, walk.bit(False, block), walk.bit(True, group), 2 * weights[group])
            to_come[group] -= 1
            if not to_come[group]:
                walk.leave(True, group)
        for other in [*known, block]:
            waiting[other] -= 1 if other != block else len(known)
            if not waiting[other]:
                walk.leave(False, other)
        if walk.bits > MOST_BITS:
            return None
    return walk


def least_parts(
    graph: BlockGraph, orders: Sequence[Ints], most: int, steps: int
) -> tuple[Ints, int] | None:
    """What a part of n = 0 .. most blocks pays at least, doubled over all parts, and what these
    pay too much together: as `tiny.least_of_parts`.

    `orders`: of the blocks, the one with the narrowest frontier is gone along. None if that takes
    more than so many `steps`. Shape: (most + 1,).
    """
    walks = [walk for order in orders if (walk := _walk(graph, order.tolist())) is not None]
    if not walks:
        return None
    walk = min(walks, key=lambda walk: walk.bits)
    # Without groups the rest of the gang pays the same.
    half = most if len(graph.group) else min(most, graph.blocks // 2)
    entries = (half + 1) << walk.bits
    work = entries * len(walk.steps)
    if work > steps or entries > MOST_ENTRIES:
        return None
    begin = np.cumsum([0, *map(len, walk.edges)])
    edges = np.array([e for each in walk.edges for e in each], dtype=np.int64).reshape(-1, 2)
    what, bit, other, weight = np.array(walk.steps, dtype=np.int64).T.copy()
    cost: Ints = np.empty(entries, dtype=np.int64)
    at, paid = edges.T.copy()
    _least.run(work, what, bit, other, weight, begin, at, paid, half + 1, 1 << walk.bits, cost)
    size = np.arange(most + 1)
    least = np.minimum(cost[np.where(size > half, graph.blocks - size, size)], MUCH)
    return least, 2 * int(graph.group_weight.sum())


def _go(
    what: Ints,
    bit: Ints,
    other: Ints,
    weight: Ints,
    begin: Ints,
    at: Ints,
    paid: Ints,
    sizes: int,
    states: int,
    cost: Ints,
) -> None:
    """`cost`: of each state of the frontier, by size; in the end, of the empty one."""
    for k in range(states * sizes):
        cost[k] = MUCH
    cost[0] = 0
    in_use = 0
    for step in range(len(what)):
        mask = 1 << bit[step]
        group = 1 << other[step]
        if what[step] == ENTER:
            in_use |= mask
        elif what[step] == TOUCH:
            in_use |= group
        for state in range(states):
            if state & ~in_use:
                continue
            here = state * sizes
            if what[step] == ENTER and not state & mask:
                inside = outside = 0
                for e in range(begin[step], begin[step + 1]):
                    if state >> at[e] & 1:
                        outside += paid[e]
                    else:
                        inside += paid[e]
                there = (state | mask) * sizes
                cost[there] = MUCH
                for n in range(1, sizes):
                    cost[there + n] = cost[here + n - 1] + inside
                for n in range(sizes):
                    cost[here + n] += outside
            elif what[step] == TOUCH and state & mask and not state & group:
                there = (state | group) * sizes
                for n in range(sizes):
                    touched = cost[here + n] + weight[step]
                    if touched < cost[there + n]:
                        cost[there + n] = touched
                    cost[here + n] = MUCH
            elif what[step] == LEAVE and not state & mask:
                there = (state | mask) * sizes
                for n in range(sizes):
                    if cost[there + n] < cost[here + n]:
                        cost[here + n] = cost[there + n]
                    cost[there + n] = MUCH
        if what[step] == LEAVE:
            in_use &= ~mask


_least = Kernel(_go)
