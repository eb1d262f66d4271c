"""One table that prices the zone patterns of every capacity at once.

A pattern says how many slots of each row a zone holds: n = (n_1 .. n_S). Given a
price per slot and per counter, the cheapest pattern is a shortest path over rows with
state (slots of this row, hosts used so far). The step between rows costs a convex
function of |n - n'|, given as slopes. The minimum over n' of one slope is two running
minima (a distance transform), and slope after slope is transform after transform: a sweep
there and back over the rows of the table where a slope goes on to the end, else a step for
each slot of its reach.
All arithmetic is in int64: a bound computed here is exact, not a float's word.
See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.bound.pricing_kernels import (
    Between,
    Tables,
    price_rows,
    retrace,
)
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid, Slopes, joint_costs
from placement.grid.layout import ZonePattern
from placement.kernels import INFINITE

IN_CACHE = 65_536  # entries of the parts of a table that are transformed at a time: 512 KB


class Prices(NamedTuple):
    """Costs of patterns at the prices of a master program, in whole parts of a unit of the
    grid: of each row by `slots`, shape (rows, width + 1); less by size, as in `Pricer.price`.
    `constant`: what all zones together pay beside that. `of_slot`, `of_counter`: the prices
    themselves, of a slot of each row and of each counter."""

    slots: Ints
    sizes: Ints
    constant: int
    of_slot: Ints
    of_counter: Ints


class Pricer:
    """Finds the cheapest patterns of a grid, again and again at different prices.

    `by_used[u]`: least cost of a pattern of u hosts, `best[c]`: of 1 to c hosts. Shapes: (capacity
    + 1,). Cost: O(rows x width x capacity), 5 ms for 16 x 128 x 384. The tables are allocated once:
    fresh pages cost more than the arithmetic.
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
        of it. `has_patterns`: whether `patterns` are asked for; what a pattern costs takes two
        tables only."""
        self._broken = np.arange(capacity + 1) % lot != 0
        self._rows = rows
        slots, used = min(width, capacity) + 1, capacity + 1
        floor = np.array(list(floors) or [0] * (rows - 1), dtype=np.int64)
        joint = joint_costs(tuple(slopes), slots - 1)
        cut_short = [_cut_short(each, slots - 1) for each in slopes]
        begin = np.cumsum([0, *map(len, cut_short)])
        pairs = np.array([p for each in cut_short for p in each], dtype=np.int64).reshape(-1, 2)
        weight, reach = pairs.T.copy()
        self._between = Between(begin, weight, reach, floor, width, joint.ravel())
        kept = rows if has_patterns else min(2, rows)
        tables: Ints = np.empty((kept, slots, used), dtype=np.int64)
        nearest = np.empty(slots * used, dtype=np.int64)
        first, last = np.empty((2, used), dtype=np.int64)
        part = max(1, min(used, IN_CACHE // slots))
        self._room = Tables(tables.ravel(), kept, slots, used, nearest, first, last, part)
        self._steps = (rows + 4 * len(pairs)) * slots * used
        self.best: Ints = np.empty(used, dtype=np.int64)
        self.by_used: Ints = np.empty(used, dtype=np.int64)

    def price(self, cost: Ints, size_price: Ints) -> None:
        """Fill the tables at these prices. `cost[s, n]`: of n slots of row s. `size_price[u]`:
        taken off a pattern of u hosts. All in the units of the slopes."""
        self._cost = np.ascontiguousarray(cost[:, : self._room.slots])
        price_rows.run(
            self._steps, self._cost.ravel(), self._rows, self._between, self._room, self.by_used
        )
        self.by_used -= size_price
        self.by_used[self._broken] = INFINITE
        self.by_used[0] = INFINITE  # the empty pattern is the caller's business
        np.minimum.accumulate(self.by_used, out=self.best)

    def patterns(self, capacities: Sequence[int]) -> list[ZonePattern]:
        """Return for each capacity a cheapest pattern of at least 1 host; ties to fewer hosts, then
        to fewer slots."""
        rows, slots = self._rows, self._room.slots
        chosen: Ints = np.empty(len(capacities) * rows, dtype=np.int64)
        hosts = [int(np.argmin(self.by_used[: c + 1])) for c in capacities]
        used = np.array(hosts, dtype=np.int64)
        retrace.run(
            len(chosen) * slots, self._cost.ravel(), rows, self._between, self._room, used, chosen
        )
        return [tuple(p) for p in chosen.reshape(-1, rows).tolist()]


def _cut_short(slopes: Slopes, most: int) -> Slopes:
    """Reaches capped at `most`; a last slope that gets there is stretched to it, which is valid
    because slopes rise."""
    reaches = [min(reach, most) for _, reach in slopes]
    if reaches and sum(reaches) >= most:
        reaches[-1] = most
    return tuple((weight, reach) for (weight, _), reach in zip(slopes, reaches, strict=True))


def pattern_cost(grid: BlockGrid, pattern: ZonePattern) -> int:
    """Return the doubled cost of one zone with this pattern, before the constant that the grid
    subtracts."""
    held = np.array([pattern], dtype=np.int64)
    return int(grid.step[held].sum() + grid.between(held)[0])
