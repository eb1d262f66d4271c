"""The master program of column generation, and the patterns it chooses from.

See docs/engine.md, "The proof".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from muster.structs import struct
from placement.fabric.tree import Floats, Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import ZonePattern
from placement.solver import ColumnLp, LpSolution

WHOLE_GANG = -1  # in place of a row
KEPT = 1024  # tables of counters: some 10 KB each


@struct(frozen=True, slots=True)
class Counter:
    """A whole-number function of a zone's pattern, summed over the zones, which cuts and branches
    bound.

    Such stairs are mixed-integer rounding cuts of what the zones cover together. With n rise / run
    = w + r, w whole and 0 <= r < 1, a zone climbs w steps and r run / top of the next one, at most
    all of it. That is subadditive and grows with n, so zones climb together what one that holds
    everything does.
    """

    row: int
    least: int = 1
    rise: int = 0
    run: int = 1
    top: int = 0

    def values(self, length: int) -> Ints:
        """f(n) for n = 0 .. length - 1, of one row or of the gang; not to be written to."""
        return _counted(self, length)


@lru_cache(maxsize=KEPT)
def _counted(counter: Counter, length: int) -> Ints:
    """f(n) for n = 0 .. length - 1. Every pricing round and every column asks for the same."""
    n = np.arange(length)
    if counter.rise:
        whole, rest = np.divmod(n * counter.rise, counter.run)
        values = whole * counter.top + np.minimum(rest, counter.top)
    else:
        values = (n >= counter.least).astype(np.int64)
    values.flags.writeable = False
    return np.asarray(values)


class Held:
    """The slots of patterns, prepared to be counted by many counters. Shape of `patterns`:
    (patterns, rows)."""

    def __init__(self, patterns: Ints) -> None:
        self._by_row = np.ascontiguousarray(patterns.T)
        self._in_all: Ints = patterns.sum(axis=1)
        self._length = 1 << int(self._in_all.max(initial=0)).bit_length()

    def counted(self, counter: Counter) -> Ints:
        """Evaluate the counter on each pattern. Shape: (patterns,)."""
        held = self._in_all if counter.row == WHOLE_GANG else self._by_row[counter.row]
        return np.asarray(_counted(counter, self._length)[held])


Range = tuple[int, int]


class Master:
    """The linear program of one node: covering rows, then one row for each counter."""

    def __init__(self, grid: BlockGrid, ranges: Mapping[Counter, Range], norm: float) -> None:
        """Patterns cost so many times `norm`."""
        self.grid = grid
        self.ranges: dict[Counter, Range] = {}
        self._norm = norm
        self._patterns: dict[ZonePattern, None] = {}
        self._array: Ints = np.empty((0, grid.rows), dtype=np.int64)
        self._lp = ColumnLp()
        width = np.full(grid.rows, grid.width)
        self._lp.add_rows(width, np.full(grid.rows, np.inf))
        self.open(ranges)

    def open(self, ranges: Mapping[Counter, Range]) -> None:
        """Give each counter a row in the linear program."""
        if not ranges:
            return
        self.ranges |= ranges
        held, units = Held(self._array), []
        for counter in ranges:
            whole = self.grid.size if counter.row == WHOLE_GANG else self.grid.width
            units.append(int(counter.values(whole + 1)[-1]) if counter.rise else 1)
        counted = np.array([held.counted(counter) for counter in ranges])
        low, high = np.array([*ranges.values()]).T
        self._lp.add_rows(low, high, counted, np.array(units))

    def add(self, patterns: Iterable[ZonePattern]) -> list[ZonePattern]:
        """Make each pattern a column, unless it is one."""
        fresh = [p for p in dict.fromkeys(patterns) if p not in self._patterns]
        if not fresh:
            return []
        self._patterns.update(dict.fromkeys(fresh))
        held = np.array(fresh, dtype=np.int64)
        self._array = np.concatenate([self._array, held])
        cost = self.grid.step[held].sum(axis=1) + self.grid.between(held)
        counting = Held(held)
        by_row = np.array([*held.T, *map(counting.counted, self.ranges)])
        self._lp.add_columns(cost / self._norm, by_row.T)
        return fresh

    @property
    def entries(self) -> int:
        """Size of the linear program: rows times columns."""
        return (self.grid.rows + len(self.ranges)) * len(self._patterns)

    def solve(self) -> LpSolution | None:
        return self._lp.solve()

    def cost_within(self, counter: Counter, bounds: Range) -> float | None:
        """Return the least cost with `counter` in these bounds, which are not kept; None if the
        solver gives up. The counter must have a row."""
        row = self.grid.rows + list(self.ranges).index(counter)
        self._lp.set_bounds(row, *bounds)
        cost = self._lp.cost()
        self._lp.set_bounds(row, *self.ranges[counter])
        return cost

    def prices(self, solution: LpSolution) -> tuple[tuple[float, ...], dict[Counter, float]]:
        """Return the duals of the covering rows, and of the counters."""
        rows = self.grid.rows
        return solution.duals[:rows], dict(zip(self.ranges, solution.duals[rows:], strict=True))

    def support(self, solution: LpSolution) -> tuple[Ints, Floats]:
        """Return the patterns in use, shape (patterns, rows), and how often each is used, shape
        (patterns,)."""
        share = solution.columns
        used = np.flatnonzero(share > 1e-7)
        return self._array[used], share[used]


class Pool:
    """All patterns met so far, as arrays, so that the cheapest at given prices are found fast."""

    def __init__(self, grid: BlockGrid, norm: float) -> None:
        """Costs are divided by `norm`, as in the master."""
        self._grid = grid
        self._norm = norm
        self._seen: dict[ZonePattern, None] = {}
        self._array: Ints = np.empty((0, grid.rows), dtype=np.int64)
        self._cost: Floats = np.empty(0)
        self._keep()

    def _keep(self) -> None:
        """Store the slots and counts of the patterns, which every pricing round reads."""
        self._held, self._slots = Held(self._array), self._array.astype(np.float64)
        self._counted: dict[Counter, Floats] = {}

    def add(self, patterns: Iterable[ZonePattern]) -> None:
        fresh = [p for p in dict.fromkeys(patterns) if p not in self._seen]
        if not fresh:
            return
        self._seen.update(dict.fromkeys(fresh))
        array = np.array(fresh, dtype=np.int64)
        cost = self._grid.step[array].sum(axis=1) + self._grid.between(array)
        self._array = np.concatenate([self._array, array])
        self._cost = np.concatenate([self._cost, cost / self._norm])
        self._keep()

    def cheapest(
        self, slot_price: Sequence[float], price: Mapping[Counter, float], most: int, below: float
    ) -> list[ZonePattern]:
        """Return at most `most` patterns of reduced cost under `below`, the cheapest first."""
        paid = {counter: dual for counter, dual in price.items() if dual}
        terms = np.array(
            [self._cost - self._slots @ np.array(slot_price), *map(self._counts, paid)]
        )
        terms[1:] *= np.array([*paid.values()])[:, None]
        # Taken off one after the other: sums in another order would be rounded otherwise.
        reduced = np.subtract.reduce(terms)
        under = np.flatnonzero(reduced < below)
        order = under[np.argsort(reduced[under], kind="stable")[:most]]
        return [tuple(pattern) for pattern in self._array[order].tolist()]

    def _counts(self, counter: Counter) -> Floats:
        """Evaluate the counter on each pattern."""
        known = self._counted.get(counter)
        if known is None:
            known = self._counted[counter] = self._held.counted(counter).astype(np.float64)
        return known


def rectangles(grid: BlockGrid, capacities: Sequence[int], lot: int) -> list[ZonePattern]:
    """Return bands of consecutive rows of one width, as wide as each capacity allows, in whole
    lots. Capacities descend."""
    first, more = (part.ravel() for part in np.indices((grid.rows, grid.rows)))
    is_inside = first + more < grid.rows
    first, height = first[is_inside], 1 + more[is_inside]
    row = np.arange(grid.rows)
    width = np.minimum(grid.width, np.array(capacities)[:, None] // height)
    is_new = (width > 0) & (height * width % lot == 0)
    is_new[1:] &= width[1:] != width[:-1]
    _, band = np.nonzero(is_new)
    bands = (row >= first[band, None]) & (row < (first + height)[band, None])
    return [tuple(pattern) for pattern in (bands * width[is_new][:, None]).tolist()]
