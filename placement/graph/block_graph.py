"""The job as an explicit graph: blocks, the bytes between them, the groups they share.

For jobs whose blocks form no grid, and wherever single blocks are moved. Rings, chains
and all-to-all groups are edges between blocks; a hierarchical collective is a group that
costs its weight for each domain it touches beyond the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from placement.fabric.tree import Ints
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic

MOST_LINKS = 400_000  # edges between ranks; beyond that a graph costs more than it finds


@dataclass(frozen=True, slots=True, eq=False)
class BlockGraph:
    """Edges (tail < head, each pair once) and groups, weights in units of 1/`scale` bytes.

    Shapes: tail, head, weight (edges,); members (memberships,), sorted by group;
    group (memberships,), the group of each; group_weight (groups,).
    """

    blocks: int
    scale: int
    tail: Ints
    head: Ints
    weight: Ints
    members: Ints
    group: Ints
    group_weight: Ints

    def cost(self, layout: Ints) -> int:
        """What a layout cuts. `layout`: the zone of each block."""
        apart = layout[self.tail] != layout[self.head]
        total = int(self.weight[apart].sum())
        if len(self.group_weight):
            zones = int(layout.max()) + 1
            meets = np.bincount(
                self.group * zones + layout[self.members], minlength=len(self.group_weight) * zones
            )
            touched = np.count_nonzero(meets.reshape(-1, zones), axis=1)
            total += int((self.group_weight * (touched - 1)).sum())
        return total

    def paid_by_zone(self, layout: Ints) -> Ints:
        """What the edges add up to that each zone cuts; groups aside. Shape: (zones,)."""
        apart = layout[self.tail] != layout[self.head]
        paid = np.zeros(int(layout.max()) + 1, dtype=np.int64)
        for ends in (self.tail, self.head):
            np.add.at(paid, layout[ends[apart]], self.weight[apart])
        return paid

    def period(self, order: Ints) -> int:
        """After how many blocks of an order that closes the graph comes again."""
        place = np.empty(self.blocks, dtype=np.int64)
        place[order] = np.arange(self.blocks)
        as_it_is = self._edges(self.tail, self.head)
        for by in range(1, self.blocks):
            if self.blocks % by == 0:
                turned = order[(place + by) % self.blocks]
                if np.array_equal(as_it_is, self._edges(turned[self.tail], turned[self.head])):
                    return by
        return self.blocks

    def _edges(self, tail: Ints, head: Ints) -> Ints:
        """Sorted. Shape: (2, edges), of which the first row tells both ends."""
        ends = np.minimum(tail, head) * self.blocks + np.maximum(tail, head)
        by_ends = np.argsort(ends)
        return np.stack([ends[by_ends], self.weight[by_ends]])


def block_graph(request: Request, gpus_per_host: int) -> BlockGraph | None:
    """The graph of a request; None when it has too many edges."""
    world = request.parallelism.world_size
    axes = axis_traffic(request)
    if sum(world * _steps(t) for t in axes) > MOST_LINKS:
        return None
    hierarchical = [t for t in axes if t.pattern is Pattern.HIERARCHICAL]
    scale = lcm(*(t.size - 1 for t in hierarchical))
    block = np.arange(world) // gpus_per_host
    tail, head, weight = _edges([t for t in axes if t not in hierarchical], block, scale)
    members, group, group_weight = _groups(hierarchical, block, scale)
    return BlockGraph(
        world // gpus_per_host, scale, tail, head, weight, members, group, group_weight
    )


def _steps(traffic: AxisTraffic) -> int:
    return traffic.size // 2 if traffic.pattern is Pattern.ALL_TO_ALL else 1


def _edges(axes: list[AxisTraffic], block: Ints, scale: int) -> tuple[Ints, Ints, Ints]:
    """Rank edges, summed over the ranks of a pair of blocks."""
    blocks = int(block[-1]) + 1
    keys, weights = [], []
    for t in axes:
        for step in range(1, _steps(t) + 1):
            here, there, each = _ranks(t, step, len(block))
            a, b = block[here], block[there]
            apart = a != b
            keys.append((np.minimum(a, b) * blocks + np.maximum(a, b))[apart])
            weights.append(each[apart] * scale)
    if not keys:
        return (np.zeros(0, dtype=np.int64),) * 3
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.zeros(len(unique), dtype=np.int64)
    np.add.at(total, inverse, np.concatenate(weights))
    return unique // blocks, unique % blocks, total


def _ranks(traffic: AxisTraffic, step: int, world: int) -> tuple[Ints, Ints, Ints]:
    """Ranks `step` apart on one axis, and the bytes between them both ways."""
    n, stride, w = traffic.size, traffic.stride, traffic.edge_bytes
    rank = np.arange(world)
    index = rank // stride % n
    there = rank + ((index + step) % n - index) * stride
    match traffic.pattern:
        case Pattern.CHAIN:
            each = np.where(index == n - 1, traffic.wrap_bytes, w)
        case Pattern.ALL_TO_ALL:
            # Both ways; half way round a pair of ranks is met from either side.
            each = np.full(world, w if 2 * step == n else 2 * w)
        case _:
            each = np.full(world, w)
    return rank, there, each


def _groups(axes: list[AxisTraffic], block: Ints, scale: int) -> tuple[Ints, Ints, Ints]:
    """Groups of blocks, equal ones taken together."""
    members: list[Ints] = []
    groups: list[Ints] = []
    weights: list[Ints] = []
    made = 0
    for t in axes:
        ranks = np.arange(len(block)).reshape(-1, t.size, t.stride)
        lines = block[np.moveaxis(ranks, 1, -1).reshape(-1, t.size)]
        unique, count = np.unique(lines, axis=0, return_counts=True)
        members.append(unique.ravel())
        groups.append(made + np.repeat(np.arange(len(unique)), t.size))
        weights.append(count * (t.edge_bytes * t.size * scale // (t.size - 1)))
        made += len(unique)
    nothing = np.zeros(0, dtype=np.int64)
    return tuple(np.concatenate([nothing, *parts]) for parts in (members, groups, weights))  # type: ignore[return-value]
