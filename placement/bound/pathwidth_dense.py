"""The cheapest part of every size of a graph that is narrow in some order.

As `passage`, of all states of a frontier and all sizes: where none is left out a table in the order
of the states is gone through five times as fast as one of rows that come and go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.bound.frontier import ENTER, LEAVE, TOUCH, Steps, Walk, paid_for
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.grid.isoperimetry import MUCH
from placement.kernels import Kernel

MOST_ENTRIES = 1 << 23  # of the table: 64 MB


def least_parts(
    graph: Hypergraph, orders: Sequence[Ints], most: int, steps: int
) -> tuple[Ints, int] | None:
    """What a part of n = 0 .. most blocks pays at least, doubled over all parts, and what these
    pay too much together: as `tiny.least_of_parts`.

    `orders`: of the blocks, the one with the narrowest frontier is gone along. None if that takes
    more than so many `steps`. Shape: (most + 1,).
    """
    walks = [walk for order in orders if (walk := Walk(graph, order.tolist())).is_narrow]
    if not walks:
        return None
    walk = min(walks, key=lambda walk: walk.bits)
    # Without groups the rest of the gang pays the same.
    half = most if len(graph.group) else min(most, graph.blocks // 2)
    entries = (half + 1) << walk.bits
    work = entries * walk.done[-1][0]
    if work > steps or entries > MOST_ENTRIES:
        return None
    cost: Ints = np.empty(entries, dtype=np.int64)
    _least.run(work, walk.steps(), half + 1, 1 << walk.bits, cost)
    size = np.arange(most + 1)
    least = np.minimum(cost[np.where(size > half, graph.blocks - size, size)], MUCH)
    return least, 2 * int(graph.group_weight.sum())


def _go(steps: Steps, sizes: int, states: int, cost: Ints) -> None:
    """`cost`: of each state of the frontier, by size; in the end, of the empty one."""
    for k in range(states * sizes):
        cost[k] = MUCH
    cost[0] = 0
    for step in range(len(steps.what)):
        mask = 1 << steps.bit[step]
        group = 1 << steps.other[step]
        for state in range(states):
            if state & ~steps.used[step]:
                continue
            here = state * sizes
            if steps.what[step] == ENTER and not state & mask:
                inside, outside = paid_for(steps, step, state)
                there = (state | mask) * sizes
                cost[there] = MUCH
                for n in range(1, sizes):
                    cost[there + n] = cost[here + n - 1] + inside
                for n in range(sizes):
                    cost[here + n] += outside
            elif steps.what[step] == TOUCH and state & mask and not state & group:
                there = (state | group) * sizes
                for n in range(sizes):
                    touched = cost[here + n] + steps.weight[step]
                    if touched < cost[there + n]:
                        cost[there + n] = touched
                    cost[here + n] = MUCH
            elif steps.what[step] == LEAVE and not state & mask:
                there = (state | mask) * sizes
                for n in range(sizes):
                    if cost[there + n] < cost[here + n]:
                        cost[here + n] = cost[there + n]
                    cost[there + n] = MUCH


_least = Kernel(_go, paid_for)
