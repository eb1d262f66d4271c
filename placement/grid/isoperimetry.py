"""What n slots of one row cost a zone at least, whatever slots they are.

Slots of a row lie on the axes beside the pipeline. Costs are doubled, as in `block_grid`.
See docs/engine.md, "The relaxation".
"""

from __future__ import annotations

from functools import lru_cache, reduce
from itertools import combinations, pairwise

import numpy as np

from muster.structs import struct
from placement.fabric.tree import Ints
from placement.kernels import INFINITE, Kernel
from placement.workload.traffic import Pattern

FINE = 16  # layers of at most so many cells are told apart by the cell


@struct(frozen=True, slots=True)
class BlockAxis:
    """An axis that spans hosts: `size` blocks at distance `stride`, in units of bytes.

    `weight`: of one block edge; of one more zone touched by a line (hierarchical); of
    one ordered pair (all-to-all). `wrap`: from the last block of a chain to the first.
    """

    axis: str
    size: int
    stride: int
    pattern: Pattern
    weight: int
    wrap: int = 0

    @property
    def per_slot(self) -> int:
        """Return the cost of two neighbours in different zones."""
        return self.weight * (self.size if self.pattern is Pattern.ALL_TO_ALL else 1)


@lru_cache(maxsize=64)
def steps(axes: tuple[BlockAxis, ...], width: int) -> tuple[Ints, int]:
    """Return step[n] for n in [0, width], the least doubled cost of n slots of a row, not to be
    written to, and the constant that a row subtracts.

    Two axes are bounded together, for a set of slots cannot be aligned with both; every further
    axis stacks layers of what is bounded so far. Any order gives a bound, and the largest counts.
    """
    step = np.zeros(width + 1, dtype=np.int64) if len(axes) != 1 else _line(axes[0])
    for first, second in combinations(axes, 2):
        rest = [axis for axis in axes if axis not in (first, second)]
        step = np.maximum(step, reduce(_stack, rest, _plane(first, second)))
    offset = sum(
        2 * a.weight * (width // a.size) for a in axes if a.pattern is Pattern.HIERARCHICAL
    )
    step.flags.writeable = False
    return step, offset


def _stack(base: Ints, axis: BlockAxis) -> Ints:
    """Least cost of n slots in `axis.size` layers, each bounded by `base`.

    Layers that hold between lo and hi slots have at least hi - lo lines of the axis in
    part, or hi lines touched if it is hierarchical. In large layers lo and hi range over a
    few intervals instead of all values, which only lowers the bound.
    """
    cells = len(base) - 1
    some = range(cells + 1) if cells <= FINE else (0, 1, cells // 4, cells // 2, cells - 1, cells)
    intervals = [(a, b - 1) for a, b in pairwise([*sorted(set(some)), cells + 1])]
    line = _line(axis)
    touch, part = int(line[-1]), int(line[1:-1].min()) if axis.size > 1 else 0
    best = np.full(cells * axis.size + 1, INFINITE)
    for low in intervals:
        for high in intervals:
            if high[1] < low[0]:
                continue
            allowed = base.copy()
            allowed[: low[0]] = INFINITE
            allowed[high[1] + 1 :] = INFINITE
            lines = max(0, high[0] - low[1])
            extra = touch * high[0] if touch else part * lines
            np.minimum(best, min_plus_power(allowed, axis.size) + extra, out=best)
    return np.asarray(np.minimum(best, INFINITE))


def _line(axis: BlockAxis) -> Ints:
    """Doubled cost of a zone that holds m = 0 .. size blocks of one line."""
    m = np.arange(axis.size + 1)
    if axis.pattern is Pattern.HIERARCHICAL:
        return np.asarray(2 * axis.weight * (m > 0))
    if axis.pattern is Pattern.ALL_TO_ALL:
        return np.asarray(2 * axis.weight * m * (axis.size - m))
    return np.asarray(2 * axis.weight * (m % axis.size != 0))  # a ring is cut twice or not


def min_plus_power(cost: Ints, copies: int) -> Ints:
    """Return the least cost of n slots spread over `copies` equal parts: a (min, +) power."""
    if copies == 1:
        return cost
    half = min_plus_power(cost, copies // 2)
    whole = min_plus(half, half)
    return min_plus(whole, cost) if copies % 2 else whole


def min_plus(a: Ints, b: Ints) -> Ints:
    """Return the (min, +) convolution c[n] = min over i of a[i] + b[n - i], at most INFINITE."""
    total = np.full(len(a) + len(b) - 1, INFINITE)
    convolve.run(len(a) * len(b), a, b, total)
    return total


def _convolve(a: Ints, b: Ints, total: Ints) -> None:
    """The lesser of `total` and c, as far as `total` goes."""
    for i in range(min(len(a), len(total))):
        first = a[i]
        if first >= INFINITE:
            continue
        part = total[i:]
        for k in range(min(len(b), len(part))):
            here = first + b[k]
            part[k] = here if here < part[k] else part[k]


convolve = Kernel(_convolve)


@lru_cache(maxsize=256)
def _plane(a: BlockAxis, b: BlockAxis) -> Ints:
    """Doubled least cost of n cells of an a.size x b.size plane, n = 0 .. all of them.

    Exact. With m_j cells on line j of axis a, lines of b are cut where only some of the
    a-lines reach, which is in max m - min m places if the a-lines are nested, or wherever
    one reaches if b is hierarchical. The cost of a line is concave in m (`_line`), so for
    given least and most m all lines but one hold either.
    """
    if b.pattern is Pattern.ALL_TO_ALL or (a.pattern is not Pattern.ALL_TO_ALL and b.size < a.size):
        a, b = b, a
    across = int(_line(b)[1]) if b.size > 1 else 0
    is_touch = b.pattern is Pattern.HIERARCHICAL
    least = np.full(a.size * b.size + 1, INFINITE)
    laid.run(a.size * a.size * len(least) // 4, _line(a), b.size, across, is_touch, least)
    return least


def _laid(line: Ints, lines: int, across: int, is_touch: bool, least: Ints) -> None:
    """The lesser of `least` and what so many `lines` cost, all but one of which hold the least or
    the most cells."""
    size = len(line) - 1
    for low in range(size + 1):
        for high in range(low, size + 1):
            extra = across * (high if is_touch else high - low)
            for many in range(lines):
                held = many * high + (lines - 1 - many) * low
                paid = many * line[high] + (lines - 1 - many) * line[low] + extra
                for rest in range(low, high + 1):
                    cost = paid + line[rest]
                    least[held + rest] = min(least[held + rest], cost)


laid = Kernel(_laid)
