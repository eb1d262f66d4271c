"""What domains of given capacities cut at least, from sizes alone.

A part of n blocks costs at least f(n), the cheapest pattern of n blocks on the grid
(`pricing`). Parts that hold all blocks and respect the capacities cost at least the
least sum of f: a dynamic program over domains. Where blocks come in near-boxes that is
what the best packing reaches, and it takes a millisecond where the integer master over
patterns takes a hundred.

Where the last row lies next to the first, a part either holds something but not all of
every row, or some row is *bare*: it costs less than the dearest. The walk over the rows
may begin at that one, whose slots are known, and so is then what the last one pays to it.
See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from placement.bound.pricing import Pricer, pattern_cost
from placement.bound.rounding import attainable, fewest
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid, Slopes, joint_cost, shared
from placement.grid.isoperimetry import MUCH, convolve
from placement.grid.layout import Region, layout_cost

MOST_ENTRIES = 4_000_000  # of the pricing tables; beyond that they take a second or more


def is_priceable(grid: BlockGrid, capacity: int) -> bool:
    """Whether patterns of so many hosts can be priced in reasonable time."""
    return _entries(grid, capacity) <= MOST_ENTRIES


def _entries(grid: BlockGrid, capacity: int) -> int:
    return grid.rows * min(grid.width, capacity) * capacity


class SizeBound:
    """Bounds on what layouts of (parts of) one grid cut; tables are made once.

    `lot`: parts are multiples of it. `closing`: what a part pays between the last row and
    the first; empty where they are not neighbours, and left out where that takes too long.
    """

    def __init__(self, grid: BlockGrid, lot: int = 1, closing: Slopes = ()) -> None:
        self._grid, self._lot = grid, lot
        self._costs: Ints = np.empty(0, dtype=np.int64)  # of parts, as far as they were asked for
        self._ring_costs: dict[int, Ints] = {}
        self._ring = (*grid.slopes, closing) if closing else ()
        self._bare = np.flatnonzero(grid.step < grid.step.max())
        self._walks = len(self._bare) * _period(self._ring)

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
        total = least_sum(blocks, capacities, self.part_costs(most, entries)) - grid.offset
        if blocks == grid.size and grid.width == 1:  # a chain in k parts has k - 1 cuts
            total = max(total, 2 * grid.row_weight * (fewest(capacities, blocks) - 1))
        if blocks < grid.size:
            outside = np.count_nonzero(~region, axis=1)
            total += pattern_cost(grid, tuple(int(n) for n in outside))
            total -= layout_cost(grid, region.astype(np.int64))
        return attainable(grid, total)

    def part_costs(self, most: int, entries: int = MOST_ENTRIES) -> Ints:
        """f(n) for n = 0 .. most: the least doubled cost of a domain with n blocks."""
        grid = self._grid
        is_ring = 0 < self._walks * _entries(grid, most) <= entries
        if is_ring and most not in self._ring_costs:
            self._ring_costs[most] = self._around(np.tile(grid.step, (grid.rows, 1)), most)
        if not is_ring and len(self._costs) <= most:
            cost = np.tile(grid.step, (grid.rows, 1))
            self._costs = self._priced(grid.slopes, cost, most)
        return self._ring_costs[most] if is_ring else self._costs[: most + 1]

    def _around(self, cost: Ints, most: int) -> Ints:
        """The same where rows close into a ring; one walk for each kind of bare row."""
        grid, slots = self._grid, np.arange(self._grid.width + 1)
        least: Ints = np.full(most + 1, cost.max(axis=1).sum(), dtype=np.int64)
        for turn in range(_period(self._ring)):
            *slopes, last = (*self._ring[turn:], *self._ring[:turn])
            closing = joint_cost(last, grid.width)
            for held in self._bare:
                walk = cost.copy()
                walk[0, slots != held] = MUCH
                walk[-1] += closing[np.abs(slots - held)]
                np.minimum(least, self._priced(slopes, walk, most), out=least)
        return least

    def _priced(self, slopes: Sequence[Slopes], cost: Ints, most: int) -> Ints:
        """Of nearly alike rows, a part of any size pays no more than this: so a difference that is
        dearer may as well be possible, which takes less time to tell."""
        grid = self._grid
        one = max((int(joint_cost(each, 1)[1]) for each in set(slopes)), default=0)
        paid = sum(cost.max(axis=1).tolist()) + sum(grid.floors) + one
        ends = [_endless(each, grid.width) for each in slopes]
        eased = [end if far > paid else each for each, (end, far) in zip(slopes, ends, strict=True)]
        pricer = Pricer(
            grid.rows, grid.width, most, eased, grid.floors, self._lot, has_patterns=False
        )
        pricer.price(cost, np.zeros(most + 1, dtype=np.int64))
        return pricer.by_used


@lru_cache(maxsize=16)
def size_bound(grid: BlockGrid) -> SizeBound:
    """Remembered: every step of a placement asks what parts of the same grid cost."""
    return SizeBound(grid)


def _endless(slopes: Slopes, width: int) -> tuple[Slopes, int]:
    """With a last slope that goes on to the end, and what the first difference pays then that was
    impossible."""
    *others, (weight, reach) = slopes
    paid = sum(w * many for w, many in slopes)
    return (*others, (weight, max(reach, width))), paid + weight


def _period(ring: Sequence[Slopes]) -> int:
    """After how many rows the same slopes come again; none of no ring."""
    fits = (p for p in range(1, len(ring) + 1) if len(ring) % p == 0)
    return next((p for p in fits if ring[p:] == ring[:-p]), 0)


def least_sum(blocks: int, capacities: Sequence[int], cost: Ints) -> int:
    """The least sum of costs over parts that hold `blocks` blocks in all, one a domain.

    `cost[n]`: of a part of n blocks, n up to the largest capacity or all blocks.
    """
    least = np.full(blocks + 1, MUCH)  # of parts of n = 0 .. blocks in all, domain after domain
    least[0] = 0
    free = np.append(0, cost[1:])
    for capacity in sorted((min(c, blocks) for c in capacities if c), reverse=True)[:blocks]:
        before, least = least, np.full(blocks + 1, MUCH)
        convolve.run(capacity * blocks, free[: capacity + 1], before, least)
        if np.array_equal(before, least):  # one more of no more room brings nothing either
            break
    return int(least[blocks])


@dataclass(frozen=True, slots=True)
class ChargingForm:
    """A way to charge zones for what `grid` cuts: `charged`, in `parts` of its units."""

    grid: BlockGrid
    charged: BlockGrid
    parts: int

    def by_sizes(self, capacities: Sequence[int], entries: int) -> int:
        everything = np.ones((self.grid.rows, self.grid.width), dtype=np.bool_)
        return self.whole(size_bound(self.charged).least_cut(everything, capacities, entries))

    def whole(self, doubled: int) -> int:
        """A bound on what is charged as one on the cut, in units of `grid`."""
        return attainable(self.grid, -(-doubled // self.parts))


def forms(grid: BlockGrid) -> list[ChargingForm]:
    """The grid's own charges, and those that zones share if they are others."""
    other = shared(grid)
    own = ChargingForm(grid, grid, 1)
    return [own] if other is None else [own, ChargingForm(grid, other, 2)]


def by_sizes(grid: BlockGrid, capacities: Sequence[int], entries: int = MOST_ENTRIES) -> int:
    """A bound in a few milliseconds, which small jobs often meet; 0 where it takes longer."""
    return max(form.by_sizes(capacities, entries) for form in forms(grid))
