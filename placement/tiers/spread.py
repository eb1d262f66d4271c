"""Arnold's measure (2025): in how many zones a DP group and a PP group lie at most.

The blocks are a matrix, a PP group down each column and a DP group, which is a shard group where
there are several, along each row. A layout of b *bands* gives each band of rows a set of m zones
side by side: a column then meets b zones, a row m. A zone of c hosts takes c // h columns of a band
of h rows; where these do not suffice, zones follow each other without gaps and one column more is
shared, which costs b one more. The same with rows and columns exchanged.

No layout has fewer than R zones a row and C a column with

    R C >= (sum of sqrt(share of the blocks in each zone))^2,

for zone z covers at most r_z k_z cells with r_z rows and k_z columns touched, the sums
of r_z and k_z are at most R rows and C columns, and the rest is Cauchy and Schwarz. The
right side is least when the largest zones are filled one after the other.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import prod

import numpy as np

from muster.structs import struct
from placement.fabric.hostset import Mask
from placement.fabric.tree import Floats, Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout
from placement.search.graph_slicing import by_room
from placement.workload.volumes import axis_of

SWEEPS = 20  # of exchanges between bands
SHARED = 1e-9  # room for rounding in the bound


def spread(grid: BlockGrid, layout: Layout, alpha: float) -> float:
    """Return alpha x most zones of a DP group + (1 - alpha) x most zones of a PP group."""
    data, pipeline = most_zones(grid, layout)
    return alpha * data + (1 - alpha) * pipeline


def most_zones(grid: BlockGrid, layout: Layout) -> tuple[int, int]:
    """Return the most zones that a DP group, and that a PP group lies in."""
    axes = grid.slice_axes[::-1]  # the last one is the fastest
    own = [1 + n for n, axis in enumerate(axes) if axis_of(axis.axis) == "dp"]
    lines = np.moveaxis(layout.reshape(-1, *(a.size for a in axes)), own, range(-len(own), 0))
    groups = lines.reshape(-1, prod(lines.shape[-len(own) :])) if own else layout[:, :1]
    return _most_different(groups), _most_different(layout.T)


def _most_different(groups: Ints) -> int:
    """The most different zones in one row of `groups`."""
    in_order = np.sort(groups, axis=1)
    return int((in_order[:, 1:] != in_order[:, :-1]).sum(axis=1).max(initial=0)) + 1


def least_spread(grid: BlockGrid, capacities: Sequence[int], alpha: float) -> float:
    """Return a spread that no layout is below."""
    width = prod(axis.size for axis in grid.slice_axes if axis_of(axis.axis) == "dp")
    return min(_weigh(pair, alpha) for pair in _pairs(grid.rows, width, capacities))


def spread_layouts(grid: BlockGrid, capacities: Sequence[int], alpha: float) -> list[Layout]:
    """Return layouts in bands with the least spread that these reach; empty when none fits.

    Cost: 5 to 50 ms for 1,000 hosts in 32 zones.
    """
    pairs = _pairs(grid.rows, grid.width, capacities)
    by_spread: list[Layout] = []
    least = float("inf")
    for pair in sorted(pairs, key=lambda pair: (_weigh(pair, alpha), pair)):
        if _weigh(pair, alpha) > least:
            break
        layouts = list(_banded(grid.rows, grid.width, capacities, *pair))
        by_spread += layouts
        least = min([least, *(spread(grid, layout, alpha) for layout in layouts)])
    return by_spread


def spread_note(
    grid: BlockGrid, layout: Layout, capacities: Sequence[int], alpha: float, zone: str
) -> str:
    """Say what the spread is, of which groups, and how low any other could be."""
    data, pipeline = most_zones(grid, layout)
    least = min(spread(grid, layout, alpha), least_spread(grid, capacities, alpha))
    return (
        f"spread {spread(grid, layout, alpha):g} (none is below {least:g}): a DP group meets"
        f" {data} {zone}{'s' if data > 1 else ''} at most, a PP group {pipeline}; alpha {alpha:g}"
    )


def _weigh(pair: tuple[int, int], alpha: float) -> float:
    return alpha * pair[0] + (1 - alpha) * pair[1]


def _pairs(rows: int, width: int, capacities: Sequence[int]) -> list[tuple[int, int]]:
    """(zones of a row, zones of a column) that the bound does not exclude."""
    largest = np.sort(np.array(capacities, dtype=np.int64))[::-1]
    filled = np.minimum(np.cumsum(largest), rows * width)
    share = np.diff(filled, prepend=0) / (rows * width)
    area = np.sqrt(share).sum() ** 2
    zones = int(np.count_nonzero(largest))
    least_row, least_column = (int(np.argmax(np.cumsum(largest) >= n)) + 1 for n in (width, rows))
    sides = product(
        range(least_row, min(width, zones) + 1), range(least_column, min(rows, zones) + 1)
    )
    return [(row, column) for row, column in sides if row * column >= area - SHARED]


def _banded(
    rows: int, width: int, capacities: Sequence[int], zones_a_row: int, zones_a_column: int
) -> Iterator[Layout]:
    """Layouts in bands of rows and in bands of columns, with and without shared ones."""
    for is_turned in (False, True):
        height, length = (width, rows) if is_turned else (rows, width)
        members, bands = zones_a_row, zones_a_column
        if is_turned:
            members, bands = bands, members
        for is_shared in (False, True):
            packing = _Packing(height, length, tuple(capacities), is_shared)
            layout = packing.layout(bands - is_shared, members)
            if layout is not None:
                yield layout.T if is_turned else layout


@struct(frozen=True, slots=True)
class _Packing:
    """Bands of a matrix of `height` x `length` cells, zones side by side in each.

    `is_shared`: zones follow each other without gaps, columns may be shared.
    """

    height: int
    length: int
    capacities: tuple[int, ...]
    is_shared: bool

    def layout(self, bands: int, members: int) -> Layout | None:
        """`bands` bands of at most `members` zones; None when none fits."""
        zones = by_room(self.capacities)[: bands * members]
        if not 1 <= bands <= len(zones):
            return None
        in_chunks = [part.tolist() for part in np.array_split(np.array(zones), bands)]
        groups = self._improved(in_chunks)  # of like size at first
        return self._laid_out(groups) if self._heights(groups).sum() >= self.height else None

    def _widths(self) -> Ints:
        """Columns that each zone takes of a band of h = 1 .. height rows; for shared
        columns the cells. Shape: (zones, height)."""
        room = np.array(self.capacities)[:, None]
        rows = np.arange(1, self.height + 1)
        return np.asarray(
            np.broadcast_to(room, (len(room), self.height)) // (1 if self.is_shared else rows)
        )

    def _needed(self) -> Ints:
        """Return the room that zones of a band of h = 1 .. height rows must add up to."""
        rows = np.arange(1, self.height + 1)
        return self.length * (rows if self.is_shared else np.ones_like(rows))

    def _heights(self, groups: Sequence[Sequence[int]]) -> Ints:
        widths, needed = self._widths(), self._needed()
        return np.array([(widths[list(g)].sum(axis=0) >= needed).sum() for g in groups])

    def _improved(self, groups: list[list[int]]) -> list[list[int]]:
        """Zones exchanged between groups while the heights grow, or come nearer to it."""
        widths, needed = self._widths(), self._needed()
        total = np.array([widths[g].sum(axis=0) for g in groups])

        def worth(held: Ints) -> Floats:
            """Rows of a band, and half of how much of the next one is there."""
            rows = (held >= needed).sum(axis=-1)
            last = np.minimum(rows, self.height - 1)[..., None]
            share = np.take_along_axis(held, last, axis=-1) / needed[last]
            return np.asarray(rows + np.minimum(share[..., 0], 1.0) / 2)

        for _ in range(SWEEPS):
            is_better = False
            for a, b in combinations(range(len(groups)), 2):
                change = widths[groups[b]][None] - widths[groups[a]][:, None]
                gain = worth(total[a] + change) + worth(total[b] - change)
                i, j = np.unravel_index(gain.argmax(), gain.shape)
                if gain[i, j] > worth(total[a]) + worth(total[b]) + SHARED:
                    groups[a][i], groups[b][j] = groups[b][j], groups[a][i]
                    total[a], total[b] = total[a] + change[i, j], total[b] - change[i, j]
                    is_better = True
            if not is_better or int((total >= needed).sum()) >= self.height:
                break
        return groups

    def _laid_out(self, groups: list[list[int]]) -> Layout:
        """Bands one below the other; those with most zones give up surplus rows first."""
        heights = self._heights(groups)
        surplus = int(heights.sum()) - self.height
        for k in sorted(range(len(groups)), key=lambda k: (-len(groups[k]), -k)):
            less = min(surplus, int(heights[k]))
            heights[k] -= less
            surplus -= less
        layout = np.empty((self.height, self.length), dtype=np.int64)
        shared = np.zeros(self.length, dtype=np.bool_)
        top = 0
        for group, rows in zip(groups, heights.tolist(), strict=True):
            if rows:
                band = self._band(group, rows)
                layout[top : top + rows], shared = _aside(band, shared)
                top += rows
        return layout

    def _band(self, group: list[int], rows: int) -> Layout:
        """Zones side by side, column after column. Shape: (rows, length)."""
        room = np.array([self.capacities[z] for z in group])
        if not self.is_shared:
            room = room // rows * rows
        cells = np.repeat(group, room)[: rows * self.length]
        return np.asarray(cells.reshape(self.length, rows).T)


def _aside(band: Layout, shared: Mask) -> tuple[Layout, Mask]:
    """The band with its columns shifted so that no column is shared in two bands."""
    here = (band != band[0]).any(axis=0)
    for shift in range(band.shape[1]):
        if not (np.roll(here, shift) & shared).any():
            break
    return np.roll(band, shift, axis=1), shared | np.roll(here, shift)
