"""All zones at once, stage by stage, where they are few.

Column generation knows each zone's pattern and mixes them; which of them fit together is left
to branching. With up to four zones that can be said outright: a *state* is how many slots of a
row each zone holds, and how many of all rows up to it. From a row to the next, states go on to
all that fill the row. A state costs at least what has been paid on the cheapest way to it, and
what each zone pays from there on, at the prices of the root (`Prices`) to begin with: a shortest
path of its own, known in advance for all states of all zones. States that come to more than a
limit are dropped; if none is left at the end no layout costs so little. Where states are many the
prices are improved, zone by zone (`splitting`), until they are few.

What is paid may be what zones pay together: where a stage ends inside a host, all of them but
two pay at both ends of the overlap (`zigzag`). And rows end inside hosts: of all zones one alone
holds slots of a host that the rows so far hold in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from placement.compiled import Kernel
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.pricing import Prices
from placement.splitting import Splitting
from placement.steps import MUCH
from placement.transforms import INFINITE

ZONES = 4
MOST_STATES = 1_500_000  # that one row leads to, equal ones counted apart: half a second
MOST_ENTRIES = 10_000_000  # of the first row, and of tables of what zones pay: a tenth of a second
STEPS = 4  # of the gap, proved one after the other
MOST_PAID = 1 << 48  # by a zone, in price units
FEW_STATES = 20_000  # beyond which prices are improved first,
IMPROVED = 4  # so many times at once,
MOST_WORK = 500_000_000  # until that many steps were gone in all: half a second


class _Rows(NamedTuple):
    """Flat tables. `rest`: of each zone, row, slots and slots so far, what the zone pays from there
    on. `priced`: of each zone, row, slots there and slots in the next, with the zone's prices. Of
    each row and both: `paid` in truth, `lower` and `higher` what zones pay between the rows in any
    case, and if all of them but two pay more; that much together is `given` back. `constant`: by
    row, of the prices. `room`: by zone. `part`: slots of a host left over after each row."""

    rest: Ints
    priced: Ints
    paid: Ints
    lower: Ints
    higher: Ints
    given: Ints
    constant: Ints
    room: Ints
    part: Ints
    rows: int
    width: int
    most: int
    lot: int


class _States(NamedTuple):
    """`slots`, `used`: of each zone, state by state. `paid`; `left`, of the limit."""

    slots: Ints
    used: Ints
    paid: Ints
    left: Ints


def _options(
    of: _Rows, row: int, zone: int, here: int, used: int, left: int, into: Ints, more: Ints
) -> int:
    """How many slots of the next row the zone may hold for no more than is left, and what each
    costs it beyond its cheapest way; their number."""
    count, width, columns = 0, of.width + 1, of.most + 1
    begin = (zone * of.rows + row) * width
    now = of.rest[(begin + here) * columns + used]
    for n in range(width):
        if used + n > of.room[zone]:
            break
        after = of.rest[(begin + width + n) * columns + used + n]
        dearer = of.priced[((zone * (of.rows - 1) + row) * width + here) * width + n] + after - now
        if after < INFINITE and dearer <= left:
            into[zone * width + count] = n
            more[zone * width + count] = dearer
            count += 1
    return count


def _go_on(
    of: _Rows, row: int, old: _States, into: Ints, more: Ints, at: Ints, new: _States
) -> int:
    """The states of the next row; their number, which may be more than there is room for. `at`:
    for the place of each number of slots among the last zone's options."""
    many, room, width, lot = 0, len(new.paid), of.width + 1, of.lot
    lower, higher, paid, priced = of.lower, of.higher, of.paid, of.priced
    slots, used = new.slots, new.used
    given, constant = of.given[row], of.constant[row + 1]
    zone = (of.rows - 1) * width * width
    for state in range(len(old.paid)):
        left, first = old.left[state], 4 * state
        sa, sb = old.slots[first], old.slots[first + 1]
        sc, sd = old.slots[first + 2], old.slots[first + 3]
        ua, ub = old.used[first], old.used[first + 1]
        uc, ud = old.used[first + 2], old.used[first + 3]
        p = _options(of, row, 0, sa, ua, left, into, more)
        q = _options(of, row, 1, sb, ub, left, into, more)
        r = _options(of, row, 2, sc, uc, left, into, more)
        s = _options(of, row, 3, sd, ud, left, into, more)
        for n in range(width):
            at[n] = -1
        for m in range(3 * width, 3 * width + s):
            at[into[m]] = m
        ba, bb = (row * width + sa) * width, (row * width + sb) * width
        bc, bd = (row * width + sc) * width, (row * width + sd) * width
        for i in range(p):
            a = into[i]
            is_part = (ua + a) % lot > 0
            for j in range(width, width + q):
                b = into[j]
                two = left - more[i] - more[j]
                if two < 0 or (is_part and (ub + b) % lot > 0):
                    continue
                for k in range(2 * width, 2 * width + r):
                    c = into[k]
                    d = of.width - a - b - c
                    if d < 0:
                        break
                    m = at[d]
                    if m < 0 or more[k] + more[m] > two:
                        continue
                    parts = is_part + ((ub + b) % lot > 0)
                    parts += ((uc + c) % lot > 0) + ((ud + d) % lot > 0)
                    if parts > 1:
                        continue
                    w, x, y, z = ba + a, bb + b, bc + c, bd + d
                    low = lower[w] + lower[x] + lower[y] + lower[z]
                    high = higher[w] + higher[x] + higher[y] + higher[z] - given
                    pays = paid[w] + paid[x] + paid[y] + paid[z] + max(0, high - low)
                    known = (
                        priced[w]
                        + priced[x + zone]
                        + priced[y + 2 * zone]
                        + priced[z + 3 * zone]
                        + constant
                    )
                    after = two - more[k] - more[m] - pays + known
                    if after < 0:
                        continue
                    if many >= room:
                        return many + 1
                    t = 4 * many
                    slots[t], slots[t + 1], slots[t + 2], slots[t + 3] = a, b, c, d
                    used[t], used[t + 1] = ua + a, ub + b
                    used[t + 2], used[t + 3] = uc + c, ud + d
                    new.paid[many] = old.paid[state] + pays
                    new.left[many] = after
                    many += 1
    return many


