"""Kinds of blocks: those that a turn of the gang carries into each other.

A turn of the replicas may carry blocks into blocks and edges into edges, where hosts end inside
stages as well. There are as many blocks of each kind as *copies* of the rest, and edges that the
turn carries into each other join every block of one kind to one of another. Two such sets between
the same kinds, or one within a kind, may form a *ring* through all their blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from placement.blockgraph import BlockGraph
from placement.fabric import Ints


@dataclass(frozen=True, slots=True)
class Kinds:
    """Kinds of blocks, and what they pay for each copy.

    `near`: for two kinds, what is paid where a level parts them, rings aside, and the rings
    through both. `ring`: what each of those pays that is cut, twice, at least; `own`: what a part
    pays for a kind of which it holds some but not all, beside; `rings`: through each kind, at
    least.
    """

    kinds: int
    copies: int
    near: dict[tuple[int, int], tuple[int, int]]
    ring: int
    own: int
    rings: int

    def order(self, start: int) -> list[int]:
        """Of the kinds, so that few of those behind have neighbours to come: what leaves the fewest
        comes next, and beside the one that waits longest."""
        near: list[set[int]] = [set() for _ in range(self.kinds)]
        for a, b in self.near:
            near[a].add(b)
            near[b].add(a)
        order, open_, to_come = [start], [start], set(range(self.kinds)) - {start}
        while to_come:
            beside = {b: at for at, a in reversed([*enumerate(open_)]) for b in near[a] & to_come}
            left = {
                kind: [a for a in [*open_, kind] if near[a] & to_come - {kind}]
                for kind in beside or to_come
            }
            chosen = min(left, key=lambda kind: (len(left[kind]), beside.get(kind, 0), kind))
            open_ = left[chosen]
            to_come.remove(chosen)
            order.append(chosen)
        return order


def kinds_of(graph: BlockGraph, orders: Sequence[Ints]) -> Kinds | None:
    """Blocks at places of an order that are whole periods apart are of one kind: of the order that
    has most of each. None if none has more than one, or no ring goes through some kind."""
    if len(graph.group) or not len(graph.weight):
        return None
    periods = [graph.period(order) for order in orders]
    best = int(np.argmin(periods))
    if periods[best] == graph.blocks:
        return None
    kinds = _kinds(graph, orders[best], periods[best])
    return kinds if kinds.own or kinds.rings else None


def _kinds(graph: BlockGraph, order: Ints, period: int) -> Kinds:
    copies = graph.blocks // period
    sets = _edge_sets(graph, order, period)
    own = [0] * period
    between: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (a, b, turn), weight in sets.items():
        if a != b:
            between.setdefault((a, b), []).append((weight, turn))
        elif gcd(turn, copies) == 1:
            own[a] += weight * (2 if copies > 2 else 1)
    ring, rings = _rings(between, copies)
    near = {
        both: (sum(w for w, _ in between[both]) - 2 * ring * rings[both], rings[both])
        for both in between
    }
    through = [0] * period
    for both, many in rings.items():
        for kind in both:
            through[kind] += many
    return Kinds(period, copies, near, ring, min(own), min(through))


def _edge_sets(graph: BlockGraph, order: Ints, period: int) -> dict[tuple[int, int, int], int]:
    """The weight of each edge of those that are carried into each other, by the kinds that they
    join, a <= b, and the copies from a to b."""
    copies = graph.blocks // period
    place = np.empty(graph.blocks, dtype=np.int64)
    place[order] = np.arange(graph.blocks)
    is_paid = graph.weight > 0
    a, b = place[graph.tail[is_paid]], place[graph.head[is_paid]]
    is_swapped = a % period > b % period
    a, b = np.where(is_swapped, b, a), np.where(is_swapped, a, b)
    turns = (b // period - a // period) % copies
    # Inside a kind, an edge is met from both of its ends.
    turns = np.where(a % period == b % period, np.minimum(turns, copies - turns), turns)
    keys = zip((a % period).tolist(), (b % period).tolist(), turns.tolist(), strict=True)
    return dict(zip(keys, graph.weight[is_paid].tolist(), strict=True))


def _rings(
    between: dict[tuple[int, int], list[tuple[int, int]]], copies: int
) -> tuple[int, dict[tuple[int, int], int]]:
    """What the cheapest ring through two kinds pays that is cut, and how many go through any
    two: two sets of edges form one if it comes round all copies."""
    weights: dict[tuple[int, int], list[int]] = {}
    for both, sets in between.items():
        dearest = sorted(sets, reverse=True)
        weights[both] = [
            min(w, v)
            for (w, s), (v, t) in zip(dearest[::2], dearest[1::2], strict=False)
            if gcd(s - t, copies) == 1
        ]
    ring = min((w for each in weights.values() for w in each), default=0)
    return ring, {both: len(each) for both, each in weights.items()}
