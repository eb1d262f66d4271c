"""Prices of a master program's solution, in whole units: what slots, sizes and links are worth.

See docs/engine.md, "The proof".
"""

from __future__ import annotations

import numpy as np

from placement.bound.pricing import Prices
from placement.grid.block_grid import BlockGrid
from placement.proof.master import Master
from placement.solver import ARTIFICIAL, LpSolution


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

    def prices(self, master: Master, solution: LpSolution) -> Prices:
        g, highest = self._grid, self._highest
        counted = master.counted
        scaled = np.array(solution.duals) * self._norm * self.scale
        duals = np.rint(np.clip(scaled, -highest, highest)).astype(np.int64)
        slot = duals[: g.rows] if master.is_equal else np.maximum(0, duals[: g.rows])
        most = highest // np.maximum(1, counted.last)
        price = np.clip(duals[g.rows :], -most, most)
        cost = self._step - slot[:, None] * np.arange(g.width + 1, dtype=np.int64)
        of_row = price[counted.by_row]
        np.subtract.at(cost, counted.rows, of_row[:, None] * counted.in_row)
        cost -= price[counted.by_every] @ counted.in_every
        links = np.zeros(g.rows, dtype=np.int64)
        np.add.at(links, counted.link_rows, price[counted.by_link])
        constant = [*(g.width * each for each in slot.tolist()), 0]  # the gang's comes last
        bounds = np.where(price > 0, counted.low, counted.high)
        paid = zip(counted.places.tolist(), price.tolist(), bounds.tolist(), strict=True)
        for place, each, bound in paid:
            constant[place] += each * bound
        sizes = price[counted.by_size] @ counted.in_all
        return Prices(cost, sizes, links, tuple(constant), self.scale)
