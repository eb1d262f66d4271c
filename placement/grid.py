"""The job seen by a placer: blocks on a grid, rows by slices.

Block i carries ranks [iG, (i+1)G). When G ends on an axis boundary, or splits one
axis evenly, blocks form a grid with one dimension per axis wider than a host. Rows
are the pipeline stages (the one chain-like axis); a *slice* is everything else of
one row, so a block is (row s, slot d) with d in [0, width).

Costs here are *doubled*: every zone pays in full for each cut edge that touches it,
hence the sum over zones is twice the cut. `unit` turns half of that back into bytes.
The cost of a zone that holds n slots of a row is at least `step[n]`, whatever slots
these are, and between two rows it pays at least `joint[s, |n_s - n_(s+1)|]`, which is
row_weight times that difference for a chain between rows of whole hosts:

    2 cut >= sum over zones of [ sum_s step[n_s] + sum_s joint[s, |n_s - n_(s+1)|] ] - offset
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import combinations, pairwise, permutations
from math import gcd, lcm, prod

import numpy as np

from placement.fabric import Ints
from placement.request import Request
from placement.traffic import AxisTraffic, Pattern, axis_traffic

MUCH = np.int64(1) << 60  # no such set of slots
MOST_ORDERS = 6  # of the slice axes that are tried
Slopes = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True, eq=False)
class BlockGrid:
    """`rows` x `width` blocks. `block[s, d]` is the block at row s, slot d.

    Slots run along `slice_axes` in their order, the first one fastest. `slopes`, of
    each pair of neighbouring rows: what they pay is convex in the difference, so much per
    slot (first value) for so many slots (second value), one after the other; a difference
    beyond them all is impossible. `floors`: what a zone pays in any case between two rows,
    unless it holds nothing of either or both in full; none if empty.
    """

    rows: int
    width: int
    row_weight: int
    row_wrap: int
    slice_axes: tuple[BlockAxis, ...]
    step: Ints
    offset: int
    unit: Fraction
    block: Ints
    slopes: tuple[Slopes, ...]
    floors: tuple[int, ...] = ()

    @staticmethod
    def shapeless(blocks: int) -> BlockGrid:
        """One row of blocks that stay in order, for ranks that form no grid of hosts."""
        nothing = np.zeros(blocks + 1, dtype=np.int64)
        number = np.arange(blocks)[None, :]
        return BlockGrid(1, blocks, 0, 0, (), nothing, 0, Fraction(1), number, ())

    @property
    def size(self) -> int:
        return self.rows * self.width

    @property
    def joint(self) -> Ints:
        """Doubled cost between neighbouring rows that differ by 0 .. width slots.

        Shape: (rows - 1, width + 1).
        """
        return _joint_costs(self.slopes, self.width)

    def between(self, held: Ints) -> Ints:
        """What patterns pay between rows. Shapes: (patterns, rows) to (patterns,)."""
        pairs = np.arange(self.rows - 1)
        paid = self.joint[pairs, np.abs(np.diff(held, axis=1))].sum(axis=1)
        if self.floors:
            is_even = held[:, 1:] == held[:, :-1]
            is_free = is_even & ((held[:, 1:] == 0) | (held[:, 1:] == self.width))
            paid += (~is_free * np.array(self.floors)).sum(axis=1)
        return np.asarray(paid)

    @property
    def weights(self) -> tuple[int, ...]:
        """Of everything that can be cut, without zeros."""
        found = [self.row_weight, self.row_wrap, *(axis.weight for axis in self.slice_axes)]
        return tuple(w for w in found if w)

    def to_bytes(self, doubled: int) -> Fraction:
        return doubled * self.unit / 2


@lru_cache(maxsize=64)
def _joint_costs(every: tuple[Slopes, ...], width: int) -> Ints:
    known = {slopes: joint_cost(slopes, width) for slopes in set(every)}
    costs = [known[slopes] for slopes in every]
    return np.array(costs, dtype=np.int64).reshape(-1, width + 1)


def joint_cost(slopes: Slopes, most: int) -> Ints:
    """Of a difference of 0 .. `most` slots."""
    cost = np.full(most + 1, MUCH)
    cost[0] = 0
    reached = total = 0
    for weight, many in slopes:
        until = min(most, reached + many)
        cost[reached : until + 1] = total + weight * np.arange(until - reached + 1)
        reached, total = until, int(cost[until])
    return cost


def block_axes(request: Request, gpus_per_host: int) -> tuple[BlockAxis, ...] | None:
    """Axes wider than a host with weights in bytes; None when blocks form no grid."""
    axes = []
    for traffic in axis_traffic(request):
        span = traffic.stride * traffic.size
        if gpus_per_host % span == 0:
            continue
        if traffic.stride % gpus_per_host and (
            gpus_per_host % traffic.stride or span % gpus_per_host
        ):
            return None
        axes.append(_block_axis(traffic, gpus_per_host))
    return tuple(axes)


def _block_axis(traffic: AxisTraffic, gpus: int) -> BlockAxis:
    """Ranks of one block that share an edge: all G, or `stride` when G splits the axis."""
    inside = max(1, gpus // traffic.stride)  # ranks of one group in one block
    lines = gpus // inside
    weight = traffic.edge_bytes * lines
    if traffic.pattern is Pattern.ALL_TO_ALL:
        weight *= inside * inside
    stride = max(1, traffic.stride // gpus)
    size = traffic.size // inside
    return BlockAxis(
        traffic.axis, size, stride, traffic.pattern, weight, traffic.wrap_bytes * lines
    )


def block_grid(
    request: Request, gpus_per_host: int, slot_order: tuple[str, ...] | None = None
) -> BlockGrid | None:
    """The grid of a request; None when its blocks form none.

    `slot_order` names the slice axes, fastest first; by default the heaviest is
    fastest, so that consecutive slots keep its groups together.
    """
    axes = block_axes(request, gpus_per_host)
    if axes is None:
        return None
    unit, axes = _scaled(request, axes)
    chain = next((a for a in axes if a.pattern is Pattern.CHAIN), None)
    rest = [a for a in axes if a is not chain]
    rest.sort(key=lambda a: slot_order.index(a.axis) if slot_order else (-_per_slot(a), a.axis))
    width = prod(a.size for a in rest)
    step, offset = steps(rest, width)
    rows = chain.size if chain else 1
    return BlockGrid(
        rows=rows,
        width=width,
        row_weight=chain.weight if chain else 0,
        row_wrap=chain.wrap if chain else 0,
        slice_axes=tuple(rest),
        step=step,
        offset=offset * rows,
        unit=unit,
        block=_blocks(chain, rest),
        slopes=(((chain.weight if chain else 0, width),),) * (rows - 1),
    )


def block_grids(request: Request, gpus_per_host: int) -> list[BlockGrid]:
    """The grid with its slots in every order of the slice axes, the default order first.

    Only the order of slots differs, hence what a straight line keeps together; costs and
    bounds are the same. Empty when blocks form no grid.
    """
    grid = block_grid(request, gpus_per_host)
    if grid is None:
        return []
    axes = tuple(axis.axis for axis in grid.slice_axes)
    orders = list(permutations(axes))[1:MOST_ORDERS] if len(axes) > 1 else []
    others = (block_grid(request, gpus_per_host, order) for order in orders)
    return [grid, *(other for other in others if other is not None)]


def finer(grid: BlockGrid, factor: int) -> BlockGrid:
    """The same costs in smaller units."""
    return replace(
        grid,
        row_weight=grid.row_weight * factor,
        row_wrap=grid.row_wrap * factor,
        slice_axes=tuple(replace(a, weight=a.weight * factor) for a in grid.slice_axes),
        step=grid.step * factor,
        offset=grid.offset * factor,
        unit=grid.unit / factor,
        slopes=tuple(tuple((w * factor, many) for w, many in each) for each in grid.slopes),
        floors=tuple(floor * factor for floor in grid.floors),
    )


def shared(grid: BlockGrid) -> BlockGrid | None:
    """`grid` in halves of its units, with what parts a hierarchical axis shared by the zones.

    A group that touches Z zones costs its weight Z - 1 times: the grid charges every zone
    that touches it, and takes one off. Here each zone that holds some of it and not all
    pays half, which is no more, and all of it where Z = 2. Then the zone that holds nearly
    all of a group pays for the few elsewhere. A ring of half the weight is charged like that.
    None where no axis is hierarchical or longer than two.
    """
    if not any(a.pattern is Pattern.HIERARCHICAL and a.size > 2 for a in grid.slice_axes):
        return None
    fine = finer(grid, 2)
    axes = [
        replace(a, pattern=Pattern.RING, weight=a.weight // 2)
        if a.pattern is Pattern.HIERARCHICAL
        else a
        for a in fine.slice_axes
    ]
    step, offset = steps(axes, grid.width)
    return replace(fine, slice_axes=tuple(axes), step=step, offset=offset * grid.rows)


def _scaled(
    request: Request, axes: tuple[BlockAxis, ...]
) -> tuple[Fraction, tuple[BlockAxis, ...]]:
    """Weights as small coprime integers, n/(n-1) of hierarchical axes included.

    The first value is what one of them is worth in bytes.
    """
    factor = {
        t.axis: Fraction(t.size, t.size - 1)
        for t in axis_traffic(request)
        if t.pattern is Pattern.HIERARCHICAL
    }
    exact = [(a.weight * factor.get(a.axis, Fraction(1)), Fraction(a.wrap)) for a in axes]
    denominator = lcm(*(w.denominator for pair in exact for w in pair))
    common = gcd(*(int(w * denominator) for pair in exact for w in pair)) or 1
    unit = Fraction(common, denominator)
    scaled = (
        replace(a, weight=int(weight / unit), wrap=int(wrap / unit))
        for a, (weight, wrap) in zip(axes, exact, strict=True)
    )
    return unit, tuple(scaled)


def _per_slot(axis: BlockAxis) -> int:
    """What it costs to part two neighbours on this axis."""
    if axis.pattern is Pattern.ALL_TO_ALL:
        return axis.weight * axis.size
    return axis.weight


def _blocks(chain: BlockAxis | None, rest: list[BlockAxis]) -> Ints:
    """Block numbers. Shape: (rows, width), first slice axis fastest."""
    block = np.zeros(1, dtype=np.int64)
    for axis in rest:
        block = (np.arange(axis.size)[:, None] * axis.stride + block[None, :]).ravel()
    rows = np.arange(chain.size) * chain.stride if chain else np.zeros(1, dtype=np.int64)
    return np.asarray(rows[:, None] + block[None, :])


def steps(axes: Sequence[BlockAxis], width: int) -> tuple[Ints, int]:
    """step[n] for n in [0, width], doubled, and the constant that a row subtracts.

    Two axes are bounded together, for a set of slots cannot be aligned with both; every
    further axis stacks layers of what is bounded so far. Any order gives a bound, and the
    largest counts.
    """
    step = np.zeros(width + 1, dtype=np.int64) if len(axes) != 1 else _line(axes[0])
    for first, second in combinations(axes, 2):
        rest = [axis for axis in axes if axis not in (first, second)]
        step = np.maximum(step, reduce(_stack, rest, _plane(first, second)))
    offset = sum(
        2 * a.weight * (width // a.size) for a in axes if a.pattern is Pattern.HIERARCHICAL
    )
    return step, offset


FINE = 16  # layers of at most so many cells are told apart by the cell


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
    best = np.full(cells * axis.size + 1, MUCH)
    for low in intervals:
        for high in intervals:
            if high[1] < low[0]:
                continue
            allowed = base.copy()
            allowed[: low[0]] = MUCH
            allowed[high[1] + 1 :] = MUCH
            lines = max(0, high[0] - low[1])
            extra = touch * high[0] if touch else part * lines
            np.minimum(best, min_plus_power(allowed, axis.size) + extra, out=best)
    return np.minimum(best, MUCH)


def _line(axis: BlockAxis) -> Ints:
    """Doubled cost of a zone that holds m = 0 .. size blocks of one line."""
    m = np.arange(axis.size + 1)
    if axis.pattern is Pattern.HIERARCHICAL:
        return np.asarray(2 * axis.weight * (m > 0))
    if axis.pattern is Pattern.ALL_TO_ALL:
        return np.asarray(2 * axis.weight * m * (axis.size - m))
    return np.asarray(2 * axis.weight * (m % axis.size != 0))  # a ring is cut twice or not


def min_plus_power(cost: Ints, copies: int) -> Ints:
    """Least cost of n slots spread over `copies` equal parts: a (min, +) power."""
    if copies == 1:
        return cost
    half = min_plus_power(cost, copies // 2)
    whole = np.minimum(_min_plus(half, half), MUCH)
    return np.minimum(_min_plus(whole, cost), MUCH) if copies % 2 else whole


def _min_plus(a: Ints, b: Ints) -> Ints:
    """c[n] = min over i of a[i] + b[n - i]."""
    total = np.full(len(a) + len(b) - 1, np.iinfo(np.int64).max)
    for i, first in enumerate(a):
        part = total[i : i + len(b)]
        np.minimum(part, first + b, out=part)
    return total


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
    line = _line(a)
    across = int(_line(b)[1]) if b.size > 1 else 0
    is_touch = b.pattern is Pattern.HIERARCHICAL
    least = np.full(a.size * b.size + 1, MUCH)
    many = np.arange(b.size)[:, None]
    for low in range(a.size + 1):
        for high in range(low, a.size + 1):
            rest = np.arange(low, high + 1)[None, :]
            cells = many * high + (b.size - 1 - many) * low + rest
            cost = many * line[high] + (b.size - 1 - many) * line[low] + line[rest]
            cost = cost + across * (high if is_touch else high - low)
            np.minimum.at(least, cells, cost)
    return least
