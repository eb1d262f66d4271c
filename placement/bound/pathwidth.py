"""Dynamic program along an order: the cheapest part of every size, within a budget if one is given.

Once the blocks up to some place of an order are in or out of a part, what matters to those to come
is which of them are in that have edges to later blocks, and which groups that go on the part has
touched: the *frontier*. A dynamic program over its states and sizes is gone through once for each
block, each group of it, and each that leaves the frontier. Where no more than a budget is of
interest, states from which a part cannot come to its end within it are left out. Parts that hold
all blocks and respect the capacities cost at least the least sum.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placement.bound.size_relaxation import least_sum
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.kernels import INFINITE, Kernel

ENTER, TOUCH, LEAVE = 0, 1, 2
MOST_BITS = 18  # of a frontier
MOST_NUMBERS = 1 << 24  # of a table: 128 MB, of which few are used at a time
MOST_KEPT = 1 << 22  # of what is to go: 32 MB
QUICK = 20_000_000  # steps along an order: some 20 ms
A_STATE = 16  # sizes that take as long as to look at a state


class Steps(NamedTuple):
    """The events along an order of blocks: a block takes a bit of the frontier (`ENTER`), touches
    the bit of a group (`TOUCH`), and either gives its bit back (`LEAVE`).

    Shapes: what, bit, other (a group's bit), weight (a group's, doubled), tie (what a block pays,
    if it is in, beside its edges), used (bits before the step) (steps,); begin (steps + 1,), of
    blocks that enter, where edges begin in at (bits) and paid (their weights).
    """

    what: Ints
    bit: Ints
    other: Ints
    weight: Ints
    tie: Ints
    used: Ints
    begin: Ints
    at: Ints
    paid: Ints


def paid_for(steps: Steps, step: int, state: int) -> tuple[int, int]:
    """Return what a block pays when it enters, for its edges: if it is in the part, and if it is
    out; called inside kernels."""
    inside, outside = steps.tie[step], 0 * steps.tie[step]
    for e in range(steps.begin[step], steps.begin[step + 1]):
        if state >> steps.at[e] & 1:
            outside += steps.paid[e]
        else:
            inside += steps.paid[e]
    return inside, outside


class Walk:
    """A pass along an order of the blocks that are not `pinned`; pinned blocks are out of the part.

    `bits`: of the frontier. `states`: of it, about, summed over all steps; a group with a block in
    the part counts as touched. `done`: for each block of the order, after how many steps it is
    done, and what blocks are in the frontier then.
    """

    def __init__(
        self, graph: Hypergraph, order: Sequence[int], pinned: Collection[int] = frozenset()
    ) -> None:
        """Ends where the frontier has more than `MOST_BITS`."""
        self.bits, self.states = 0, 0
        self.done: list[tuple[int, frozenset[int]]] = []
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._edges: list[list[tuple[int, int]]] = []
        self._bit: dict[tuple[bool, int], int] = {}
        self._spare: list[int] = []
        self._used = 0
        self._go(graph, [block for block in order if block not in pinned], pinned)

    @property
    def is_narrow(self) -> bool:
        return self.bits <= MOST_BITS

    @cached_property
    def steps(self) -> Steps:
        begin = np.cumsum([0, *map(len, self._edges)])
        edges = np.array([e for each in self._edges for e in each], dtype=np.int64).reshape(-1, 2)
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 6)
        element, bit, other, weight, tie, used = rows.T.copy()
        at, paid = edges.T.copy()
        return Steps(element, bit, other, weight, tie, used, begin, at, paid)

    def _go(self, graph: Hypergraph, order: Sequence[int], pinned: Collection[int]) -> None:
        near, tie = _neighbours(graph, pinned)
        groups: list[list[int]] = [[] for _ in range(graph.blocks)]
        for block, group in zip(graph.members.tolist(), graph.group.tolist(), strict=True):
            groups[block].append(group)
        to_come = np.bincount(graph.group, minlength=len(graph.group_weight)).tolist()
        weights = graph.group_weight.tolist()
        waiting, has_come = [len(each) for each in near], [False] * graph.blocks
        for block in order:
            has_come[block] = True
            self._add(ENTER, self._bit_of(False, block), tie=tie[block])
            known = [other for other in near[block] if has_come[other]]
            self._edges[-1] = [(self._bit_of(False, other), near[block][other]) for other in known]
            for group in groups[block]:
                here, there = self._bit_of(False, block), self._bit_of(True, group)
                self._add(TOUCH, here, there, 2 * weights[group])
                to_come[group] -= 1
                if not to_come[group]:
                    self._leave(True, group)
            for other in [*known, block]:
                waiting[other] -= 1 if other != block else len(known)
                if not waiting[other]:
                    self._leave(False, other)
            if not self.is_narrow:
                return
            blocks = frozenset(number for is_group, number in self._bit if not is_group)
            self.done.append((len(self._rows), blocks))

    def _add(self, element: int, bit: int, other: int = 0, weight: int = 0, tie: int = 0) -> None:
        blocks = sum(not is_group for is_group, _ in self._bit)
        self.states += (1 + len(self._bit) - blocks) << blocks
        self._rows.append((element, bit, other, weight, tie, self._used))
        self._edges.append([])
        if element == LEAVE:
            self._used &= ~(1 << bit)
        else:
            self._used |= 1 << (bit if element == ENTER else other)

    def _bit_of(self, is_group: bool, number: int) -> int:
        """The bit of a block or a group: the lowest that is free, if it has none."""
        if (is_group, number) not in self._bit:
            self._spare.sort(reverse=True)
            if not self._spare:
                self._spare.append(self.bits)
                self.bits += 1
            self._bit[is_group, number] = self._spare.pop()
        return self._bit[is_group, number]

    def _leave(self, is_group: bool, number: int) -> None:
        self._spare.append(self._bit.pop((is_group, number)))
        self._add(LEAVE, self._spare[-1])


def _neighbours(
    graph: Hypergraph, pinned: Collection[int]
) -> tuple[list[dict[int, int]], list[int]]:
    """The edges of each block that is not pinned to others, and what it has to the pinned."""
    near: list[dict[int, int]] = [{} for _ in range(graph.blocks)]
    tie = [0] * graph.blocks
    edges = zip(graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist(), strict=True)
    for a, b, weight in edges:
        if a in pinned or b in pinned:
            tie[a] += weight
            tie[b] += weight
        else:
            near[a][b] = near[b][a] = weight
    return near, tie


class Table(NamedTuple):
    """Cheapest parts found so far. Shapes: of each state, which row of `cost` is its own, and from
    which size to which that counts (none where low > high) (states,); cost (rows x sizes,);
    `alive`, the states that have a row, and a second such list (rows,); rows that are `spare`
    (rows,); `tally`: of those alive, of spare rows, of work so far (3,)."""

    row: Ints
    low: Ints
    high: Ints
    cost: Ints
    alive: Ints
    coming: Ints
    spare: Ints
    tally: Ints


class Passage:
    """The dynamic program along the steps of a walk, from the empty state. Sizes count the blocks
    that are in the part, or those that are out.

    `budget`: parts that cost more are left out. `counts`: what a block that is in adds to the size,
    and one that is out. `begin`: the size of the empty state.
    """

    def __init__(
        self,
        walk: Walk,
        sizes: int,
        budget: int = INFINITE,
        counts: tuple[int, int] = (1, 0),
        begin: int = 0,
    ) -> None:
        self.steps = walk.steps
        self.states = 1 << walk.bits
        self.budget = budget
        self._sizes, self._counts = sizes, counts
        rows = min(MOST_NUMBERS // sizes, self.states)
        row, low, high = np.zeros((3, self.states), dtype=np.int64)
        low += 1
        cost = np.empty(rows * sizes, dtype=np.int64)
        alive, coming = np.zeros((2, rows), dtype=np.int64)
        spare, tally = np.arange(rows - 1, -1, -1), np.array([0, rows, 0])
        if begin < sizes:  # the empty state has the first row
            low[0] = high[0] = begin
            cost[begin], tally[:2] = 0, (1, rows - 1)
        self.table = Table(row, low, high, cost, alive, coming, spare, tally)

    def drop(self, state: int) -> None:
        """Forget this state."""
        table = self.table
        alive = int(table.tally[0])
        kept = table.alive[:alive][table.alive[:alive] != state]
        table.alive[: len(kept)] = kept
        if len(kept) < alive:
            table.spare[table.tally[1]] = table.row[state]
            table.low[state], table.high[state] = 1, 0
            table.tally[:2] += (-1, 1)

    def advance(self, first: int, last: int, most: int, to_go: Ints | None = None) -> bool:
        """Carry the table over these steps; return whether at most so much work and so many rows
        sufficed. `to_go`: as `Ahead.to_go` of these steps."""
        known = np.zeros(0, dtype=np.int64) if to_go is None else to_go
        inside, outside = self._counts
        return _passed.run(
            (last - first) * A_STATE,
            self.table,
            self.steps,
            first,
            last,
            self._sizes,
            self.states if len(known) else 0,
            self.budget,
            inside,
            outside,
            known,
            most,
        )

    def least(self) -> Ints:
        """Return the least cost of a part by its size, after the last step."""
        table, sizes = self.table, self._sizes
        cost = np.full(sizes, INFINITE)
        low, high = int(table.low[0]), int(table.high[0])
        if low <= high:
            begin = int(table.row[0]) * sizes
            cost[low : high + 1] = table.cost[begin + low : begin + high + 1]
        return np.asarray(np.minimum(cost, INFINITE))


class Ahead:
    """Lower bounds on what parts still pay from each state to the end of a walk, where no state may
    be left."""

    def __init__(self, walk: Walk, mixed: Collection[int] = ()) -> None:
        """`mixed`: after how many steps the frontier may be neither all in nor all out."""
        self._steps, self.states = walk.steps, 1 << walk.bits
        steps = len(self._steps.what)
        each = max(1, min(steps, MOST_KEPT // self.states))
        stops = sorted({*range(0, steps, each), *mixed, steps})
        # First and last steps, in which the walk is gone along.
        self.stretches = list(pairwise(stops))
        at_end = np.full(self.states, INFINITE)
        at_end[0] = 0
        # What is to go after each stretch; what is inside of it, when needed.
        self._after = {steps: at_end}
        self._kept = (steps, at_end)
        for first, last in reversed(self.stretches):
            self._kept = (first, self.to_go(first, last))
            self._after[first] = self._kept[1][: self.states].copy()
            if first in mixed:
                self._after[first][[0, self._steps.used[first]]] = INFINITE

    def to_go(self, first: int, last: int) -> Ints:
        """Return the least further cost of each state. Shape: ((last - first + 1) x states,)."""
        if self._kept[0] == first:
            return self._kept[1]
        table = np.empty((last - first + 1) * self.states, dtype=np.int64)
        table[-self.states :] = self._after[last]
        _back.run(len(table), self._steps, first, last, self.states, table)
        return table

    def all_end_within(self, passages: Sequence[Passage], work: int) -> bool:
        """Return whether each of these walks comes to its end in so much work. States grow in
        number and in sizes as one goes, so what is spent by now foretells it."""
        steps = len(self._steps.what)
        for first, last in self.stretches:
            to_go = self.to_go(first, last)
            for passage in passages:
                if not passage.advance(first, last, work * last // steps, to_go):
                    return False
        return True


def least_parts(
    graph: Hypergraph, orders: Sequence[Ints], most: int, work: int
) -> tuple[Ints, int] | None:
    """Bound from below what a part of n = 0 .. most blocks pays, doubled over all parts, and by how
    much these pay too much together: 2 cut >= sum over parts of least[n] - offset.

    `orders`: of the blocks, the one with the narrowest frontier is gone along. None if that takes
    more `work`. Shape: (most + 1,).
    """
    walks = [walk for order in orders if (walk := Walk(graph, order.tolist())).is_narrow]
    if not walks:
        return None
    walk = min(walks, key=lambda walk: walk.bits)
    # Without groups the rest of the gang pays the same.
    half = most if len(graph.group) else min(most, graph.blocks // 2)
    if walk.states * (half + 1) > work:
        return None
    passage = Passage(walk, half + 1)
    if not passage.advance(0, len(passage.steps.what), work):
        return None
    size = np.arange(most + 1)
    least = passage.least()[np.where(size > half, graph.blocks - size, size)]
    return least, 2 * int(graph.group_weight.sum())


def _through(
    table: Table,
    steps: Steps,
    first: int,
    last: int,
    sizes: int,
    states: int,
    budget: int,
    inside: int,
    outside: int,
    to_go: Ints,
    most: int,
) -> bool:
    """`states`: 0 where nothing is known of what is to go. The lists hold each state that has a
    row once; who `TOUCH`es or `LEAVE`s takes its row along, or joins who is there."""
    alive, work = table.tally[0], table.tally[2]
    for step in range(first, last):
        element = steps.what[step]
        mask = 1 << steps.bit[step]
        group = 1 << steps.other[step]
        after = (step + 1 - first) * states
        coming = 0
        for k in range(alive):
            state = table.alive[k]
            work += table.high[state] - table.low[state] + A_STATE
            if element == ENTER:
                there = state | mask
                paid_in, paid_out = paid_for(steps, step, state)
                room_in, room_out = budget - paid_in, budget - paid_out
                if states:
                    room_in -= to_go[after + there]
                    room_out -= to_go[after + state]
                many = _copied(table, sizes, state, there, room_in, paid_in, inside)
                if many < 0:
                    return False
                if many:
                    table.coming[coming] = there
                    coming += 1
                if _keep_state(table, sizes, state, room_out, paid_out, outside):
                    table.coming[coming] = state
                    coming += 1
                continue
            there, paid = state, 0 * state
            if element == LEAVE:
                there = state & ~mask
            elif state & mask and not state & group:
                there = state | group
                paid = steps.weight[step]
            if there == state or _move_state(table, sizes, state, there, paid):
                table.coming[coming] = there
                coming += 1
        for k in range(coming):
            table.alive[k] = table.coming[k]
        alive = coming
        if work > most:
            return False
    table.tally[0] = alive
    table.tally[2] = work
    return True


def _within(table: Table, sizes: int, state: int, room: int, more: int) -> tuple[int, int]:
    """First and last size of a state that has room to become so much more, for what it pays."""
    cost, here = table.cost, table.row[state] * sizes
    begin, end = table.low[state], min(table.high[state], sizes - 1 - more)
    while begin <= end and cost[here + begin] > room:
        begin += 1
    while begin <= end and cost[here + end] > room:
        end -= 1
    return begin, end


def _copied(
    table: Table, sizes: int, state: int, there: int, room: int, paid: int, more: int
) -> int:
    """Another state out of this one: 1, or 0 if there is no room for any size, or -1 if there is no
    row to spare."""
    begin, end = _within(table, sizes, state, room, more)
    if begin > end:
        return 0
    if not table.tally[1]:
        return -1
    table.tally[1] -= 1
    table.row[there] = table.spare[table.tally[1]]
    here, into = table.row[state] * sizes, table.row[there] * sizes + more
    for n in range(begin, end + 1):
        table.cost[into + n] = table.cost[here + n] + paid
    table.low[there], table.high[there] = begin + more, end + more
    return 1


def _keep_state(table: Table, sizes: int, state: int, room: int, paid: int, more: int) -> bool:
    """The state itself, where there is room for any of its sizes; else its row is spare."""
    begin, end = _within(table, sizes, state, room, more)
    if begin > end:
        _freed(table, state)
        return False
    here = table.row[state] * sizes
    if more:
        for back in range(end - begin + 1):
            n = here + end - back
            table.cost[n + more] = table.cost[n] + paid
    else:
        for n in range(begin, end + 1):
            table.cost[here + n] += paid
    table.low[state], table.high[state] = begin + more, end + more
    return True


def _freed(table: Table, state: int) -> None:
    table.low[state], table.high[state] = 1, 0
    table.spare[table.tally[1]] = table.row[state]
    table.tally[1] += 1


def _move_state(table: Table, sizes: int, state: int, there: int, paid: int) -> bool:
    """A state becomes another one, for what it pays; whether nobody was there before, whom it
    joins."""
    cost = table.cost
    low, high = table.low[state], table.high[state]
    begin, end = table.low[there], table.high[there]
    here = table.row[state] * sizes
    for n in range(low, high + 1):
        cost[here + n] += paid
    if begin > end:
        table.row[there] = table.row[state]
        table.low[state], table.high[state] = 1, 0
        table.low[there], table.high[there] = low, high
        return True
    into = table.row[there] * sizes
    # Of two ranges that do not meet there is nothing in between.
    for n in range(high + 1, begin):
        cost[into + n] = INFINITE
    for n in range(end + 1, low):
        cost[into + n] = INFINITE
    for n in range(low, high + 1):
        if n < begin or n > end or cost[here + n] < cost[into + n]:
            cost[into + n] = cost[here + n]
    table.low[there], table.high[there] = min(low, begin), max(high, end)
    _freed(table, state)
    return False


def _backward(steps: Steps, first: int, last: int, states: int, to_go: Ints) -> None:
    """`to_go`: after each step, of which the last is known."""
    for step in range(last - 1, first - 1, -1):
        mask = 1 << steps.bit[step]
        group = 1 << steps.other[step]
        here = (step - first) * states
        after = here + states
        for state in range(states):
            if state & ~steps.used[step]:
                continue
            if steps.what[step] == ENTER:
                paid_in, paid_out = paid_for(steps, step, state)
                to_go[here + state] = min(
                    to_go[after + (state | mask)] + paid_in, to_go[after + state] + paid_out
                )
            elif steps.what[step] == LEAVE:
                to_go[here + state] = to_go[after + (state & ~mask)]
            elif state & mask and not state & group:
                to_go[here + state] = to_go[after + (state | group)] + steps.weight[step]
            else:
                to_go[here + state] = to_go[after + state]


_passed = Kernel(_through, paid_for, _within, _copied, _keep_state, _freed, _move_state)
_back = Kernel(_backward, paid_for)


class PartBound:
    """Lower bounds on what layouts of one graph cut. Tables are made once."""

    def __init__(self, graph: Hypergraph, orders: Sequence[Ints] = ()) -> None:
        """`orders`: of the blocks, in which the graph may be narrow, beside their own."""
        self._graph = graph
        self._orders = [np.arange(graph.blocks), *orders]
        # By size, and with how many steps they were looked for.
        self._costs: dict[int, tuple[int, tuple[Ints, int] | None]] = {}

    def least_cut(self, capacities: Sequence[int], steps: int = QUICK) -> int:
        """Return a doubled cut, in the graph's units, that no layout on these domains beats; 0
        where too little is known of parts, or that takes more than so many steps."""
        most = min(self._graph.blocks, max(capacities))
        tried, costs = self._costs.get(most, (0, None))
        if costs is None and tried < steps:
            costs = least_parts(self._graph, self._orders, most, steps)
            self._costs[most] = steps, costs
        if costs is None:
            return 0
        cost, offset = costs
        return max(0, least_sum(self._graph.blocks, capacities, cost) - offset)
