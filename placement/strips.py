"""Layouts of strips: zones side by side, each from the first stage to the last.

Where every stage is one ring of hosts, the border of two strips is a curve (`placement.curves`):
what it costs at least is told by its area, the sum of its places, modulo rows x period. What lies
between two curves is the difference of their areas, so strips round the ring are a closed walk
over areas. Beside strips it takes gaps: *narrow* ones of a few hosts, where either zone bends the
border as suits itself and what is left goes to whoever has room, and *wide* ones in two bands
of blocks (`placement.tiled`). The best walk is a shortest path over the hosts laid out so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placement.borders import MOST_GAP, Borders
from placement.curves import Ring, is_within_reach
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.steps import MUCH

MOST_STEPS = 40_000_000  # of a walk: about a tenth of a second
MOST_TRIED = 3  # of what strips hold at most


class Step(NamedTuple):
    """`hosts` of a strip, or of a gap that ends with so many hosts of a notch: a narrow one if its
    `width` is 0."""

    hosts: int
    is_gap: bool = False
    width: int = 0


def strip_layouts(grid: BlockGrid, ring: Ring, capacities: Sequence[int]) -> list[Ints]:
    """The zone of each slot, shape (rows, width), in the best layout of strips that hold as many
    hosts as some zone at most. `ring`: each row of `grid`."""
    if not is_within_reach(grid, ring):
        return []
    borders, layouts = Borders(grid, ring), []
    for most in sorted({c for c in capacities if c}, reverse=True)[:MOST_TRIED]:
        if most * grid.size * len(borders.cost) <= MOST_STEPS:
            first, steps = _walk(borders, most)
            layouts.append(_laid_out(borders, most, first, steps, capacities))
    return [layout for layout in layouts if layout is not None]


def _walk(borders: Borders, most: int) -> tuple[int, list[Step]]:
    """The area that the best one begins with, and its steps, with at most so many hosts a zone."""
    areas, total = len(borders.cost), borders.grid.size
    start = np.arange(areas)
    wide = borders.wide(most)
    # By hosts so far and the area begun with: what is paid, and with the left end of a strip.
    paid, begun = np.full((2, total + 1, areas), MUCH)
    paid[0], begun[0] = 0, borders.cost
    for t in range(1, total + 1):
        strip = begun[max(0, t - most) : t].min(axis=0) + borders.cost[(start + t) % areas]
        sizes = np.arange(1, min(t, MOST_GAP) + 1)[:, None]
        gap = paid[t - sizes, start] + borders.gap[(start + t - sizes) % areas, sizes]
        paid[t] = np.minimum(strip, gap.min(axis=0))
        at = (wide.ends_at - t) % areas
        before = t - wide.hosts
        ways = np.where(before >= 0, paid[np.maximum(before, 0), at[:, None]] + wide.cost, MUCH)
        paid[t, at] = np.minimum(paid[t, at], ways.min(axis=1))
        begun[t] = paid[t] + borders.cost[(start + t) % areas]
    first, t, steps = int(paid[total].argmin()), total, []
    while t:
        step = _last(borders, most, paid[: t + 1, first], first)
        steps.append(step)
        t -= step.hosts
    return first, steps[::-1]


def _last(borders: Borders, most: int, paid: Ints, first: int) -> Step:
    """Of the best walk with what is `paid` so far. Shape: (hosts + 1,)."""
    areas, t = len(borders.cost), len(paid) - 1
    sizes = np.arange(1, min(t, most) + 1)
    curve = borders.cost
    ways = paid[t - sizes] + curve[(first + t - sizes) % areas] + curve[(first + t) % areas]
    best, step = int(ways.min()), Step(int(sizes[ways.argmin()]))
    sizes = np.arange(1, min(t, MOST_GAP) + 1)
    ways = paid[t - sizes] + borders.gap[(first + t - sizes) % areas, sizes]
    if ways.min() < best:
        best, step = int(ways.min()), Step(int(sizes[ways.argmin()]), is_gap=True)
    wide = borders.wide(most)
    for right in np.flatnonzero(wide.ends_at == (first + t) % areas):
        for way, hosts in enumerate(wide.hosts[right].tolist()):
            cost = int(wide.cost[right, way])
            if hosts <= t and paid[t - hosts] + cost < best:
                best = int(paid[t - hosts]) + cost
                step = Step(hosts, is_gap=True, width=int(wide.width[way]))
    return step


def _laid_out(
    borders: Borders, most: int, first: int, steps: Sequence[Step], capacities: Sequence[int]
) -> Ints | None:
    """None where zones are too few or curves cross."""
    rows, width = borders.grid.rows, borders.grid.width
    areas = first + np.cumsum([0, *(step.hosts for step in steps)])
    curves = [borders.at(int(area), is_turned=False) for area in areas]
    tilings = {}
    for k, step in enumerate(steps):
        if step.is_gap:
            left, right, tilings[k] = borders.between(int(areas[k]), step.hosts, step.width, most)
            curves[k], curves[k + 1] = left, right
    if steps[0].is_gap:
        curves[-1] = curves[0] + width
    elif steps[-1].is_gap:
        curves[0] = curves[-1] - width
    part = np.full((rows, width), -1, dtype=np.int64)
    many = 0
    for k, (left, right) in enumerate(pairwise(curves)):
        owned = borders.parts(left, right, tilings.get(k))
        for row, begin, end, piece in owned:
            part[row, np.arange(begin, end) % width] = many + piece
        many += 1 + max((piece for *_, piece in owned), default=0)
    return None if part.min() < 0 else _zoned(part, capacities)


def _zoned(part: Ints, capacities: Sequence[int]) -> Ints | None:
    """A zone for each part: the roomiest for the largest, but what fits into the room that others
    left goes where that is least. None where there is none."""
    left = np.array(capacities)
    used = np.zeros(len(left), dtype=np.bool_)
    sizes = np.bincount(part.ravel())
    zones = np.zeros(len(sizes), dtype=np.int64)
    for k in np.argsort(-sizes, kind="stable").tolist():
        fits = left >= sizes[k]
        shared = np.flatnonzero(fits & used)
        if len(shared):
            zones[k] = shared[left[shared].argmin()]
        elif fits.any():
            zones[k] = np.where(fits, left, -1).argmax()
        else:
            return None
        left[zones[k]] -= sizes[k]
        used[zones[k]] = sizes[k] > 0
    return zones[part]
