"""Every part of a small graph: what `placement.bound.pathwidth` is checked by."""

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph


def least_of_parts(graph: Hypergraph) -> tuple[Ints, int]:
    """What a zone with n = 0 .. all blocks pays at least, doubled, and what all zones
    together pay too much: 2 cut >= sum over zones of least[n] - offset.

    A zone pays each of its cut edges, and twice the weight of each group that it touches.
    For up to some 16 blocks. Shape: (blocks + 1,).
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
