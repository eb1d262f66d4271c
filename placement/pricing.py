"""One table that prices the zone patterns of every capacity at once.

A pattern says how many slots of each row a zone holds: n = (n_1 .. n_S). Given a
price per slot and per row touched, the cheapest pattern is a shortest path over rows
with state (slots of this row, hosts used so far). The step between rows costs a convex
function of |n - n'|, given as slopes. The minimum over n' of one slope is two running
minima (a distance transform), and slope after slope is transform after transform: a sweep
there and back over the rows of the table where a slope goes on to the end, else windows.
All arithmetic is in int64: a bound computed here is exact, not a float's word.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid, Slopes, joint_cost

INFINITE = np.int64(1) << 60
LONG = 96  # entries of a row from which numpy takes row after row about as fast as a whole table
IN_CACHE = 16_384  # entries of the parts of a table that windows slide over: 128 KB


class Pricer:
    """Prices patterns of a grid, again and again at different prices.

    `by_used[u]`: least cost of a pattern of u hosts, `best[c]`: of 1 to c hosts. Shapes:
    (capacity + 1,).
    Cost: O(rows x width x capacity), 5 ms for 16 x 128 x 384. The tables are allocated
    once: fresh pages cost more than the arithmetic.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        capacity: int,
        slopes: Sequence[Slopes],
        floors: Sequence[int] = (),
        lot: int = 1,
        has_patterns: bool = True,
    ) -> None:
        """`slopes`, `floors`: as of a BlockGrid. `lot`: a pattern's slots number a multiple
        of it. `has_patterns`: whether `pattern` is asked for; what a pattern costs takes two
        tables only."""
        self._broken = np.arange(capacity + 1) % lot != 0
        slots = min(width, capacity) + 1
        self._width = width
        shape = (slots, capacity + 1)
        self._slopes = [_cut_short(each, slots - 1) for each in slopes]
        self._slots = np.arange(slots)
        self._floors = list(floors) or [0] * (rows - 1)
        self._joint = [joint_cost(each, slots - 1) for each in slopes]
        # Rows of which floors are not paid: empty ones, and full ones where a zone holds one.
        self._free = (slice(0, 1), slice(width, slots))
        kept = rows if has_patterns else min(2, rows)
        tables = [np.empty(shape, dtype=np.int64) for _ in range(kept)]
        self._tables = [tables[s % kept] for s in range(rows)]
        self._block = max(1, min(capacity + 1, IN_CACHE // slots))
        self._scratch = [np.empty((slots, self._block), dtype=np.int64) for _ in range(3)]
        self._both: Ints = np.empty((slots, 2 * (capacity + 1)), dtype=np.int64)
        self._both_rows = list(self._both)
        self._moved: Ints = np.empty(2 * (capacity + 1), dtype=np.int64)
        # Tables shift right by their own n, so that column u - n lands in column u: the
        # buffer keeps infinite columns on the left, and a strided view slides over it.
        buffer = np.full((slots, slots + capacity + 1), INFINITE)
        down, right = buffer.strides
        self._nearest = buffer[:, slots:]
        self._shifted = np.lib.stride_tricks.as_strided(self._nearest, shape, (down - right, right))
        self.best: Ints = np.empty(capacity + 1, dtype=np.int64)
        self.by_used: Ints = np.empty(capacity + 1, dtype=np.int64)

    def price(self, cost: Ints, size_price: Ints, link_price: Ints | None = None) -> None:
        """Fill the tables. `cost[s, n]`: of n slots of row s. `size_price[u]`: taken off
        a pattern of u hosts; `link_price[s]`: off one that holds some of row s and some of
        row s + 1. All in the units of the slopes.
        """
        links = np.zeros(len(self._tables), dtype=np.int64) if link_price is None else link_price
        self._link_price = links
        self._cost = cost[:, : len(self._tables[0])]
        self._first_row(self._tables[0])
        for s, (previous, table) in enumerate(pairwise(self._tables)):
            self._transform(s, previous)
            if links[s]:
                self._linked(s, previous, links[s])
            np.add(self._shifted, self._cost[s + 1][:, None], out=table)
            np.minimum(table, INFINITE, out=table)
        self.by_used = self._tables[-1].min(axis=0) - size_price
        self.by_used[self._broken] = INFINITE
        self.by_used[0] = INFINITE  # the empty pattern is the caller's business
        np.minimum.accumulate(self.by_used, out=self.best)

    def _first_row(self, table: Ints) -> None:
        table.fill(INFINITE)
        table[self._slots, self._slots] = self._cost[0]

    def _transform(self, s: int, table: Ints) -> None:
        """nearest[n, u] = min over n' of table[n', u] + what |n - n'| costs after row s."""
        start = table
        for weight, reach in self._slopes[s]:
            if reach >= len(table) - 1 and table.shape[1] >= LONG:
                self._sweep(table, weight)
            else:
                self._slide(table, weight, reach)
            table = self._nearest
        if self._floors[s]:
            self._nearest += self._floors[s]
            for same in self._free:
                np.minimum(self._nearest[same], start[same], out=self._nearest[same])

    def _sweep(self, table: Ints, weight: int) -> None:
        """`_nearest` of one slope without an end; up and down side by side, in one go."""
        length, both, moved = table.shape[1], self._both, self._moved
        both[:, :length], both[:, length:] = table, table[::-1]
        for last, here in pairwise(self._both_rows):
            np.add(last, weight, out=moved)
            np.minimum(moved, here, out=here)
        np.minimum(both[:, :length], both[::-1, length:], out=self._nearest)

    def _slide(self, table: Ints, weight: int, reach: int) -> None:
        """The same of a slope of `reach` slots; part by part, for windows pass often."""
        climb = weight * self._slots[:, None]
        for begin in range(0, table.shape[1], self._block):
            part = table[:, begin : begin + self._block]
            first, second, third = (each[:, : part.shape[1]] for each in self._scratch)
            np.subtract(part, climb, out=first)
            up = _running_min(first, second, reach)
            up += climb
            spare = second if up is first else first
            np.add(part, climb, out=third)
            down = _running_min(third[::-1], spare[::-1], reach)[::-1]
            down -= climb
            np.minimum(up, down, out=self._nearest[:, begin : begin + self._block])

    def _linked(self, s: int, table: Ints, link: int) -> None:
        """As `_transform`, where going from some slots to some is worth `link`."""
        from_none = table[0].copy()
        table[0] = INFINITE
        self._transform(s, table)
        table[0] = from_none
        self._nearest[1:] -= link
        paid = self._joint[s] + self._floors[s] * (self._slots > 0)
        np.minimum(self._nearest, from_none + paid[:, None], out=self._nearest)

    def pattern(self, capacity: int) -> tuple[int, ...]:
        """A cheapest pattern of 1 to `capacity` hosts; ties to fewer hosts, fewer slots."""
        final = self._tables[-1]
        used = int(np.argmin(self.by_used[: capacity + 1]))
        n = int(np.argmin(final[:, used]))
        counts = [n]
        for row in range(len(self._tables) - 1, 0, -1):
            rest = self._tables[row][n, used] - self._cost[row, n]
            used -= n
            ways = self._tables[row - 1][:, used]
            ways = ways + self._joint[row - 1][np.abs(self._slots - n)] + self._floors[row - 1]
            if n in (0, self._width):
                ways[n] -= self._floors[row - 1]
            ways[1:] -= self._link_price[row - 1] * (n > 0)
            n = int(np.argmin(np.abs(ways - rest)))
            counts.append(n)
        return tuple(reversed(counts))


def _cut_short(slopes: Slopes, most: int) -> Slopes:
    """The same costs of differences up to `most`, with reaches up to it; where the last slope
    gets there it goes on to the end, for dearer slots come after cheaper ones."""
    reaches = [min(reach, most) for _, reach in slopes]
    if reaches and sum(reaches) >= most:
        reaches[-1] = most
    return tuple((weight, reach) for (weight, _), reach in zip(slopes, reaches, strict=True))


def _running_min(table: Ints, other: Ints, reach: int) -> Ints:
    """Minima over a row and the `reach` before it, in one of the two buffers; both are
    used up.

    By doubling: a minimum over 2k rows is one over k rows and the k before them. These
    are long vector operations, a third of the time of minimum.accumulate.
    """
    window = 1
    while window <= reach and window < len(table):
        step = min(window, reach + 1 - window)
        np.minimum(table[step:], table[:-step], out=other[step:])
        other[:step] = table[:step]
        table, other = other, table
        window += step
    return table


def pattern_cost(grid: BlockGrid, pattern: tuple[int, ...]) -> int:
    """Doubled cost of one zone, before the constant that the grid subtracts."""
    held = np.array([pattern], dtype=np.int64)
    return int(grid.step[held].sum() + grid.between(held)[0])
