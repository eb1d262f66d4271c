"""Prices of each zone's own, for what zones and rows have to agree on.

Prices of a master program are the same for all zones, and its rows want as many slots as they have,
from whoever holds them. Here each zone z has a price p_zs(n) of its own for every number n of
slots of row s, and q_z(m) for all m slots that it holds in the end. For any prices at all

    2 cut >= sum over zones of the cheapest counts, prices included
             - sum over rows of the most that p_zs(n_z) add up to, where the n_z add up to a row
             - the most that q_z(m_z) add up to, where the m_z add up to the gang

less the offset, for the counts of a layout are among all that are compared (Lagrangian
decomposition, Guignard and Kim 1987). Where hosts end inside rows, so many zones at most hold a
number of slots of a row that is not whole hosts: the n_z that are compared do the same.

Prices are improved row by row, there and back (max-sum diffusion in the order of Kolmogorov's
sequential messages): what a zone pays at least with n slots of the row, and all else at its
best, moves to the row's prices, and what all zones pay at least with it is shared out among
them. That never lowers the bound. All of it is done in whole numbers, and what the sums come to is
computed anew in the end, so what is rounded costs a little and makes no bound wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.compiled import Kernel
from placement.fabric import Ints
from placement.transforms import INFINITE

ODD = 2  # zones at most that hold slots of a row that are not whole hosts
IMPOSSIBLE = INFINITE // 2  # or more: what is added to INFINITE is far less


class Chains(NamedTuple):
    """Flat tables. `between`: of each row but the last, by slots there and in the next. `step`: by
    slots; `slots`: by zone, row and slots, with the prices; `ends`: by zone and whole hosts in
    the end, prices alone. `before`, `after`: of each zone, row, slots and slots so far, what the
    zone pays up to there and from there on. `room`: by zone. `part`: slots of a host that are left
    over after each row. `odd`: how many zones at most hold such slots of each row."""

    between: Ints
    step: Ints
    slots: Ints
    ends: Ints
    before: Ints
    after: Ints
    room: Ints
    part: Ints
    odd: Ints
    zones: int
    rows: int
    width: int
    most: int
    lot: int


class Sums(NamedTuple):
    """Room to add up in. `alone`: what each zone pays by its share; `least`: what all do.
    `first`, `last`: of some zones, by how many shares are odd and what they add up to."""

    alone: Ints
    least: Ints
    first: Ints
    last: Ints
    both: Ints


def _may_hold(of: Chains, row: int, used: int) -> bool:
    """Whether so many slots up to a row may end where hosts do, or where the row does."""
    rest = used % of.lot
    return rest == 0 or rest == of.part[row]


def _lowered(table: Ints, there: int, here: int, count: int, paid: int) -> None:
    """So many entries from `here` on: at most what those from `there` on come to with `paid`."""
    if count <= 0:
        return
    source, into = table[there : there + count], table[here : here + count]
    for k in range(count):
        total = source[k] + paid
        into[k] = total if total < into[k] else into[k]


def _come_from(of: Chains, zone: int, row: int) -> None:
    """Fill `before` of a row."""
    width, columns, room = of.width + 1, of.most + 1, of.room[zone]
    start = (zone * of.rows + row) * width
    for n in range(width):
        here, price = (start + n) * columns, of.slots[start + n]
        for used in range(columns):
            of.before[here + used] = INFINITE
        if price >= IMPOSSIBLE:
            continue
        if row == 0:
            if n <= room and _may_hold(of, row, n):
                of.before[here + n] = price
            continue
        for m in range(width):
            paid = of.between[((row - 1) * width + m) * width + n] + price
            there = (start - width + m) * columns
            _lowered(of.before, there + m, here + n + m, room + 1 - n - m, paid)
        for used in range(n, room + 1):
            if not _may_hold(of, row, used):
                of.before[here + used] = INFINITE


def _go_to(of: Chains, zone: int, row: int) -> None:
    """Fill `after` of a row."""
    width, columns, room = of.width + 1, of.most + 1, of.room[zone]
    start = (zone * of.rows + row) * width
    for n in range(width):
        here = (start + n) * columns
        for used in range(columns):
            of.after[here + used] = INFINITE
        if row == of.rows - 1:
            for used in range(0, room + 1, of.lot):
                of.after[here + used] = of.ends[zone * (of.most // of.lot + 1) + used // of.lot]
            continue
        for m in range(width):
            price = of.slots[start + width + m]
            if price >= IMPOSSIBLE:
                continue
            paid = of.between[(row * width + n) * width + m] + price
            there = (start + width + m) * columns
            _lowered(of.after, there + n + m, here + n, room + 1 - n - m, paid)
        for used in range(n, room + 1):
            if not _may_hold(of, row, used):
                of.after[here + used] = INFINITE


def _added(one: Ints, a: int, two: Ints, b: int, into: Ints, c: int, most: int, odd: int) -> None:
    """The least of two tables of sums together; they begin at `a`, `b` and `c`."""
    length = most + 1
    for k in range((odd + 1) * length):
        into[c + k] = INFINITE
    for x in range(odd + 1):
        for y in range(odd + 1 - x):
            for m in range(length):
                paid = one[a + x * length + m]
                if paid >= IMPOSSIBLE:
                    continue
                there, here = b + y * length, c + (x + y) * length + m
                for n in range(length - m):
                    total = paid + two[there + n]
                    if total < into[here + n]:
                        into[here + n] = total


def _shared(sums: Sums, zone: int, most: int, lot: int, odd: int) -> None:
    """What a zone pays by its share alone, as `both`: by whether it is odd, and by the share."""
    length = most + 1
    for k in range((ODD + 1) * length):
        sums.both[k] = INFINITE
    for n in range(length):
        odds = 1 if n % lot else 0
        if odds <= odd:
            sums.both[odds * length + n] = sums.alone[zone * length + n]


def _add_up(sums: Sums, zones: int, most: int, lot: int, odd: int) -> int:
    """What all zones pay at least whose shares add up to `most`; and, as `least`, where a zone has
    some given one. At most `odd` shares are no multiples of `lot`."""
    length = most + 1
    table = (ODD + 1) * length
    first, last, both = sums.first, sums.last, sums.both
    for k in range(table):
        first[k] = last[zones * table + k] = INFINITE
    first[0] = last[zones * table] = 0
    for zone in range(zones):
        _shared(sums, zone, most, lot, odd)
        _added(first, zone * table, both, 0, first, (zone + 1) * table, most, odd)
    for zone in range(zones - 1, -1, -1):
        _shared(sums, zone, most, lot, odd)
        _added(last, (zone + 1) * table, both, 0, last, zone * table, most, odd)
        _added(first, zone * table, last, (zone + 1) * table, both, 0, most, odd)
        for n in range(length):
            least, alone = INFINITE, sums.alone[zone * length + n]
            for others in range(odd + 1 - (1 if n % lot else 0)):
                least = min(least, both[others * length + most - n])
            is_possible = alone < IMPOSSIBLE and least < IMPOSSIBLE
            sums.least[zone * length + n] = alone + least if is_possible else INFINITE
    best = INFINITE
    for odds in range(odd + 1):
        best = min(best, last[odds * length + most])
    return best


def _share_row(of: Chains, row: int, sums: Sums) -> int:
    """Improve the prices of a row; what all zones pay at least, as far as this row knows."""
    width, columns, zones = of.width + 1, of.most + 1, of.zones
    for zone in range(zones):
        start = (zone * of.rows + row) * width
        for n in range(width):
            least, here = INFINITE, (start + n) * columns
            for used in range(n, of.room[zone] + 1):
                least = min(least, of.before[here + used] + of.after[here + used])
            sums.alone[zone * width + n] = INFINITE
            if least < IMPOSSIBLE:
                sums.alone[zone * width + n] = least - of.slots[start + n] + of.step[n]
    found = _add_up(sums, zones, of.width, of.lot, of.odd[row])
    for zone in range(zones):
        start = (zone * of.rows + row) * width
        for n in range(width):
            at, here = zone * width + n, (start + n) * columns
            if sums.least[at] >= IMPOSSIBLE:
                of.slots[start + n] = INFINITE
                for used in range(columns):
                    of.before[here + used] = INFINITE
                continue
            price = of.step[n] - sums.alone[at] + sums.least[at] // zones
            more = price - of.slots[start + n]
            of.slots[start + n] = price
            for used in range(columns):
                if of.before[here + used] < IMPOSSIBLE:
                    of.before[here + used] += more
    return found


def _share_ends(of: Chains, sums: Sums) -> None:
    """Improve the prices of what zones hold in the end."""
    columns, hosts, lots = of.most + 1, of.most // of.lot + 1, of.rows * of.width // of.lot
    for zone in range(of.zones):
        start = ((zone + 1) * of.rows - 1) * (of.width + 1)
        for held in range(lots + 1):
            sums.alone[zone * (lots + 1) + held] = INFINITE
        for held in range(min(lots, of.room[zone] // of.lot) + 1):
            least = INFINITE
            for n in range(of.width + 1):
                least = min(least, of.before[(start + n) * columns + held * of.lot])
            if least < IMPOSSIBLE and of.ends[zone * hosts + held] < IMPOSSIBLE:
                sums.alone[zone * (lots + 1) + held] = least
    _add_up(sums, of.zones, lots, 1, 0)
    for zone in range(of.zones):
        for held in range(hosts):
            at = zone * (lots + 1) + held
            price = INFINITE
            if held <= lots and sums.least[at] < IMPOSSIBLE:
                price = sums.least[at] // of.zones - sums.alone[at]
            of.ends[zone * hosts + held] = price


def _improve(of: Chains, sums: Sums, is_first: bool) -> int:
    """Once there and back, or `after` alone at first; what all zones pay at least, give or take
    what was rounded."""
    found = 0
    if not is_first:
        for row in range(of.rows):
            for zone in range(of.zones):
                _come_from(of, zone, row)
            _share_row(of, row, sums)
        _share_ends(of, sums)
    for row in range(of.rows - 1, -1, -1):
        for zone in range(of.zones):
            _go_to(of, zone, row)
        if not is_first:
            found = _share_row(of, row, sums)
    return found


add_up = Kernel(_add_up, _shared, _added)
improve = Kernel(
    _improve,
    _lowered,
    _come_from,
    _go_to,
    _may_hold,
    _share_row,
    _share_ends,
    _add_up,
    _shared,
    _added,
)


class Splitting:
    """Zones with prices of their own."""

    def __init__(
        self, between: Ints, step: Ints, slots: Ints, ends: Ints, room: Ints, part: Ints, lot: int
    ) -> None:
        """`slots`, `ends`: what all zones begin with, by row and slots, and by slots in the end.
        All in the units of prices."""
        zones, rows, width, most = len(room), len(slots), len(step) - 1, len(ends) - 1
        is_held = np.arange(len(ends)) <= room[:, None]
        own = np.where(is_held, ends, INFINITE)[:, ::lot]
        own_slots = np.where(np.arange(width + 1) <= room[:, None, None], slots, INFINITE)
        before, after = np.empty((2, zones * rows * (width + 1) * (most + 1)), dtype=np.int64)
        parts = (part > 0).astype(np.int64)
        odd = parts + np.concatenate(([0], parts[:-1]))
        self._of = Chains(
            np.ascontiguousarray(between).ravel(),
            step,
            own_slots.ravel(),
            own.ravel(),
            before,
            after,
            room,
            part,
            odd,
            zones,
            rows,
            width,
            most,
            lot,
        )
        longest = max(width, rows * width // lot) + 1
        first, last = np.empty((2, (zones + 1) * (ODD + 1) * longest), dtype=np.int64)
        alone, least = np.empty((2, zones * longest), dtype=np.int64)
        both = np.empty((ODD + 1) * longest, dtype=np.int64)
        self._sums = Sums(alone, least, first, last, both)
        self._once(is_first=True)

    @property
    def steps(self) -> int:
        """Of one improvement, in the innermost lines."""
        return 2 * (self._of.width + 1) * len(self._of.after)

    def _once(self, *, is_first: bool = False) -> None:
        improve.run(self.steps, self._of, self._sums, is_first)

    def improve(self, times: int) -> None:
        for _ in range(times):
            self._once()

    def priced(self) -> tuple[Ints, Ints, Ints]:
        """What each zone pays from each state on, shape (zones, rows, width + 1, most + 1), and for
        slots, shape (zones, rows, width + 1), INFINITE where that is impossible; and what
        rows pay at these prices, and all of them in the end, shape (rows + 1,)."""
        of = self._of
        after = np.where(of.after < IMPOSSIBLE, of.after, INFINITE)
        slots = np.where(of.slots < IMPOSSIBLE, of.slots, INFINITE)
        slots = slots.reshape(of.zones, of.rows, of.width + 1)
        taken = np.where(slots < INFINITE, of.step - slots, INFINITE)
        constant = [
            self._least(taken[:, row], of.width, of.lot, int(of.odd[row])) for row in range(of.rows)
        ]
        lots, held = of.rows * of.width // of.lot, of.ends.reshape(of.zones, -1)
        ends: Ints = np.full((of.zones, lots + 1), INFINITE)
        known = held[:, : lots + 1]
        ends[:, : known.shape[1]] = np.where(known < IMPOSSIBLE, -known, INFINITE)
        constant.append(self._least(ends, lots, 1, 0))
        return (
            after.reshape(of.zones, of.rows, of.width + 1, of.most + 1),
            slots,
            np.array(constant),
        )

    def _least(self, shares: Ints, most: int, lot: int, odd: int) -> int:
        of, sums = self._of, self._sums
        sums.alone[: shares.size] = shares.ravel()
        return add_up.run(of.zones * most * most, sums, of.zones, most, lot, odd)
