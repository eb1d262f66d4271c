"""What parts of every size cut at least of a gang with a cyclic symmetry, however wide it is.

A turn of the replicas may carry blocks into blocks and edges into edges, where hosts end inside
stages as well. Blocks that it carries into each other are an *orbit*; all orbits have as many
blocks, the *copies*. Of a part, all that is kept here is how many blocks it holds of each orbit.
Two orbits joined by edges that the turn carries into each other cut as many of these as the counts
differ, at least; and a ring through all copies is cut twice unless the part holds all of it or
nothing.

The orbits of which a part holds at least 1, 2, .. blocks are its *level sets*, each within the one
before. Counts differ by the number of level sets that separate two orbits (the co-area formula), so
level sets pay one by one for the orbits they separate. What is left are rings that no level set
separates: where one goes over into a smaller one, the rings inside the orbits between both. If each
of d orbits lies on r rings, and e rings join them to others, (rd - e) / 2 are inside. So it is
enough to know what a level set of every size pays that separates so many rings, by a dynamic
program along the frontier of the quotient graph, and the cheapest chain of level sets.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from muster.structs import struct
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.kernels import INFINITE

STARTS = 4  # of orders of the orbits: the narrowest counts


@struct(frozen=True, slots=True)
class Quotient:
    """Graph of orbits, blocks that turns carry into each other. `near`: per pair of orbits, edge
    weight beyond that of rings, and number of rings; `ring`: least weight of a ring edge; `own`:
    least weight that an orbit held in part cuts inside itself; `rings`: through each orbit, at
    least."""

    orbits: int
    copies: int
    near: Mapping[tuple[int, int], tuple[int, int]]
    ring: int
    own: int
    rings: int


def least_by_orbits(graph: Hypergraph, orders: Sequence[Ints], most: int, work: int) -> Ints | None:
    """Bound from below what a part of n = 0 .. most blocks pays. None without symmetry, where it
    tells nothing, or if it takes more `work` (additions). Shape: (most + 1,)."""
    quotient = quotient_of(graph, orders)
    if quotient is None:
        return None
    # The rest of the gang pays the same.
    half, size = min(most, graph.blocks // 2), np.arange(most + 1)
    levels = _level_sets(quotient, work)
    if levels is None or len(levels.T) ** 2 * quotient.copies * half > 2 * work:
        return None
    least = _least_chains(quotient, levels, half)
    return np.asarray(least[np.where(size > half, graph.blocks - size, size)])


def quotient_of(graph: Hypergraph, orders: Sequence[Ints]) -> Quotient | None:
    """Return the graph of orbits of a graph. Blocks that are whole periods apart in an order are
    one orbit; the order with the most copies is taken. None if there is one copy, or nothing is cut
    inside some orbit."""
    if len(graph.group) or not len(graph.weight):
        return None
    periods = [graph.period(order) for order in orders]
    best = int(np.argmin(periods))
    if periods[best] == graph.blocks:
        return None
    quotient = _quotient(graph, orders[best], periods[best])
    return quotient if quotient.own or quotient.rings else None


def _quotient(graph: Hypergraph, order: Ints, period: int) -> Quotient:
    copies = graph.blocks // period
    own = [0] * period
    between: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (a, b, turn), weight in _edge_orbits(graph, order, period).items():
        if a != b:
            between.setdefault((a, b), []).append((weight, turn))
        elif gcd(turn, copies) == 1:
            own[a] += weight * (2 if copies > 2 else 1)
    paired = {both: _rings(sets, copies) for both, sets in between.items()}
    ring = min((w for each in paired.values() for w in each), default=0)
    near = {
        both: (sum(w for w, _ in sets) - 2 * ring * len(paired[both]), len(paired[both]))
        for both, sets in between.items()
    }
    through = [0] * period
    for both, rings in paired.items():
        for orbit in both:
            through[orbit] += len(rings)
    return Quotient(period, copies, near, ring, min(own), min(through))


def _edge_orbits(graph: Hypergraph, order: Ints, period: int) -> dict[tuple[int, int, int], int]:
    """The weight of each edge of those that are carried into each other, by the orbits that they
    join, a <= b, and the copies from a to b."""
    copies = graph.blocks // period
    place = np.empty(graph.blocks, dtype=np.int64)
    place[order] = np.arange(graph.blocks)
    is_paid = graph.weight > 0
    a, b = place[graph.tail[is_paid]], place[graph.head[is_paid]]
    is_swapped = a % period > b % period
    a, b = np.where(is_swapped, b, a), np.where(is_swapped, a, b)
    turns = (b // period - a // period) % copies
    # Inside an orbit, an edge is met from both of its ends.
    turns = np.where(a % period == b % period, np.minimum(turns, copies - turns), turns)
    keys = zip((a % period).tolist(), (b % period).tolist(), turns.tolist(), strict=True)
    return dict(zip(keys, graph.weight[is_paid].tolist(), strict=True))


def _rings(sets: Sequence[tuple[int, int]], copies: int) -> list[int]:
    """Return what the rings through two orbits pay, by the sets of edges between them: two sets
    form a ring if it comes round all copies."""
    dearest = sorted(sets, reverse=True)
    pairs = zip(dearest[::2], dearest[1::2], strict=False)
    return [min(w, v) for (w, s), (v, t) in pairs if gcd(s - t, copies) == 1]


def _level_sets(quotient: Quotient, work: int) -> Ints | None:
    """Level sets of every size that pay less, rings aside, than any that separates fewer rings:
    size, rings separated, cost. Shape: (3, level sets). None if that takes more work."""
    near: list[dict[int, tuple[int, int]]] = [{} for _ in range(quotient.orbits)]
    for (a, b), pays in quotient.near.items():
        near[a][b] = near[b][a] = pays
    starts = range(0, quotient.orbits, -(-quotient.orbits // STARTS))
    orders = [_narrow_order(near, start) for start in starts]
    order, open_ = min(orders, key=lambda each: sum(1 << len(o) for o in each[1]))
    rings = 1 + sum(many for _, many in quotient.near.values())
    shape = (quotient.orbits + 1, rings)
    if sum(2 << len(each) for each in open_) * shape[0] * rings > work:
        return None
    first = np.full(shape, INFINITE)
    first[0, 0] = 0
    tables, passed = {0: first}, set[int]()
    for orbit, after in zip(order, open_, strict=True):
        behind = [(other, *paid) for other, paid in near[orbit].items() if other in passed]
        kept = sum(1 << other for other in after)
        passed.add(orbit)
        coming: dict[int, Ints] = {}
        for mask, table in tables.items():
            for is_in in (0, 1):
                cut = [(w, r) for other, w, r in behind if (mask >> other & 1) != is_in]
                paid, parted = sum(w for w, _ in cut), sum(r for _, r in cut)
                moved = np.full(shape, INFINITE)
                moved[is_in:, parted:] = table[: shape[0] - is_in, : rings - parted] + paid
                state = (mask | is_in << orbit) & kept
                known = coming.get(state)
                coming[state] = moved if known is None else np.minimum(known, moved)
        tables = coming
    table = np.minimum(tables[0], INFINITE)
    before = np.minimum.accumulate(table, axis=1)[:, :-1]
    size, rings_cut = np.nonzero(np.column_stack([table[:, 0] < INFINITE, table[:, 1:] < before]))
    return np.array([size, rings_cut, table[size, rings_cut] + 2 * quotient.ring * rings_cut])


def _narrow_order(
    near: Sequence[Mapping[int, object]], start: int
) -> tuple[list[int], list[set[int]]]:
    """An order of the orbits in which few of those behind have neighbours to come, and which have
    after each: what leaves the fewest open comes next, beside the one that waits longest."""
    order, open_ = [start], [{start} if near[start] else set[int]()]
    waiting, to_come = [*open_[0]], set(range(len(near))) - {start}
    while to_come:
        neighbours = {
            b: at for at, a in reversed([*enumerate(waiting)]) for b in near[a].keys() & to_come
        }
        left = {
            orbit: [a for a in [*waiting, orbit] if near[a].keys() & to_come - {orbit}]
            for orbit in neighbours or to_come
        }
        chosen = min(left, key=lambda orbit: (len(left[orbit]), neighbours.get(orbit, 0), orbit))
        waiting = left[chosen]
        to_come.remove(chosen)
        order.append(chosen)
        open_.append({*waiting})
    return order, open_


def _least_chains(quotient: Quotient, levels: Ints, most: int) -> Ints:
    """The least sums over chains of as many level sets as there are copies, each within the one
    before, by the blocks they hold in all. Shape: (most + 1,)."""
    size, parted, cost = levels
    copies, dear = quotient.copies, quotient.ring * quotient.rings
    table = np.full((len(size), copies + 1, most + 1), INFINITE)
    for last in range(len(size)):
        held, paid, sums = int(size[last]), int(cost[last]), table[last]
        if held <= most:
            sums[1, held] = paid
            fewer = np.flatnonzero(size[:last] < held)
            more = held - size[fewer]
            inside = np.maximum(0, dear * more - quotient.ring * (parted[fewer] + parted[last]))
            steps = paid + quotient.own * more + inside
            longer = sums[2:, held:]
            for before, step in zip(fewer.tolist(), steps.tolist(), strict=True):
                np.minimum(longer, table[before, 1:copies, : most + 1 - held] + step, out=longer)
            for many in range(1, copies):
                again = sums[many, : most + 1 - held] + paid
                np.minimum(sums[many + 1, held:], again, out=sums[many + 1, held:])
    return np.asarray(table[:, copies].min(axis=0))