go_on = Kernel(_go_on, _options)


class Abreast:
    """Proofs for one root."""

    def __init__(
        self,
        grid: BlockGrid,
        lot: int,
        capacities: Sequence[int],
        prices: Prices,
        higher: BlockGrid | None = None,
    ) -> None:
        """`capacities`: in slots. `higher`: the same with floors that all zones pay but two."""
        self._grid, self._scale = grid, prices.scale
        self.unit = 2 * gcd(*grid.weights) or 1  # of which every cut is a multiple
        rows, width, most = grid.rows, grid.width, len(prices.sizes) - 1
        room = (sorted(capacities, reverse=True) + [0] * ZONES)[:ZONES]
        between = _between(grid) * self._scale
        above = between
        given: Ints = np.zeros(rows - 1, dtype=np.int64)
        if higher is not None:
            above = _between(higher) * self._scale
            more = [h - f for h, f in zip(higher.floors, grid.floors, strict=True)]
            given = 2 * np.array(more, dtype=np.int64) * self._scale
        step = grid.step * self._scale
        part = (np.arange(1, rows + 1) * width) % lot
        zones = np.array(room)
        self._split = Splitting(between, step, prices.slots, -prices.sizes, zones, part, lot)
        self._work = 0
        nothing: Ints = np.zeros(0, dtype=np.int64)
        self._of = _Rows(
            nothing,
            nothing,
            (between + step).ravel(),
            between.ravel(),
            above.ravel(),
            given,
            nothing,
            zones,
            part,
            rows,
            width,
            most,
            lot,
        )
        self._between = between
        self._priced()

    def _priced(self) -> None:
        """At the prices of the time."""
        rest, own, constant = self._split.priced()
        priced = np.minimum(self._between + own[:, 1:, None, :], INFINITE)
        self._of = self._of._replace(rest=rest.ravel(), priced=priced.ravel(), constant=constant)

    def improve(self) -> bool:
        """Improve the prices for a while; False where that was done long enough."""
        if self._work >= MOST_WORK:
            return False
        self._work += IMPROVED * self._split.steps
        self._split.improve(IMPROVED)
        self._priced()
        return True

    def least(self, limit: int, states_at_most: int = MOST_STATES) -> tuple[int, int]:
        """A doubled cut that no layout beats, at most `limit`, and the most states that a row had;
        0 if they are too many."""
        of, states = self._of, self._first(limit)
        sizes = (k * states_at_most for k in (ZONES, ZONES, 1, 1))
        room = _States(*(np.empty(size, dtype=np.int64) for size in sizes))
        into, more, at = np.empty((3, ZONES * (of.width + 1)), dtype=np.int64)
        most = len(states.paid)
        for row in range(of.rows - 1):
            many = go_on.run(len(states.paid) * of.width, of, row, states, into, more, at, room)
            if many > states_at_most:
                return 0, many
            most = max(most, many)
            states = self._cheapest(room, many)
        if not len(states.paid):
            return limit, most
        return min(limit, int(states.paid.min()) // self._scale - self._grid.offset), most

    def _first(self, limit: int) -> _States:
        """States of the first row."""
        of = self._of
        held = np.arange(of.width + 1)
        a, b, c = (x.ravel() for x in np.meshgrid(held, held, held, indexing="ij"))
        slots = np.stack([a, b, c, of.width - a - b - c], axis=1)
        broken = slots % of.lot
        is_one = ((broken == 0) | (broken == of.part[0])).all(axis=1)
        is_one &= np.count_nonzero(broken, axis=1) <= int(of.part[0] > 0)
        slots = slots[(slots >= 0).all(axis=1) & (slots <= of.room).all(axis=1) & is_one]
        columns = of.most + 1
        zone = np.arange(ZONES) * of.rows * (of.width + 1)
        rest = of.rest[(zone + slots) * columns + slots].sum(axis=1)
        paid = (self._grid.step * self._scale)[slots].sum(axis=1)
        below = ((limit - 1) // self.unit * self.unit + self._grid.offset) * self._scale
        left = below - paid - rest - int(of.constant[1:].sum())
        keep = left >= 0
        slots = slots[keep]
        return _States(slots.ravel(), slots.ravel(), paid[keep], left[keep])

    def _cheapest(self, room: _States, many: int) -> _States:
        """Each state once, with the least that was paid on a way to it."""
        slots = room.slots[: ZONES * many].reshape(-1, ZONES)
        used = room.used[: ZONES * many].reshape(-1, ZONES)
        key = np.zeros(many, dtype=np.int64)
        for held, numbers in ((slots, self._of.width + 1), (used, self._of.most + 1)):
            for zone in range(ZONES - 1):
                key = key * numbers + held[:, zone]
        order = np.lexsort((-room.left[:many], key))
        is_new = np.ones(many, dtype=np.bool_)
        is_new[1:] = np.diff(key[order]) > 0
        kept = order[is_new]
        return _States(
            slots[kept].ravel(), used[kept].ravel(), room.paid[:many][kept], room.left[:many][kept]
        )


def is_small(grid: BlockGrid, capacities: Sequence[int], prices: Prices) -> bool:
    """Whether there are few zones and few states of each, and no price is near the end of what
    fits into 64 bits, however often they are improved. `capacities`: in slots."""
    width = grid.width + 1
    most = grid.rows * width**2 * (max(capacities) + 1)
    is_told = (width * (max(capacities) + 1)) ** (ZONES - 1) < 1 << 63  # by one number
    is_few = sum(c > 0 for c in capacities) <= ZONES and max(most, width**3) <= MOST_ENTRIES
    if not is_few or not is_told or grid.rows == 1 or np.any(grid.joint >= MUCH):
        return False
    paid = np.abs(prices.slots).max(axis=1).sum() + np.abs(prices.sizes).max()
    return int(paid) + int(grid.joint.max(axis=1).sum()) * prices.scale < MOST_PAID


def proved(root: Abreast, known: int, incumbent: int) -> int:
    """The most that can be proved of a gap in a few steps, where `known` is: each has several
    times as many states as the one before."""
    best, before = known, 0
    for k in range(1, STEPS + 1):
        limit = known + -(-(incumbent - known) * k // STEPS)
        limit = -(-limit // root.unit) * root.unit
        found, states = root.least(limit, FEW_STATES)
        while states > FEW_STATES and root.improve():
            found, states = root.least(limit, FEW_STATES)
        if states > FEW_STATES:
            found, states = root.least(limit)
        best = max(best, found)
        if found < limit or states * states > before * MOST_STATES > 0:
            break
        before = states
    return best


def _between(grid: BlockGrid) -> Ints:
    """What a zone pays from n' slots of a row to n of the next. Shape: (rows - 1, width + 1,
    width + 1)."""
    slots = np.arange(grid.width + 1)
    paid = grid.joint[:, np.abs(slots[:, None] - slots)]
    if grid.floors:
        paid = paid + np.array(grid.floors)[:, None, None]
        for n in (0, grid.width):
            paid[:, n, n] -= grid.floors
    return np.asarray(paid)
