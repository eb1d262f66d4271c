"""Ways to charge zones for what a grid cuts, and what sizes alone say by them.

See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.bound.rounding import attainable
from placement.bound.size_relaxation import MOST_ENTRIES, size_bound
from placement.grid.block_grid import BlockGrid, shared


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
