"""What domains of given capacities cut at least, from sizes alone.

A part of n blocks costs at least f(n), the cheapest pattern of n blocks on the grid
(`pricing`). Parts that hold all blocks and respect the capacities cost at least the
least sum of f: a dynamic program over domains. Where blocks come in near-boxes that is
what the best packing reaches, and it takes a millisecond where the integer master over
patterns takes a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.bounds import attainable
from placement.fabric import Ints
from placement.grid import MUCH, BlockGrid
from placement.layout import layout_cost
from placement.pricing import Pricer, pattern_cost
from placement.slicing import Region

MOST_ENTRIES = 4_000_000  # of the pricing tables; beyond that they take a second or more


def is_priceable(grid: BlockGrid, capacity: int) -> bool:
    """Whether patterns of so many hosts can be priced in reasonable time."""
    return _entries(grid, capacity) <= MOST_ENTRIES


def _entries(grid: BlockGrid, capacity: int) -> int:
    return grid.rows * min(grid.width, capacity) * capacity


class SizeBound:
    """Bounds on what layouts of (parts of) one grid cut; tables are made once."""

    def __init__(self, grid: BlockGrid) -> None:
        self._grid = grid
        self._costs: dict[int, Ints] = {}

    def least_cut(
        self, region: Region, capacities: Sequence[int], entries: int = MOST_ENTRIES
    ) -> int:
        """A doubled cut inside `region` that no layout on these domains beats; 0 when the
        tables had more than `entries`.

        Inside a part of the grid the rest counts as one more domain, whose cost and whose
        edges to the region do not depend on the layout.
        """
        grid = self._grid
        blocks = int(np.count_nonzero(region))
        most = min(blocks, max(capacities))
        if _entries(grid, most) > entries:
            return 0
        total = least_sum(blocks, capacities, self._part_costs(most)) - grid.offset
        if blocks < grid.size:
            outside = np.count_nonzero(~region, axis=1)
            total += pattern_cost(grid, tuple(int(n) for n in outside))
            total -= layout_cost(grid, region.astype(np.int64))
        return attainable(grid, total)

    def _part_costs(self, most: int) -> Ints:
        """f(n) for n = 0 .. most: the least doubled cost of a domain with n blocks."""
        if most not in self._costs:
            grid = self._grid
            pricer = Pricer(
                grid.rows, grid.width, most, grid.slopes, grid.floors, has_patterns=False
            )
            price = np.zeros(most + 1, dtype=np.int64)
            pricer.price(np.broadcast_to(grid.step, (grid.rows, grid.width + 1)), price)
            self._costs[most] = pricer.by_used
        return self._costs[most]


def least_sum(blocks: int, capacities: Sequence[int], cost: Ints) -> int:
    """The least sum of costs over parts that hold `blocks` blocks in all, one a domain.

    `cost[n]`: of a part of n blocks, n up to the largest capacity or all blocks.
    """
    least = np.full(blocks + 1, MUCH)
    least[0] = 0
    for capacity in sorted((min(c, blocks) for c in capacities if c), reverse=True)[:blocks]:
        best = least.copy()
        for size in range(1, capacity + 1):
            reached = best[size:]
            np.minimum(reached, least[: blocks + 1 - size] + cost[size], out=reached)
        least = best
    return int(least[blocks])
