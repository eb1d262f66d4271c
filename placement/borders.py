"""Curves that are borders of strips, and what gaps between two of them cost."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placement.curves import Ring
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.steps import MUCH
from placement.tiled import Tiling, fits, tilings

MOST_GAP = 12  # hosts of a narrow gap
MOST_NOTCH = 6  # hosts beyond the line of a wide one
MOST_TILINGS = 3  # tried of each width
TURNED = ((False, False), (False, True), (True, False), (True, True))  # curves: the left, the right


Part = tuple[int, int, int, int]  # stage, first place, end, number of the part


class Wide(NamedTuple):
    """Wide gaps by the notch on their right, then by width and the notch on their left: `hosts`
    and what they `cost` beside their strips, shape (rights, ways). `ends_at`: areas, shape
    (rights,); `width`: shape (ways,); `how`: the blocks and who is turned."""

    ends_at: Ints
    width: Ints
    hosts: Ints
    cost: Ints
    how: dict[tuple[int, int], tuple[Tiling, tuple[bool, bool]]]


class Borders:
    """Curves by area. `cost`: of the cheapest one, doubled, for the zone on one side of it. Shape:
    (areas,). `gap`: what is paid inside a gap of 1 to MOST_GAP hosts after that area, and for
    curves that suit it. Shape: (areas, MOST_GAP + 1)."""

    def __init__(self, grid: BlockGrid, ring: Ring) -> None:
        self.grid = grid
        self._ends = np.array(ring.ends[: ring.period])
        self._single = np.array(ring.single[: ring.period])
        self._places = curve_places(grid, ring)
        self.cost = self._paid_along(self._places)
        found = [self._gap(size) for size in range(1, MOST_GAP + 1)]
        areas = len(self.cost)
        self.gap = np.column_stack([np.full(areas, MUCH), *(cost for cost, _ in found)])
        self._turned = np.column_stack([np.zeros(areas, dtype=np.int64), *(by for _, by in found)])
        self.wide = lru_cache(maxsize=8)(self._wide)

    def at(self, area: int, *, is_turned: bool) -> Ints:
        """A curve of just this area; read from the other end if it is turned. Shape: (rows,)."""
        return np.asarray(self._at(np.array([area]), is_turned)[0])

    def between(
        self, area: int, size: int, width: int, most: int
    ) -> tuple[Ints, Ints, Tiling | None]:
        """The curves of a gap of so many hosts right of an area, and its blocks if it is wide."""
        areas = len(self.cost)
        tiling, turned = None, TURNED[int(self._turned[area % areas, size if not width else 0])]
        if width:
            wide = self.wide(most)
            right = int(np.flatnonzero(wide.ends_at == (area + size) % areas)[0])
            ways = np.flatnonzero((wide.width == width) & (wide.hosts[right] == size))
            tiling, turned = wide.how[right, int(ways[0])]
        left, end = self.at(area, is_turned=turned[0]), self.at(area + size, is_turned=turned[1])
        return left, end, tiling

    def parts(self, left: Ints, right: Ints, tiling: Tiling | None) -> list[Part]:
        """What lies between two curves: one part, or blocks."""
        if tiling is None:
            return [(s, int(left[s]), int(right[s]), 0) for s in range(len(left))]
        period, best = len(self._ends), int(self._ends.argmin())
        line = int(left.max() + (best - left.max()) % period)
        parts, number, begin = [], 0, 0
        for height, band in tiling.banded(len(left)):
            ends = line + np.cumsum(band)
            for row in range(begin, begin + height):
                borders = [int(left[row]), *ends[:-1].tolist(), int(right[row])]
                pairs = enumerate(pairwise(borders), number)
                parts += [(row, one, other, k) for k, (one, other) in pairs]
            number, begin = number + len(band), begin + height
        return parts

    def _wide(self, most: int) -> Wide:
        """With blocks of at most so many hosts."""
        rows, period, areas = self.grid.rows, len(self._ends), len(self.cost)
        best = int(self._ends.argmin())
        line = rows * int(self._ends[best])
        notch = np.arange(MOST_NOTCH + 1)
        left, right = (rows * best - notch) % areas, (rows * best + notch) % areas
        bent = [best - self._at(rows * best - notch, turned) for turned in (False, True)]
        beyond = [self._at(rows * best + notch, turned) - best for turned in (False, True)]
        near, far = bent[0], beyond[0]
        is_left = np.all((near >= 0) & (near < period), axis=1, keepdims=True)
        is_right = np.all((far >= 0) & (far < period), axis=1, keepdims=True)
        widths = np.arange(period, self.grid.width, period)
        hosts = rows * widths[:, None] + notch  # and the notch on the right
        extra = self.cost[right][:, None] + self.cost[left] - 2 * line
        cost = np.full((len(notch), len(widths), len(notch)), MUCH)
        how = {}
        for w, width in enumerate(widths.tolist()):
            found = tilings(rows, width, period, most, 2 * line // rows, self.grid.row_weight)
            for tiling in found[:MOST_TILINGS]:
                for turned in TURNED:
                    is_fit = fits(tiling, most, bent[turned[0]], beyond[turned[1]])
                    is_fit &= is_right & is_left.T
                    paid = tiling.cost + extra
                    better = is_fit & (paid < cost[:, w])
                    cost[:, w][better] = paid[better]
                    for end, way in np.argwhere(better).tolist():
                        how[end, w * len(notch) + way] = tiling, turned
        ways = np.repeat(widths, len(notch))
        return Wide(right, ways, hosts.ravel() + notch[:, None], cost.reshape(len(notch), -1), how)

    def _at(self, area: Ints, is_turned: bool) -> Ints:
        """Curves of just these areas. Shape: (curves, rows)."""
        places = self._places[area % len(self._places)]
        more = (area - places.sum(axis=1)) // self.grid.rows
        moved = places + more[:, None]
        return np.asarray(moved[:, ::-1] if is_turned else moved)

    def _gap(self, size: int) -> tuple[Ints, Ints]:
        """What is paid inside, by the area left of it, with the best of TURNED curves."""
        area = np.arange(len(self.cost))
        ways = [
            self._paid_inside(self._at(area, left), self._at(area + size, right))
            for left, right in TURNED
        ]
        return np.min(ways, axis=0), np.argmin(ways, axis=0)

    def _paid_inside(self, left: Ints, right: Ints) -> Ints:
        """By gaps between these curves; MUCH where they cross. Shapes: (gaps, rows), (gaps,)."""
        period, weight = len(self._ends), self.grid.row_weight
        many = right - left
        ends = self._ends[left % period] + self._ends[right % period]
        in_row = np.where(many > 1, ends, np.where(many == 1, self._single[left % period], 0))
        shared = np.minimum(right[:, 1:], right[:, :-1]) - np.maximum(left[:, 1:], left[:, :-1])
        apart = many[:, 1:] + many[:, :-1] - 2 * np.maximum(shared, 0)
        paid = in_row.sum(axis=1) + weight * apart.sum(axis=1)
        return np.where((many >= 0).all(axis=1), paid, MUCH)

    def _paid_along(self, places: Ints) -> Ints:
        moves = np.abs(np.diff(places, axis=1)).sum(axis=1)
        along = self._ends[places % len(self._ends)].sum(axis=1)
        return np.asarray(along + self.grid.row_weight * moves)


def curve_places(grid: BlockGrid, ring: Ring) -> Ints:
    """By area, the places in each stage of a curve of least cost; the area is that modulo rows x
    period of their sum. Shape: (areas, rows)."""
    areas = grid.rows * ring.period
    ends = np.tile(np.array(ring.ends[: ring.period], dtype=np.int64), grid.rows)
    place = np.arange(areas)
    step = (place - place[:, None] + areas // 2) % areas - areas // 2  # from one place to another
    moved = grid.row_weight * np.abs(step)
    cost = np.full((areas, areas), MUCH)  # by place and area
    np.fill_diagonal(cost, ends)
    came_from = []
    for _ in range(grid.rows - 1):
        ways = [cost + moved[:, p, None] for p in place]
        came_from.append(np.array([each.argmin(axis=0) for each in ways]))
        least = [each.min(axis=0) for each in ways]
        cost = np.array([np.roll(each, p) + ends[p] for p, each in enumerate(least)])
    last = cost.argmin(axis=0)
    places = [last.copy()]
    area, at = place.copy(), last
    for came in reversed(came_from):
        area = (area - at) % areas
        before = came[at, area]
        places.append(places[-1] - step[before, at])
        at = before
    return np.array(places[::-1]).T
