"""A handful of blocks: every way to part them is tried.

What a layout cuts depends only on who is with whom, so set partitions are enough; parts
go to zones by size. Eight blocks have 4,140 partitions.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph

MOST_BLOCKS = 8


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


@lru_cache
def _partitions(blocks: int) -> tuple[Ints, Ints]:
    """Every set partition as labels in order of first occurrence, those before others whose
    first blocks stay together, and the sizes of its parts, the largest first. Shape of both:
    (many, blocks)."""
    grown: list[tuple[int, ...]] = [(0,)]
    for _ in range(blocks - 1):
        grown = [(*label, part) for label in grown for part in range(max(label) + 2)]
    labels = np.array(grown)
    sizes = np.stack([(labels == part).sum(axis=1) for part in range(blocks)], axis=1)
    return labels, -np.sort(-sizes, axis=1)
