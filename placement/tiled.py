"""Wide gaps between strips in two bands of blocks: the first stages side by side, then the rest.

A gap of so many hosts in each stage lies between two lines where zones may end cheapest, and has a
few hosts more on the far side of either where the border of a strip is bent: a *notch*. Each
band is cut into few blocks; those at its ends take the hosts of the notches in their
stages, if they have room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fabric import Ints
from placement.hostset import Mask


@dataclass(frozen=True, slots=True)
class Tiling:
    """`cost`: doubled, of the blocks without notches. `first`: stages of the first band. Widths of
    the blocks of each band, from left to right."""

    cost: int
    first: int
    bands: tuple[tuple[int, ...], tuple[int, ...]]

    def banded(self, rows: int) -> list[tuple[int, tuple[int, ...]]]:
        """Each band with its stages."""
        return [*zip((self.first, rows - self.first), self.bands, strict=True)]


def tilings(rows: int, width: int, period: int, most: int, ends: int, weight: int) -> list[Tiling]:
    """In bands of every height, the cheapest first. `most`: hosts of a block; `ends`: what one
    pays in a stage for both its ends."""
    found = []
    for first in range(1, rows):
        bands = (_blocks(width, period, most // height) for height in (first, rows - first))
        top, bottom = bands
        if top and bottom:
            cost = ends * (first * len(top) + (rows - first) * len(bottom)) + 2 * weight * width
            found.append(Tiling(cost, first, (top, bottom)))
    return sorted(found, key=lambda each: (each.cost, each.first))


def _blocks(width: int, period: int, widest: int) -> tuple[int, ...]:
    """Of whole periods, as few as can be and as even, the narrowest at both ends; none if a
    period is too wide."""
    widest -= widest % period
    if not widest:
        return ()
    many = -(-width // widest)
    least, wider = divmod(width // period, many)
    narrow = many - wider
    widths = [least] * -(-narrow // 2) + [least + 1] * wider + [least] * (narrow // 2)
    return tuple(w * period for w in widths)


def fits(tiling: Tiling, most: int, left: Ints, right: Ints) -> Mask:
    """Whether the blocks at the ends have room for the notches, all pairs of them. `left`, `right`:
    hosts of notches by stage, shapes (lefts, rows), (rights, rows); to (rights, lefts)."""
    rows, begin = left.shape[1], 0
    enough = np.ones((len(right), len(left)), dtype=np.bool_)
    for height, band in tiling.banded(rows):
        more_left = left[:, begin : begin + height].sum(axis=1)
        more_right = right[:, begin : begin + height].sum(axis=1)[:, None]
        if len(band) == 1:
            enough &= height * band[0] + more_left + more_right <= most
        else:
            enough &= height * band[0] + more_left <= most
            enough &= height * band[-1] + more_right <= most
        begin += height
    return enough
