"""Layouts of runs: the blocks in one order, parted at the best places for all zones at once.

A tree of sweeps (`sweep`) parts an order at one place after the other, each where the least
is cut there. Where a cut is cheap at every fifth place and zones are nearly full, that takes
the last zones their cheap places. Zones in a given sequence are served by a dynamic program:
`most[n]`, the bytes that the first n blocks keep inside zones, zone by zone. What a run keeps
inside is known for every start and length, so the layout is the best of its kind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.block_graph import BlockGraph
from placement.kernels import Kernel, refill

NEVER = -(1 << 60)
# Of the tables of all sequences that are tried after the first: about a third of a second.
MOST_CELLS = 50_000_000


def best_runs(
    graph: BlockGraph, orders: Sequence[Ints], capacities: Sequence[int], tries: int, target: int
) -> Ints:
    """The best layout along one of the orders; ties to the first.

    The roomiest zones come first; where not all are alike, up to so many other sequences are
    tried on the best order, each made from the best one by an exchange of two zones: fewer
    where the tables are large. Ends at the cost `target`.
    """
    zones = [z for z, c in enumerate(capacities) if c]
    zones.sort(key=lambda z: (-capacities[z], z))
    longest = max(capacities)
    along = [Runs(graph, order, longest) for order in orders]
    layouts = [runs.layout(zones, capacities) for runs in along]
    costs = [graph.cost(layout) for layout in layouts]
    cost = min(costs)
    best, runs = layouts[costs.index(cost)], along[costs.index(cost)]
    rng = random.Random(f"runs {graph.blocks} {sorted(capacities)}")
    affordable = min(tries, MOST_CELLS // (graph.blocks * sum(capacities)))
    for _ in range(affordable if capacities[zones[-1]] < longest else 0):
        if cost <= target:
            break
        one, other = rng.randrange(len(zones)), rng.randrange(len(zones))
        tried = zones.copy()
        tried[one], tried[other] = tried[other], tried[one]
        layout = runs.layout(tried, capacities)
        found = graph.cost(layout)
        if found <= cost:
            best, cost, zones = layout, found, tried
    return best


class Runs:
    """Layouts of one order of blocks. Table: O(blocks x longest run)."""

    def __init__(self, graph: BlockGraph, order: Ints, longest: int) -> None:
        self._order = order
        self._longest = min(longest, graph.blocks)
        self._inside = self._kept(graph, np.argsort(order, kind="stable"))

    def _kept(self, graph: BlockGraph, place: Ints) -> Ints:
        """Bytes inside the run of length l from place p. Shape: (longest + 1, blocks + 1)."""
        low, high, weight = _pairs(graph, place)
        short = high - low < self._longest
        inside = np.zeros((graph.blocks + 1, self._longest + 1), dtype=np.int64)
        np.add.at(inside, (low[short], (high - low + 1)[short]), weight[short])
        inside = np.cumsum(inside, axis=1)
        for first in range(graph.blocks - 1, -1, -1):
            inside[first, 1:] += inside[first + 1, :-1]
        return np.ascontiguousarray(inside.T)

    def layout(self, zones: Sequence[int], capacities: Sequence[int]) -> Ints:
        """The zone of each block, zones in this sequence along the order; some may stay
        empty. Together they must hold all blocks."""
        blocks = len(self._order)
        most = np.full(blocks + 1, NEVER, dtype=np.int64)
        most[0] = 0
        lengths = np.zeros((len(zones), blocks + 1), dtype=np.int64)
        longest = np.array([min(capacities[zone], self._longest) for zone in zones])
        steps = int(longest.sum()) * blocks
        serve.run(steps, self._inside.ravel(), longest, most, most.copy(), lengths.ravel())
        layout = np.empty(blocks, dtype=np.int64)
        end = blocks
        for zone, length in zip(reversed(zones), lengths[::-1], strict=True):
            start = end - int(length[end])
            layout[self._order[start:end]] = zone
            end = start
        return layout


def _serve(inside: Ints, longest: Ints, most: Ints, best: Ints, lengths: Ints) -> None:
    """One zone after the other takes a run, of `longest` blocks at most: `most`, what the first
    n blocks keep inside, and in `lengths` the run that each zone ends with there."""
    ends = len(most)
    for zone in range(len(longest)):
        length = lengths[zone * ends : (zone + 1) * ends]
        for n in range(1, longest[zone] + 1):
            kept, to, run = inside[n * ends : (n + 1) * ends], best[n:], length[n:]
            for start in range(ends - n):
                total = most[start] + kept[start]
                if total > to[start]:
                    to[start] = total
                    run[start] = n
        refill(most, best)


serve = Kernel(_serve)


def _pairs(graph: BlockGraph, place: Ints) -> tuple[Ints, Ints, Ints]:
    """Edges as places; those of a group join members that are next to each other, for a
    group touches a run more for each such pair that is parted."""
    ends = place[graph.tail], place[graph.head]
    by_place = np.lexsort((place[graph.members], graph.group))
    at, group = place[graph.members][by_place], graph.group[by_place]
    is_pair = group[1:] == group[:-1]
    low = np.concatenate([np.minimum(*ends), at[:-1][is_pair]])
    high = np.concatenate([np.maximum(*ends), at[1:][is_pair]])
    weight = np.concatenate([graph.weight, graph.group_weight[group[1:][is_pair]]])
    return low, high, weight
