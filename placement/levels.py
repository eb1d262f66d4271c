"""What parts of every size cut at least of a gang that a turn carries into itself, however wide.

Where blocks are of few kinds (`kinds`), all that is kept of a part here is how many it holds of
each. Two kinds joined by edges that the turn carries into each other cut as many of these as the
counts differ, at least; and a ring is cut twice unless the part holds all or nothing of it.

The kinds of which a part holds at least 1, 2, .. copies are its *levels*, each within the one
before. Counts differ by the number of levels that part two kinds; so levels pay one by one for the
kinds they part. What is left are rings that no level parts. Where one level goes over into a
smaller one, that is the rings inside the kinds between both. If each of d kinds lies on r rings,
and they part e rings from others, (rd - e) / 2 are inside; and what they part is parted by one of
the levels. So it is enough to know what a level of every size pays that parts so many rings, which
`_parted` tells along a frontier of kinds, and to try all chains of levels (`_chained`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.blockgraph import BlockGraph
from placement.compiled import Kernel
from placement.fabric import Ints
from placement.frontier import ENTER, Steps, Walk
from placement.kinds import Kinds
from placement.steps import MUCH

MOST_ENTRIES = 1 << 24  # of a table: 128 MB
MOST_KINDS = 62  # of which a number tells those that are in
STARTS = 4  # of orders of the kinds


class _Levels(NamedTuple):
    """By size, the rings they part, what each pays, and which kinds it has, a bit for each. Shape
    of all: (levels,)."""

    size: Ints
    parts: Ints
    cost: Ints
    kinds: Ints


class Levels:
    """The levels of parts of a gang, where each kind may have a price that is paid for its blocks.

    `work`: of the last time, in steps.
    """

    def __init__(self, kinds: Kinds) -> None:
        self.kinds, self.work = kinds, 0
        pairs = sorted(kinds.near)
        tail, head = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        near = [kinds.near[both] for both in pairs]
        self._paid, self._rings = np.array(near, dtype=np.int64).reshape(-1, 2).T
        nothing = np.zeros(0, dtype=np.int64)
        numbers = np.arange(len(pairs))  # for weights, of which there are two
        graph = BlockGraph(kinds.kinds, 1, tail, head, numbers, nothing, nothing, nothing)
        starts = range(0, kinds.kinds, -(-kinds.kinds // STARTS))
        orders = [kinds.order(start) for start in starts]
        walks = [Walk(graph, order) for order in orders]
        narrowest = min(range(len(walks)), key=lambda at: walks[at].bits)
        self._walk, self._order = walks[narrowest], np.array(orders[narrowest])
        self._most = int(self._rings.sum()) + 1
        self._size = 0

    @property
    def has_names(self) -> bool:
        """Whether `held` tells anything."""
        return self.kinds.kinds <= MOST_KINDS

    def least(self, most: int, work: int, prices: Ints | None = None) -> Ints | None:
        """What a part of n = 0 .. most blocks pays at least, less the prices of those blocks.
        None if it takes more work. Shape: (most + 1,)."""
        levels = self._parted(work, prices)
        if levels is None:
            return None
        kinds, self._size = self.kinds, most + 1
        many, each = len(levels.size), (kinds.copies + 1) * self._size
        steps = many * many * each // 4
        if many * each > MOST_ENTRIES or steps > work:
            return None
        self.work += steps
        least = np.full(most + 1, MUCH)
        table = np.empty(many * each, dtype=np.int64)
        self._last = levels, table
        _chained.run(steps, levels, *self._dues, kinds.copies, least, table)
        return least

    def held(self, size: int) -> Ints:
        """Of each kind, by one of the cheapest parts of a size that was told last; which may be
        no part, if its levels do not lie in each other. Shape: (kinds,)."""
        levels, table = self._last
        chosen = np.empty(self.kinds.copies, dtype=np.int64)
        steps = len(levels.size) + self.kinds.copies
        _traced.run(steps, levels, *self._dues, self._size, size, table, chosen)
        bits = levels.kinds[chosen][:, None] >> np.arange(self.kinds.kinds) & 1
        return np.asarray(bits.sum(axis=0))

    @property
    def _dues(self) -> tuple[int, int, int]:
        return self.kinds.own, self.kinds.ring, self.kinds.ring * self.kinds.rings

    def _parted(self, work: int, prices: Ints | None) -> _Levels | None:
        """Those of every size that pay less, rings aside, than any that parts fewer rings."""
        kinds, walk, most = self.kinds, self._walk, self._most
        each = (kinds.kinds + 1) * most
        entries = each << walk.bits
        self.work = 2 * kinds.kinds * entries
        if not walk.is_narrow or entries > MOST_ENTRIES or self.work > work:
            return None
        along = walk.steps()
        price, name = np.zeros((2, len(along.what)), dtype=np.int64)
        if prices is not None:
            enters = along.what == ENTER
            price[enters], name[enters] = prices[self._order], 1 << self._order
        alive = np.zeros(1 << walk.bits, dtype=np.int64)
        cost = np.empty(entries, dtype=np.int64)
        names = np.zeros(entries if name.any() else 0, dtype=np.int64)
        paid, rings = self._paid[along.paid], self._rings[along.paid]
        _parted.run(self.work, along, paid, rings, price, name, most, each, alive, cost, names)
        table = cost[:each].reshape(-1, most)
        table = np.where(table < MUCH // 2, table, MUCH)  # prices come off what is impossible too
        before = np.minimum.accumulate(table, axis=1)[:, :-1]
        is_less = np.column_stack([table[:, 0] < MUCH, table[:, 1:] < before])
        size, parts = np.nonzero(is_less)
        named = names[:each].reshape(-1, most)[size, parts] if len(names) else np.zeros_like(size)
        return _Levels(size, parts, table[size, parts] + 2 * kinds.ring * parts, named)


def _go(
    steps: Steps,
    paid: Ints,
    rings: Ints,
    price: Ints,
    name: Ints,
    most: int,
    each: int,
    alive: Ints,
    cost: Ints,
    names: Ints,
) -> None:
    """`cost`: of each state of the frontier, by size and then by the rings that are parted, of
    which there are fewer than `most`; in the end, of the empty one. `names`: of the kinds that
    pay it, if anyone asks."""
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
                inside, outside, rings_in, rings_out = -price[step], 0, 0, 0
                for e in range(steps.begin[step], steps.begin[step + 1]):
                    if state >> steps.at[e] & 1:
                        outside += paid[e]
                        rings_out += rings[e]
                    else:
                        inside += paid[e]
                        rings_in += rings[e]
                alive[state | mask] = 1
                by = most + rings_in
                for k in range(min(each, by)):
                    cost[there + k] = MUCH
                for k in range(by, each):
                    cost[there + k] = cost[here + k - by] + inside
                for k in range(each - 1, rings_out - 1, -1):
                    cost[here + k] = cost[here + k - rings_out] + outside
                for k in range(min(each, rings_out)):
                    cost[here + k] = MUCH
                if len(names):
                    for k in range(by, each):
                        names[there + k] = names[here + k - by] | name[step]
                    for k in range(each - 1, rings_out - 1, -1):
                        names[here + k] = names[here + k - rings_out]
            elif alive[state | mask]:
                for k in range(each):
                    if not alive[state] or cost[there + k] < cost[here + k]:
                        cost[here + k] = cost[there + k]
                        if len(names):
                            names[here + k] = names[there + k]
                alive[state] = 1
                alive[state | mask] = 0


_parted = Kernel(_go)


def _step_up(levels: _Levels, own: int, ring: int, dear: int, before: int, last: int) -> int:
    """What a level pays that comes after a smaller one, what is between both included."""
    more = levels.size[last] - levels.size[before]
    parted = levels.parts[before] + levels.parts[last]
    cost: int = levels.cost[last] + own * more + max(0, dear * more - ring * parted)
    return cost


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
            if smaller == size:
                continue
            paid = _step_up(levels, own, ring, dear, before, last)
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


_chained = Kernel(_chain, _step_up)


def _trace(
    levels: _Levels,
    own: int,
    ring: int,
    dear: int,
    sizes: int,
    size: int,
    table: Ints,
    chosen: Ints,
) -> None:
    """The levels of a part of this size, from the table of a chain."""
    copies = len(chosen)
    each = (copies + 1) * sizes
    last = 0
    for level in range(len(levels.size)):
        if table[level * each + copies * sizes + size] < table[last * each + copies * sizes + size]:
            last = level
    left = size
    for many in range(copies, 0, -1):
        chosen[many - 1] = last
        whole = table[last * each + many * sizes + left]
        left -= levels.size[last]
        if many == 1 or table[last * each + (many - 1) * sizes + left] + levels.cost[last] == whole:
            continue
        for before in range(last):
            paid = _step_up(levels, own, ring, dear, before, last)
            is_smaller = levels.size[before] < levels.size[last]
            if is_smaller and table[before * each + (many - 1) * sizes + left] + paid == whole:
                last = before
                break


_traced = Kernel(_trace, _step_up)
