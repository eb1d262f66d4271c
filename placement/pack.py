"""Blocks onto the domains of an inner tier, inside one domain of the tier above.

Few children (the SUs of a pod) get a slicing tree of their own. Many small ones (the
racks of a zone) are filled along a walk through the region: a boustrophedon, in strips
of one or more rows or slots, so that consecutive blocks are neighbours and a rack takes
a compact piece. The walk that cuts least is taken.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from placement.bands import comb
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.layout import Layout, layout_cost
from placement.slicing import Region, Tree, random_tree, slice_grid

FEW = 24  # children up to which slicing trees are tried
STRIPS = (1, 2, 4, 8)


def pack(
    grid: BlockGrid,
    region: Region,
    chosen: Sequence[tuple[int, int]],
    room: Sequence[int],
    tries: int,
) -> Layout:
    """The child of each block of `region`, -1 elsewhere. Shape: (rows, width).

    `chosen`: children and hosts to fill one after the other, as `ranked` gives them.
    `room`: hosts that each child has, for trees that may spread further.
    """
    best = fill(grid, region, chosen)
    if not tries or len(room) > FEW:
        return best
    tries = max(10, tries * 4 // len(room))
    cost, layout = slice_grid(grid, room, _starts(room), tries, 0, region)
    return layout if cost < layout_cost(grid, best) else best


def _starts(room: Sequence[int]) -> list[Tree]:
    """One child after the other along the slots, along the rows, and a tree at random."""
    largest = sorted(range(len(room)), key=lambda child: (-room[child], child))
    leaves = [Tree(zone=child) for child in largest]
    rng = random.Random(f"{room}")
    return [
        comb(leaves, is_across_rows=False),
        comb(leaves, is_across_rows=True),
        random_tree(largest, rng),
    ]


def fill(grid: BlockGrid, region: Region, chosen: Sequence[tuple[int, int]]) -> Layout:
    """The best of the walks, each child given its hosts' worth in turn."""
    children, hosts = zip(*chosen, strict=True)
    labels = np.repeat(np.array(children), hosts)
    best: Layout | None = None
    best_cost = 0
    for walk in walks(grid, region):
        layout = np.full(region.shape, -1, dtype=np.int64)
        layout.ravel()[walk] = labels
        cost = layout_cost(grid, layout)
        if best is None or cost < best_cost:
            best, best_cost = layout, cost
    assert best is not None
    return best


def walks(grid: BlockGrid, region: Region) -> list[Ints]:
    """Orders of the region's cells as flat indices, strips of rows first."""
    rows, slots = np.nonzero(region)
    found = []
    for strip in STRIPS:
        if strip == 1 or strip <= grid.rows:
            found.append(_snake(rows, slots, strip, grid.width))
        if strip == 1 or strip <= grid.width:
            found.append(_snake(slots, rows, strip, grid.width, is_turned=True))
    return found


def _snake(across: Ints, along: Ints, strip: int, width: int, *, is_turned: bool = False) -> Ints:
    """Strips of `strip` lines; back and forth along them, back and forth across each."""
    band = across // strip
    forth = np.where(band % 2 == 0, along, -along)
    inside = np.where(along % 2 == 0, across, -across)
    order = np.lexsort((inside, forth, band))
    rows, slots = (along, across) if is_turned else (across, along)
    return np.asarray((rows * width + slots)[order])


def ranked(free_by_child: npt.NDArray[np.int64], needed: int) -> list[tuple[int, int]]:
    """Children to use for `needed` hosts, as (child, hosts), fullest first, then by number.

    The fewest children do; the last one is the smallest that holds the rest, so that
    what is left free stays in one piece.
    """
    order = np.lexsort((np.arange(len(free_by_child)), -free_by_child))
    chosen: list[tuple[int, int]] = []
    for child in order:
        free = int(free_by_child[child])
        if free >= needed:
            rest = (int(c) for c in order[len(chosen) :] if free_by_child[c] >= needed)
            last = min(rest, key=lambda c: (int(free_by_child[c]), c))
            return [*chosen, (last, needed)]
        chosen.append((int(child), free))
        needed -= free
    raise ValueError("the children do not hold that many hosts")
