"""A handful of blocks: every way to part them is tried, or every part.

What a layout cuts depends only on who is with whom, so set partitions are enough; parts
go to zones by size. Eight blocks have 4,140 partitions. Sixteen have too many, but only
65,536 parts: what a part of n blocks pays at least then bounds every layout.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph

MOST_BLOCKS = 8
MOST_IN_PARTS = 16


def best_partition(graph: Hypergraph, capacities: Sequence[int]) -> Ints:
    """The zone of each block of a layout that cuts least. For at most `MOST_BLOCKS`.

    The zones must hold the blocks. Order: the first partition on a tie, larger parts in
    larger zones, by number.
    """
    graph = graph.pairwise()
    labels, sizes = _partitions(graph.blocks)
    zones = sorted(range(len(capacities)), key=lambda z: (-capacities[z], z))[: graph.blocks]
    room = np.zeros(graph.blocks, dtype=np.int64)
    room[: len(zones)] = [capacities[z] for z in zones]
    labels = labels[(sizes <= room).all(axis=1)]
    best = labels[np.argmin(_costs(graph, labels))]
    by_size = sorted(set(best.tolist()), key=lambda part: (-int((best == part).sum()), part))
    zone = dict(zip(by_size, zones, strict=False))
    return np.array([zone[part] for part in best.tolist()], dtype=np.int64)


def _costs(graph: Hypergraph, labels: Ints) -> Ints:
    """What each partition cuts. Shape: (partitions,)."""
    cost = (labels[:, graph.tail] != labels[:, graph.head]) @ graph.weight
    for group, weight in enumerate(graph.group_weight.tolist()):
        inside = labels[:, graph.members[graph.group == group]]
        touched = sum((inside == part).any(axis=1) for part in range(graph.blocks))
        cost = cost + weight * (touched - 1)
    return np.asarray(cost)


def least_of_parts(graph: Hypergraph) -> tuple[Ints, int]:
    """What a zone with n = 0 .. all blocks pays at least, doubled, and what all zones
    together pay too much: 2 cut >= sum over zones of least[n] - offset.

    A zone pays each of its cut edges, and twice the weight of each group that it touches.
    For at most `MOST_IN_PARTS` blocks. Shape: (blocks + 1,).
    """
    graph = graph.pairwise()
    near = np.zeros((graph.blocks, graph.blocks), dtype=np.int64)
    np.add.at(near, (graph.tail, graph.head), graph.weight)
    near += near.T
    paid = np.zeros(1, dtype=np.int64)
    for block, weights in enumerate(near):
        saved = np.zeros(1, dtype=np.int64)  # twice what goes to blocks of the part
        for weight in weights[:block].tolist():
            saved = np.concatenate([saved, saved + 2 * weight])
        paid = np.concatenate([paid, paid + int(weights.sum()) - saved])
    every = np.arange(1 << graph.blocks)
    for group, weight in enumerate(graph.group_weight):
        members = np.bitwise_or.reduce(1 << graph.members[graph.group == group])
        paid += 2 * weight * (every & members != 0)
    size = np.bitwise_count(every)
    least = np.array([paid[size == n].min() for n in range(graph.blocks + 1)])
    return least, 2 * int(graph.group_weight.sum())


@lru_cache
def _partitions(blocks: int) -> tuple[Ints, Ints]:
    """Every set partition as labels in order of first occurrence, those before others whose
    first blocks stay together, and the sizes of its parts, the largest first. Shape of both:
    (many, blocks)."""
    labels = np.zeros((1, 1), dtype=np.int64)
    for _ in range(blocks - 1):
        highest = labels.max(axis=1)
        grown = [
            np.column_stack(
                [labels[highest >= part - 1], np.full((highest >= part - 1).sum(), part)]
            )
            for part in range(int(highest.max()) + 2)
        ]
        labels = np.concatenate(grown)
    labels = labels[np.lexsort(labels.T[::-1])]
    sizes = np.stack([(labels == part).sum(axis=1) for part in range(blocks)], axis=1)
    return labels, -np.sort(-sizes, axis=1)
