"""Orders of blocks in which neighbours are close: walks through the gang.

Back and forth along one axis, and a few lines of the next axes abreast, so that a stretch
of the walk is near to a box. Every level turns back where the one outside has moved on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from placement.fabric.tree import Ints

MOST_AXES = 4


def box_walks(coordinates: Sequence[Ints], abreast: int) -> Iterator[Ints]:
    """Different orders of the cells whose coordinates are given, narrow ones first.

    At most `abreast` lines side by side. Shape of each walk: (cells,).
    """
    spans = [c for c in coordinates if c.min() != c.max()][:MOST_AXES]
    if not spans:
        yield np.arange(len(coordinates[0]))
        return
    seen: set[bytes] = set()
    for lines in range(1, abreast + 1):
        for axes in permutations(spans):
            for band in _bands(lines, [int(axis.max()) + 1 for axis in axes[1:]]):
                walk = _walk(axes, band)
                if walk.tobytes() not in seen:
                    seen.add(walk.tobytes())
                    yield walk


def _bands(lines: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """How many lines of the next one or two axes go abreast; `lines` is their product."""
    if lines == 1:
        yield ()
        return
    for h in range(1, min(lines, *sizes[:1]) + 1 if sizes else 1):
        if h == lines:
            yield (h,)
        elif lines % h == 0 and len(sizes) > 1 and lines // h <= sizes[1]:
            yield (h, lines // h)


def _walk(axes: Sequence[Ints], band: Sequence[int]) -> Ints:
    """`axes`: the one walked along first; then those of which `band` lines go abreast."""
    wide = axes[1 : len(band) + 1]
    levels = [
        *reversed(axes[len(band) + 1 :]),
        *reversed([axis // h for axis, h in zip(wide, band, strict=True)]),
        axes[0],
        *reversed([axis % h for axis, h in zip(wide, band, strict=True)]),
    ]
    # A number with a digit per level, each of which runs back where those before add up to odd.
    place = turns = levels[0]
    for level in levels[1:]:
        last = int(level.max())
        place = place * (last + 1) + np.where(turns & 1, last - level, level)
        turns = turns + level
    return place.argsort(kind="stable")
