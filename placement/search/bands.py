"""Trees to start the search from: bands of rows, each with its own zones side by side.

With b bands of h rows, a zone of c hosts takes floor(c / h) slots of one band. More
bands cut more chains and fewer rings; which number is right depends on the weights, so
one tree is made for each, and the search goes on from the best.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.grid.block_grid import BlockGrid
from placement.search.slicing_trees import Tree, comb

MOST_BANDS = 16


def band_trees(grid: BlockGrid, capacities: Sequence[int]) -> list[Tree]:
    """One tree per number of bands, fewest bands first; every zone with room is in each."""
    zones = sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))
    most = min(grid.rows, len(zones), MOST_BANDS)
    trees = [_bands(grid, capacities, zones, bands) for bands in range(1, most + 1)]
    return [*trees, comb([Tree(zone=z) for z in zones], axis=1)]


def _bands(grid: BlockGrid, capacities: Sequence[int], zones: Sequence[int], bands: int) -> Tree:
    left = list(zones)
    rows_left = grid.rows
    members: list[list[int]] = []
    for band in range(bands, 0, -1):
        height = -(-rows_left // band)
        rows_left -= height
        spared = max(0, band - 1)
        chosen = _cover(left, capacities, height, grid.width, len(left) - spared)
        members.append(chosen)
        left = [z for z in left if z not in chosen]
    members[-1] += left
    rows = [comb([Tree(zone=z) for z in zones], axis=0) for zones in members]
    return comb(rows, axis=1)


def _cover(
    zones: Sequence[int], capacities: Sequence[int], height: int, width: int, most: int
) -> list[int]:
    """Few zones that span `width` slots of `height` rows: the largest first, and to end
    with the smallest that does. At least one, at most `most`, whether they span or not."""
    chosen: list[int] = []
    missing = width
    for zone in zones:
        ending = [z for z in zones if z not in chosen and capacities[z] // height >= missing]
        if ending:
            return [*chosen, min(ending, key=lambda z: (capacities[z], z))]
        chosen.append(zone)
        missing -= capacities[zone] // height
        if len(chosen) >= most:
            break
    return chosen
