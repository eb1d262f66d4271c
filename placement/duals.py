"""Prices of a master program's solution, in whole units: what slots, sizes and links are worth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.master import EVERY_ROW, WHOLE_GANG, Counter, Master, Range
from placement.milp import ARTIFICIAL, LpSolution
from placement.pricing import Prices


class Duals:
    """Rounds duals for patterns of up to `largest` hosts. Any prices make a valid bound; those
    above `highest` would overflow a pattern's sum."""

    def __init__(self, grid: BlockGrid, norm: float, largest: int) -> None:
        """`norm`: costs of the master are in these."""
        self._grid, self._norm, self._largest = grid, norm, largest
        self._highest = (1 << 57) // (largest + 64 * grid.rows)
        # How many price units make one cost unit: as fine as int64 has room for, with the
        # prices of the master's artificial columns still below `highest`.
        self.scale = max(1, min(1 << 24, int(self._highest / (2 * ARTIFICIAL * norm))))
        self._step = grid.step * self.scale
        self._known: tuple[Master, int, _Counted] | None = None

    def prices(self, master: Master, solution: LpSolution) -> Prices:
        g, highest = self._grid, self._highest
        counted = self._counted(master)
        scaled = np.array(solution.duals) * self._norm * self.scale
        duals = np.rint(np.clip(scaled, -highest, highest)).astype(np.int64)
        slot = duals[: g.rows] if master.is_equal else np.maximum(0, duals[: g.rows])
        price = np.clip(duals[g.rows :], -counted.most, counted.most)
        cost = self._step - slot[:, None] * np.arange(g.width + 1, dtype=np.int64)
        of_row = price[counted.by_row]
        np.subtract.at(cost, counted.rows, of_row[:, None] * counted.in_row)
        cost -= price[counted.by_every] @ counted.in_every
        links = np.zeros(g.rows, dtype=np.int64)
        np.add.at(links, counted.link_rows, price[counted.by_link])
        constant = [*(g.width * each for each in slot.tolist()), 0]  # the gang's comes last
        bounds = np.where(price > 0, counted.low, counted.high)
        for place, each, bound in zip(counted.places, price.tolist(), bounds.tolist(), strict=True):
            constant[place] += each * bound
        sizes = price[counted.by_size] @ counted.in_all
        return Prices(cost, sizes, links, tuple(constant), self.scale)

    def _counted(self, master: Master) -> _Counted:
        """Made anew when the master has more counters."""
        many = len(master.ranges)
        if self._known is None or self._known[:2] != (master, many):
            made = _Counted(
                master.ranges, self._grid.width, self._largest, self._highest, self.scale
            )
            self._known = master, many, made
        return self._known[2]


class _Counted:
    """What the counters of a master count, as tables.

    `by_row`, `by_every`, `by_size`, `by_link`: which of them count slots of a row, of every row,
    hosts of the whole gang, links; `in_row`, `in_every`, `in_all`: what those count of 0, 1, ..
    `most`: their prices at most; `places`: the row whose constant they are part of, the last one
    for the whole gang and every row.
    """

    def __init__(
        self, ranges: Mapping[Counter, Range], width: int, largest: int, highest: int, scale: int
    ) -> None:
        every = list(ranges)
        kind = [_kind(counter) for counter in every]
        self.by_row, self.by_every, self.by_size, self.by_link = (
            np.array([k for k, each in enumerate(kind) if each == wanted], dtype=np.int64)
            for wanted in range(4)
        )
        rows = np.array([c.row for c in every], dtype=np.int64)
        self.rows, self.link_rows = rows[self.by_row], rows[self.by_link]
        self.most: Ints = np.full(len(every), highest, dtype=np.int64)

        def table(which: Ints, length: int) -> Ints:
            counted = [every[k].values(length) for k in which]
            values: Ints = np.array(counted, dtype=np.int64).reshape(-1, length)
            self.most[which] //= np.maximum(1, values[:, -1])
            return values

        self.in_row, self.in_every = table(self.by_row, width + 1), table(self.by_every, width + 1)
        self.in_all = table(self.by_size, largest + 1)
        for k, counter in enumerate(every):
            if counter.turn and counter.price:
                self.most[k] = counter.price * scale
        self.low, self.high = np.array(list(ranges.values()), dtype=np.int64).reshape(-1, 2).T
        self.places = [max(c.row, WHOLE_GANG) + c.is_link for c in every]


def _kind(counter: Counter) -> int:
    """0 of a row, 1 of every row, 2 of the whole gang, 3 a link."""
    if counter.is_link:
        return 3
    return {EVERY_ROW: 1, WHOLE_GANG: 2}.get(counter.row, 0)
