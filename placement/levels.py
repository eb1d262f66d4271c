"""What parts of every size cut at least of a gang that a turn carries into itself, however wide.

A turn of the replicas may carry blocks into blocks and edges into edges, where hosts end inside
stages as well. Blocks that it carries into each other are of one *kind*, of which there are as many
as *copies* of the rest; and all that is kept of a part here is how many blocks it holds of each.
Edges that the turn carries into each other join every block of one kind to one of another, so a
part cuts as many as its counts of the two differ, at least. Two such sets between the same kinds,
or one within a kind, may form a *ring* through all their blocks: of that a part cuts two edges
unless it holds all or nothing.

The kinds of which a part holds at least 1, 2, .. copies are its *levels*, each within the one
before. Counts differ by the number of levels that part two kinds; so levels pay one by one for the
kinds they part. What is left are rings that no level parts. Where one level goes over into a
smaller one, that is the rings inside the kinds between both. If each of d kinds lies on r rings,
and they part e rings from others, (rd - e) / 2 are inside; and what they part is parted by one of
the levels. So it is enough to know what a level of every size pays that parts so many rings, which
`_parted` tells along a frontier of kinds, and to try all chains of levels (`_chained`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from placement.blockgraph import BlockGraph
from placement.compiled import Kernel
from placement.fabric import Ints
from placement.frontier import ENTER, Steps, Walk
from placement.steps import MUCH

MOST_ENTRIES = 1 << 24  # of a table: 128 MB
STARTS = 4  # of orders of the kinds


@dataclass(frozen=True, slots=True)
class _Kinds:
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


class _Levels(NamedTuple):
    """By size, the rings they part, and what each pays. Shape of all: (levels,)."""

    size: Ints
    parts: Ints
    cost: Ints


def least_by_levels(graph: BlockGraph, orders: Sequence[Ints], most: int, work: int) -> Ints | None:
    """What a part of n = 0 .. most blocks pays at least.

    `orders`: of the blocks, of which one may come again after a period. None if none does, if no
    ring goes through some kind, and if it takes more `work`. Shape: (most + 1,).
    """
    if len(graph.group) or not len(graph.weight):
        return None
    periods = [graph.period(order) for order in orders]
    best = int(np.argmin(periods))
    if periods[best] == graph.blocks:
        return None
    kinds = _kinds(graph, orders[best], periods[best])
    if not kinds.own and not kinds.rings:
        return None
    levels = _levels(kinds, work)
    # The rest of the gang pays the same.
    half = min(most, graph.blocks // 2)
    cost = None if levels is None else _chains(kinds, levels, half, work)
    size = np.arange(most + 1)
    return None if cost is None else cost[np.where(size > half, graph.blocks - size, size)]


def _kinds(graph: BlockGraph, order: Ints, period: int) -> _Kinds:
    """Blocks at places of an order that are whole periods apart are of one kind."""
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
    return _Kinds(period, copies, near, ring, min(own), min(through))


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


def _order(kinds: _Kinds, start: int) -> list[int]:
    """Of the kinds, so that few of those behind have neighbours to come: what leaves the fewest
    comes next, and beside the one that waits longest."""
    near: list[set[int]] = [set() for _ in range(kinds.kinds)]
    for a, b in kinds.near:
        near[a].add(b)
        near[b].add(a)
    order, open_, to_come = [start], [start], set(range(kinds.kinds)) - {start}
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


def _levels(kinds: _Kinds, work: int) -> _Levels | None:
    """Those of every size that pay less, rings aside, than any that parts fewer rings."""
    pairs = sorted(kinds.near)
    tail, head = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    paid, rings = np.array([kinds.near[both] for both in pairs], dtype=np.int64).reshape(-1, 2).T
    nothing = np.zeros(0, dtype=np.int64)
    numbers = np.arange(len(pairs))  # for weights, of which there are two
    graph = BlockGraph(kinds.kinds, 1, tail, head, numbers, nothing, nothing, nothing)
    starts = range(0, kinds.kinds, -(-kinds.kinds // STARTS))
    walk = min((Walk(graph, _order(kinds, at)) for at in starts), key=lambda walk: walk.bits)
    most = int(rings.sum()) + 1
    each = (kinds.kinds + 1) * most
    entries = each << walk.bits
    steps = 2 * kinds.kinds * entries
    if not walk.is_narrow or entries > MOST_ENTRIES or steps > work:
        return None
    along = walk.steps()
    cost: Ints = np.empty(entries, dtype=np.int64)
    alive = np.zeros(1 << walk.bits, dtype=np.int64)
    _parted.run(steps, along, paid[along.paid], rings[along.paid], most, each, alive, cost)
    table = np.minimum(cost[:each], MUCH).reshape(-1, most)
    before = np.minimum.accumulate(table, axis=1)[:, :-1]
    is_less = np.column_stack([table[:, 0] < MUCH, table[:, 1:] < before])
    size, parts = np.nonzero(is_less)
    return _Levels(size, parts, table[size, parts] + 2 * kinds.ring * parts)


def _chains(kinds: _Kinds, levels: _Levels, most: int, work: int) -> Ints | None:
    """What the levels of a part of n = 0 .. most blocks pay at least. Shape: (most + 1,)."""
    many, each = len(levels.size), (kinds.copies + 1) * (most + 1)
    steps = many * many * each // 4
    if many * each > MOST_ENTRIES or steps > work:
        return None
    least = np.full(most + 1, MUCH)
    table = np.empty(many * each, dtype=np.int64)
    dear = kinds.ring * kinds.rings
    _chained.run(steps, levels, kinds.own, kinds.ring, dear, kinds.copies, least, table)
    return least


def _go(
    steps: Steps, paid: Ints, rings: Ints, most: int, each: int, alive: Ints, cost: Ints
) -> None:
    """`cost`: of each state of the frontier, by size and then by the rings that are parted, of
    which there are fewer than `most`; in the end, of the empty one."""
    for k in range(each):
        cost[k] = MUCH
    cost[0] = 0
    alive[0] = 1
    for step in range(len(steps.what)):
        mask = 1 << steps.bit[step]
        for state in range(len(alive)):
            if state & mask:
                continue
            here, there = state * each, (state | mask) * each
            if steps.what[step] == ENTER:
                if not alive[state]:
                    continue
                inside = outside = rings_in = rings_out = 0
                for e in range(steps.begin[step], steps.begin[step + 1]):
                    if state >> steps.at[e] & 1:
                        outside += paid[e]
                        rings_out += rings[e]
                    else:
                        inside += paid[e]
                        rings_in += rings[e]
                alive[state | mask] = 1
                for k in range(min(each, most + rings_in)):
                    cost[there + k] = MUCH
                for k in range(most + rings_in, each):
                    cost[there + k] = cost[here + k - most - rings_in] + inside
                for k in range(each - 1, rings_out - 1, -1):
                    cost[here + k] = cost[here + k - rings_out] + outside
                for k in range(min(each, rings_out)):
                    cost[here + k] = MUCH
            elif alive[state | mask]:
                for k in range(each):
                    if not alive[state] or cost[there + k] < cost[here + k]:
                        cost[here + k] = cost[there + k]
                alive[state] = 1
                alive[state | mask] = 0


_parted = Kernel(_go)


def _chain(
    levels: _Levels, own: int, ring: int, dear: int, copies: int, least: Ints, table: Ints
) -> None:
    """`own`, `dear`: what each kind between two levels pays, and what it pays less any `ring` that
    they part. `table`: of each level that comes last so far, by levels and then by blocks."""
    sizes = len(least)
    each = (copies + 1) * sizes
    for k in range(len(table)):
        table[k] = MUCH
    for last in range(len(levels.size)):
        size, cost = levels.size[last], levels.cost[last]
        here = last * each
        if size < sizes:
            table[here + sizes + size] = cost
        for before in range(last):
            smaller = levels.size[before]
            more = size - smaller
            if not more:
                continue
            parted = levels.parts[before] + levels.parts[last]
            paid = cost + own * more + max(0, dear * more - ring * parted)
            for many in range(1, copies):
                there = before * each + many * sizes
                to = here + (many + 1) * sizes + size
                for n in range(smaller, min(many * smaller, sizes - 1 - size) + 1):
                    if table[there + n] + paid < table[to + n]:
                        table[to + n] = table[there + n] + paid
        for many in range(1, copies):
            there, to = here + many * sizes, here + (many + 1) * sizes + size
            for n in range(sizes - size):
                if table[there + n] + cost < table[to + n]:
                    table[to + n] = table[there + n] + cost
        whole = here + copies * sizes
        for n in range(sizes):
            if table[whole + n] < least[n]:
                least[n] = table[whole + n]


_chained = Kernel(_chain)
