"""What small domains cut at least: a block keeps no more neighbours than there is room beside it.

In a rack of two hosts a block is together with one other, at best the one it sends most to.
Summed over all blocks that bounds what any packing keeps whole, in a millisecond, and where
racks are small it is often what the first walk through the gang reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from placement.fabric import Ints
from placement.pieces import PieceGraph

MOST_ROOM = 4  # of a domain; beyond, a block keeps all its neighbours
MOST_PAIRS = 40_000  # in groups: more take longer than the search that they may spare


def least_cut(graph: PieceGraph, room: Sequence[int]) -> int:
    """A cut that no packing of single blocks onto domains of this room beats; 0 where the
    room is too large to say."""
    largest = max(room)
    if largest > MOST_ROOM or sum(len(g.members) ** 2 for g in graph.groups) > MOST_PAIRS:
        return 0
    apart = graph.cost(range(graph.order))
    if largest == 1:
        return apart
    dearest = _dearest(graph, largest - 1)
    kept = 0
    for others, values in enumerate(dearest.T, 1):
        blocks = min(graph.order, sum(n for n in room if n > others))
        kept += int(np.sort(values)[graph.order - blocks :].sum())
    return max(0, apart - kept // 2)


def _dearest(graph: PieceGraph, most: int) -> Ints:
    """What it saves each block to be with others, the dearest first. Shape: (blocks, most).

    Of members of a hierarchical group each pair counts, so that three save no less here
    than they do.
    """
    saved = [dict(links) for links in graph.links]
    for group in graph.groups:
        weight = 2 * group.weight if group.is_clique else group.weight
        for (a, _), (b, _) in combinations(group.members, 2):
            saved[a][b] = saved[a].get(b, 0) + weight
            saved[b][a] = saved[b].get(a, 0) + weight
    rows = [sorted(near.values(), reverse=True)[:most] for near in saved]
    return np.array([row + [0] * (most - len(row)) for row in rows], dtype=np.int64)
