"""What domains of given capacities cut at least, from sizes alone.

A part of n blocks costs at least f(n), the cheapest pattern of n blocks on the grid
(`pricing`). Parts that hold all blocks and respect the capacities cost at least the
least sum of f: a dynamic program over domains. Where blocks come in near-boxes that is
what the best packing reaches, and it takes a millisecond where the integer master over
patterns takes a hundred.
See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from muster.structs import struct
from placement.bound.pricing import Pricer, pattern_cost
from placement.bound.rounding import attainable, fewest
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid, shared
from placement.grid.isoperimetry import convolve
from placement.grid.layout import Region, layout_cost
from placement.kernels import INFINITE

MOST_ENTRIES = 4_000_000  # of the pricing tables; beyond that they take a second or more


def is_priceable(grid: BlockGrid, capacity: int) -> bool:
    """Return whether patterns of so many hosts can be priced in reasonable time."""
    return _entries(grid, capacity) <= MOST_ENTRIES


def _entries(grid: BlockGrid, capacity: int) -> int:
    return grid.rows * min(grid.width, capacity) * capacity


class SizeBound:
    """Bounds on what layouts of (parts of) one grid cut; tables are made once.

    `lot`: parts are multiples of it.
    """

    def __init__(self, grid: BlockGrid, lot: int = 1) -> None:
        self._grid, self._lot = grid, lot
        self._costs: Ints = np.empty(0, dtype=np.int64)  # of parts, as far as they were asked for

    def least_cut(
        self, region: Region, capacities: Sequence[int], entries: int = MOST_ENTRIES
    ) -> int:
        """Return a doubled cut inside `region` that no layout on these domains beats; 0 when the
        tables would have more than `entries`.

        Inside a part of the grid the rest counts as one more domain, whose cost and whose edges to
        the region do not depend on the layout.
        """
        grid = self._grid
        blocks = int(np.count_nonzero(region))
        most = min(blocks, max(capacities))
        if _entries(grid, most) > entries:
            return 0
        total = least_sum(blocks, capacities, self.part_costs(most)) - grid.offset
        if blocks == grid.size and grid.width == 1:  # a chain in k parts has k - 1 cuts
            total = max(total, 2 * grid.row_weight * (fewest(capacities, blocks) - 1))
        if blocks < grid.size:
            outside = np.count_nonzero(~region, axis=1)
            total += pattern_cost(grid, tuple(int(n) for n in outside))
            total -= layout_cost(grid, region.astype(np.int64))
        return attainable(grid, total)

    def part_costs(self, most: int) -> Ints:
        """Return f(n) for n = 0 .. most: the least doubled cost of a domain with n blocks."""
        if len(self._costs) <= most:
            g = self._grid
            pricer = Pricer(
                g.rows, g.width, most, g.slopes, g.floors, self._lot, has_patterns=False
            )
            pricer.price(np.tile(g.step, (g.rows, 1)), np.zeros(most + 1, dtype=np.int64))
            self._costs = pricer.by_used
        return self._costs[: most + 1]


@lru_cache(maxsize=16)
def size_bound(grid: BlockGrid) -> SizeBound:
    """Return the bound, from a cache: every step of a placement asks it of the same grid."""
    return SizeBound(grid)


def least_sum(blocks: int, capacities: Sequence[int], cost: Ints) -> int:
    """Return the least sum of costs over parts that hold `blocks` blocks in all, one part a domain.

    `cost[n]`: of a part of n blocks, n up to the largest capacity or all blocks.
    """
    least = np.full(blocks + 1, INFINITE)  # of parts of n = 0 .. blocks in all, domain after domain
    least[0] = 0
    free = np.append(0, cost[1:])
    for capacity in sorted((min(c, blocks) for c in capacities if c), reverse=True)[:blocks]:
        before, least = least, np.full(blocks + 1, INFINITE)
        convolve.run(capacity * blocks, free[: capacity + 1], before, least)
        if np.array_equal(before, least):  # one more of no more room brings nothing either
            break
    return int(least[blocks])


@struct(frozen=True, slots=True)
class ChargingForm:
    """One way to charge zones for what `grid` cuts: the grid `charged`, whose costs are in so many
    `parts` of the unit of `grid`."""

    grid: BlockGrid
    charged: BlockGrid
    parts: int

    def by_sizes(self, capacities: Sequence[int], entries: int) -> int:
        sizes = size_bound(self.charged)
        return self.cut_bound(sizes.least_cut(self.grid.everywhere, capacities, entries))

    def cut_bound(self, doubled: int) -> int:
        """Convert a bound on what zones are charged to a bound on the cut, in units of `grid`."""
        return attainable(self.grid, -(-doubled // self.parts))


def forms(grid: BlockGrid) -> list[ChargingForm]:
    """Return the ways to charge zones: the grid's own, and, if they differ, charges that zones
    share."""
    other = shared(grid)
    own = ChargingForm(grid, grid, 1)
    return [own] if other is None else [own, ChargingForm(grid, other, 2)]


def by_sizes(grid: BlockGrid, capacities: Sequence[int], entries: int = MOST_ENTRIES) -> int:
    """Bound the cut by sizes of zones alone, in a few milliseconds, which small jobs often meet; 0
    where it takes longer."""
    return max(form.by_sizes(capacities, entries) for form in forms(grid))
