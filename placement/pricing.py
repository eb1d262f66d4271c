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


class PricingTable:
    """Cheapest patterns for one set of prices.

    `best[c]`: least cost of a pattern of 1 to c hosts. Shape: (capacity + 1,).
    Cost: O(rows x width x capacity), 8 ms for 16 x 128 x 384.
    """

    def __init__(self, grid: BlockGrid, capacity: int, step: Ints, slot: Ints, touch: Ints) -> None:
        """`step`: cost of n slots, shape (width + 1,). `slot`, `touch`: what a row pays
        for each slot and for being touched, shape (rows,); all in the same scaled units.
        """
        self._most = min(grid.width, capacity)
        self._capacity = capacity
        counts = np.arange(self._most + 1, dtype=np.int64)
        touched = (counts > 0).astype(np.int64)
        self._cost = (
            step[None, : self._most + 1] - slot[:, None] * counts - touch[:, None] * touched
        )
        self._tables: list[Ints] = []

    def fill(self, row_weight: int) -> None:
        """Run the shortest path. `row_weight` in the scaled units."""
        width, capacity = self._most + 1, self._capacity + 1
        self._climb = row_weight * np.arange(width, dtype=np.int64)[:, None]
        first = np.full((width, capacity), INFINITE)
        first[np.arange(width), np.arange(width)] = self._cost[0]
        self._tables = [first]
        # Rows shifted right by their own n, so that column u - n lands in column u: the
        # buffer keeps `width` infinite columns on the left, and a strided view slides.
        buffer = np.full((width, width + capacity), INFINITE)
        stride_row, stride_column = buffer.strides
        shifted = np.lib.stride_tricks.as_strided(
            buffer[:, width:], (width, capacity), (stride_row - stride_column, stride_column)
        )
        for cost in self._cost[1:]:
            self._transform(self._tables[-1], buffer[:, width:])
            table = shifted + cost[:, None]
            np.minimum(table, INFINITE, out=table)
            self._tables.append(table)
        self._by_used = self._tables[-1].min(axis=0)
        self._by_used[0] = INFINITE  # the empty pattern is the caller's business
        self.best = np.minimum.accumulate(self._by_used)

    def _transform(self, table: Ints, out: Ints) -> None:
        """out[n, u] = min over n' of table[n', u] + row_weight |n - n'|."""
        np.subtract(table, self._climb, out=out)
        np.minimum.accumulate(out, axis=0, out=out)
        out += self._climb
        down = table + self._climb
        down = np.minimum.accumulate(down[::-1], axis=0)[::-1]
        down -= self._climb
        np.minimum(out, down, out=out)

    def pattern(self, capacity: int) -> tuple[int, ...]:
        """A cheapest pattern of 1 to `capacity` hosts; ties to fewer hosts, fewer slots."""
        final = self._tables[-1]
        used = int(np.argmin(self._by_used[: capacity + 1]))
        n = int(np.argmin(final[:, used]))
        counts = [n]
        for row in range(len(self._tables) - 1, 0, -1):
            rest = self._tables[row][n, used] - self._cost[row, n]
            used -= n
            ways = self._tables[row - 1][:, used] + np.abs(self._climb[:, 0] - self._climb[n, 0])
            n = int(np.argmin(np.abs(ways - rest)))
            counts.append(n)
        return tuple(reversed(counts))


def pattern_cost(grid: BlockGrid, pattern: tuple[int, ...]) -> int:
    """Doubled cost of one zone, before the constant that the grid subtracts."""
    moves = sum(abs(a - b) for a, b in pairwise(pattern))
    return int(sum(grid.step[n] for n in pattern)) + grid.row_weight * moves
