"""The inner loops of pricing over flat arrays: `price_rows`, and the way back, `retrace`.

See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from typing import NamedTuple

from placement.fabric.tree import Ints
from placement.kernels import INFINITE, Kernel


class Between(NamedTuple):
    """Costs between neighbouring rows. After row s come the slopes from begin[s] to begin[s + 1],
    each `weight` a slot for `reach` of them, and `floor[s]`, but for empty rows and for full ones,
    of `width` slots. `joint`, row by row, is what each difference costs."""

    begin: Ints
    weight: Ints
    reach: Ints
    floor: Ints
    width: int
    joint: Ints


class Tables(NamedTuple):
    """Scratch arrays of pricing. `tables`: `kept` of them, which rows use in turn; each has `slots`
    lines of `used` columns. `nearest`: one table more. `first`, `last`: one line each. `part`:
    columns that are transformed at a time, while they are in the cache."""

    tables: Ints
    kept: int
    slots: int
    used: int
    nearest: Ints
    first: Ints
    last: Ints
    part: int


def _less_of(a: Ints, b: Ints, into: Ints, climb: int) -> None:
    """The lesser of two lines, so much dearer."""
    for u in range(len(into)):
        into[u] = (a[u] if a[u] < b[u] else b[u]) + climb


def _sweep(source: Ints, room: Tables, begin: int, end: int, weight: int) -> None:
    """`nearest` of a slope without an end for some columns; `source` may be the same. There
    and back."""
    slots, used, into = room.slots, room.used, room.nearest
    first = into[begin:end]
    for u in range(end - begin):
        first[u] = source[begin + u]
    for n in range(1, slots):
        last, now = (
            into[(n - 1) * used + begin : (n - 1) * used + end],
            into[n * used + begin : n * used + end],
        )
        old = source[n * used + begin : n * used + end]
        for u in range(len(now)):
            moved = last[u] + weight
            now[u] = moved if moved < old[u] else old[u]
    for n in range(slots - 2, -1, -1):
        last, now = (
            into[(n + 1) * used + begin : (n + 1) * used + end],
            into[n * used + begin : n * used + end],
        )
        for u in range(len(now)):
            moved = last[u] + weight
            now[u] = moved if moved < now[u] else now[u]


def _step(source: Ints, room: Tables, begin: int, end: int, weight: int) -> None:
    """`nearest` of a slope of one slot for some columns; `source` may be the same."""
    slots, used, last = room.slots, room.used, room.last[: end - begin]
    for u in range(len(last)):
        last[u] = INFINITE
    for n in range(slots):
        here = source[n * used + begin : n * used + end]
        after = here if n + 1 == slots else source[(n + 1) * used + begin : (n + 1) * used + end]
        now = room.nearest[n * used + begin : n * used + end]
        for u in range(len(last)):
            old = here[u]
            moved = (last[u] if last[u] < after[u] else after[u]) + weight
            last[u] = old
            now[u] = moved if moved < old else old


def _reaches(between: Between, row: int) -> bool:
    """Whether a slope after this row goes from some slots to others."""
    most = 0
    for k in range(between.begin[row], between.begin[row + 1]):
        most = max(most, between.reach[k])
    return most > 0


def _transform(source: Ints, room: Tables, between: Between, row: int) -> None:
    """nearest[n, u] = min over n' of source[n', u] + what |n - n'| costs after this row."""
    slots, used = room.slots, room.used
    for begin in range(0, used, room.part):
        end, now = min(begin + room.part, used), source
        if not _reaches(between, row):
            for n in range(slots):
                for at in range(n * used + begin, n * used + end):
                    room.nearest[at] = source[at]
        for k in range(between.begin[row], between.begin[row + 1]):
            if between.reach[k] >= slots - 1:
                _sweep(now, room, begin, end, between.weight[k])
                now = room.nearest
                continue
            for _ in range(between.reach[k]):  # few: a slope that ends does so within a host
                _step(now, room, begin, end, between.weight[k])
                now = room.nearest
    floor = between.floor[row]
    if floor:
        for k in range(slots * used):
            room.nearest[k] += floor
        for n in range(slots):
            if n == 0 or n >= between.width:
                line = room.nearest[n * used : (n + 1) * used]
                _less_of(source[n * used : (n + 1) * used], line, line, 0)


def _price_rows(cost: Ints, rows: int, between: Between, room: Tables, by_used: Ints) -> None:
    """The least cost of a pattern of each number of hosts. `cost`: of n slots of row s."""
    slots, used = room.slots, room.used
    for k in range(slots * used):
        room.tables[k] = INFINITE
    for n in range(slots):
        room.tables[n * used + n] = cost[n]
    for s in range(1, rows):
        begin, to = (s - 1) % room.kept * slots * used, s % room.kept * slots * used
        source = room.tables[begin : begin + slots * used]
        _transform(source, room, between, s - 1)
        for n in range(slots):
            into = room.tables[to + n * used : to + (n + 1) * used]
            paid, shorter = cost[s * slots + n], room.nearest[n * used : (n + 1) * used - n]
            for u in range(min(n, used)):
                into[u] = INFINITE
            rest = into[n:]
            for u in range(len(rest)):
                total = shorter[u] + paid
                rest[u] = total if total < INFINITE else INFINITE
    begin = (rows - 1) % room.kept * slots * used
    for u in range(used):
        by_used[u] = room.tables[begin + u]
    for n in range(1, slots):
        line = room.tables[begin + n * used : begin + (n + 1) * used]
        for u in range(used):
            by_used[u] = line[u] if line[u] < by_used[u] else by_used[u]


price_rows = Kernel(
    _price_rows,
    *(_less_of, _sweep, _step, _reaches, _transform),
    inlines=False,
)


def _pay(room: Tables, between: Between, row: int, n: int) -> None:
    """Compute what n slots of this row or of the next one pay beside 0, 1, .. of the other: in
    `first`."""
    paid, joint = room.first[: room.slots], between.joint[row * room.slots :]
    floor = between.floor[row]
    for other in range(len(paid)):
        paid[other] = joint[abs(other - n)] + floor
    if n == 0 or n == between.width:
        paid[n] -= floor


def _before(room: Tables, between: Between, row: int, n: int, used: int, rest: int) -> int:
    """The slots of this row, before n of the next one, with which what is paid up to there is
    `rest`, or comes next to it."""
    _pay(room, between, row, n)
    best, nearest, paid = 0, INFINITE, room.first[: room.slots]
    here = row % room.kept * room.slots * room.used + used
    for before in range(len(paid)):
        off = abs(room.tables[here + before * room.used] + paid[before] - rest)
        if off < nearest:
            best, nearest = before, off
    return best


def _retrace(
    cost: Ints, rows: int, between: Between, room: Tables, hosts: Ints, path: Ints
) -> None:
    """A cheapest pattern of each number of hosts, one after the other, from the tables that
    `price_rows` has filled; of all rows."""
    slots = room.slots
    for k in range(len(hosts)):
        used = hosts[k]
        last = (rows - 1) % room.kept * slots * room.used + used
        n = 0
        for each in range(1, slots):
            if room.tables[last + each * room.used] < room.tables[last + n * room.used]:
                n = each
        path[(k + 1) * rows - 1] = n
        for row in range(rows - 1, 0, -1):
            here = row % room.kept * slots * room.used + n * room.used + used
            rest = room.tables[here] - cost[row * slots + n]
            used -= n
            n = _before(room, between, row - 1, n, used, rest)
            path[k * rows + row - 1] = n


retrace = Kernel(_retrace, _pay, _before)
