"""One table that prices the zone patterns of every capacity at once.

A pattern says how many slots of each row a zone holds: n = (n_1 .. n_S). Given a
price per slot and per row touched, the cheapest pattern is a shortest path over rows
with state (slots of this row, hosts used so far); the step between rows costs
row_weight |n - n'|, whose minimum over n' is two running minima (a distance transform).
All arithmetic is in int64: a bound computed here is exact, not a float's word.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid

INFINITE = np.int64(1) << 60


class Pricer:
    """Prices patterns of a grid, again and again at different prices.

    `by_used[u]`: least cost of a pattern of u hosts, `best[c]`: of 1 to c hosts. Shapes:
    (capacity + 1,).
    Cost: O(rows x width x capacity), 3 ms for 16 x 128 x 384. The tables are allocated
    once: fresh pages cost more than the arithmetic.
    """

    def __init__(self, rows: int, width: int, capacity: int, row_weight: int) -> None:
        slots = min(width, capacity) + 1
        shape = (slots, capacity + 1)
        self._climb = row_weight * np.arange(slots, dtype=np.int64)[:, None]
        self._tables = [np.empty(shape, dtype=np.int64) for _ in range(rows)]
        self._scratch = [np.empty(shape, dtype=np.int64) for _ in range(3)]
        # Tables shift right by their own n, so that column u - n lands in column u: the
        # buffer keeps infinite columns on the left, and a strided view slides over it.
        buffer = np.full((slots, slots + capacity + 1), INFINITE)
        down, right = buffer.strides
        self._nearest = buffer[:, slots:]
        self._shifted = np.lib.stride_tricks.as_strided(self._nearest, shape, (down - right, right))
        self.best: Ints = np.empty(capacity + 1, dtype=np.int64)

    def price(self, cost: Ints, size_price: Ints) -> None:
        """Fill the tables. `cost[s, n]`: of n slots of row s. `size_price[u]`: taken off
        a pattern of u hosts. Both in the units of row_weight.
        """
        self._cost = cost[:, : len(self._climb)]
        self._first_row(self._tables[0])
        for previous, table, row_cost in zip(
            self._tables, self._tables[1:], self._cost[1:], strict=False
        ):
            self._transform(previous, self._nearest)
            np.add(self._shifted, row_cost[:, None], out=table)
            np.minimum(table, INFINITE, out=table)
        self.by_used = self._tables[-1].min(axis=0) - size_price
        self.by_used[0] = INFINITE  # the empty pattern is the caller's business
        np.minimum.accumulate(self.by_used, out=self.best)

    def _first_row(self, table: Ints) -> None:
        slots = np.arange(len(self._climb))
        table.fill(INFINITE)
        table[slots, slots] = self._cost[0]

    def _transform(self, table: Ints, out: Ints) -> None:
        """out[n, u] = min over n' of table[n', u] + row_weight |n - n'|."""
        first, second, third = self._scratch
        np.subtract(table, self._climb, out=first)
        up = _running_min(first, second)
        up += self._climb
        spare = second if up is first else first
        np.add(table, self._climb, out=third)
        down = _running_min(third[::-1], spare[::-1])[::-1]
        down -= self._climb
        np.minimum(up, down, out=out)

    def pattern(self, capacity: int) -> tuple[int, ...]:
        """A cheapest pattern of 1 to `capacity` hosts; ties to fewer hosts, fewer slots."""
        final = self._tables[-1]
        used = int(np.argmin(self.by_used[: capacity + 1]))
        n = int(np.argmin(final[:, used]))
        counts = [n]
        for row in range(len(self._tables) - 1, 0, -1):
            rest = self._tables[row][n, used] - self._cost[row, n]
            used -= n
            ways = self._tables[row - 1][:, used] + np.abs(self._climb[:, 0] - self._climb[n, 0])
            n = int(np.argmin(np.abs(ways - rest)))
            counts.append(n)
        return tuple(reversed(counts))


def _running_min(table: Ints, other: Ints) -> Ints:
    """Prefix minima along the first axis, in one of the two buffers; both are used up.

    By doubling: a minimum over 2k rows is one over k rows and the k before them. These
    are long vector operations, a third of the time of minimum.accumulate.
    """
    reach = 1
    while reach < len(table):
        np.minimum(table[reach:], table[:-reach], out=other[reach:])
        other[:reach] = table[:reach]
        table, other = other, table
        reach *= 2
    return table


def pattern_cost(grid: BlockGrid, pattern: tuple[int, ...]) -> int:
    """Doubled cost of one zone, before the constant that the grid subtracts."""
    moves = sum(abs(a - b) for a, b in pairwise(pattern))
    return int(sum(grid.step[n] for n in pattern)) + grid.row_weight * moves
