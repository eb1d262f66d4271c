"""The job seen by a placer: blocks on a grid, rows by slots.

Block i carries ranks [iG, (i+1)G). When G ends on an axis boundary, or splits one
axis evenly, blocks form a grid with one dimension per axis wider than a host. Rows
are the pipeline stages (the one chain-like axis); everything else of a row makes its
*slots*, so a block is (row s, slot d) with d in [0, width).

Costs here are *doubled*: every zone pays in full for each cut edge that touches it,
hence the sum over zones is twice the cut. `unit` turns half of that back into bytes.
The cost of a zone that holds n slots of a row is at least `step[n]`, whatever slots
these are, and between two rows it pays at least `joint[s, |n_s - n_(s+1)|]`, which is
row_weight times that difference for a chain between rows of whole hosts:

    2 cut >= sum over zones of [ sum_s step[n_s] + sum_s joint[s, |n_s - n_(s+1)|] ] - offset
See docs/engine.md, "The problem".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm, prod

import numpy as np

from muster.structs import replace, struct
from placement.fabric.hostset import Mask
from placement.fabric.tree import Ints
from placement.grid.isoperimetry import BlockAxis, steps
from placement.kernels import INFINITE
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, without_trees

Slopes = tuple[tuple[int, int], ...]


@struct(frozen=True, slots=True, eq=False)
class BlockGrid:
    """The blocks of a gang as a grid, with the costs of cutting it. `rows` x `width` blocks.
    `block[s, d]` is the block at row s, slot d.

    Slots run along `slice_axes` in their order, the first one fastest. `slopes`, of each pair of
    neighbouring rows: what they pay is convex in the difference, so much per slot (first value) for
    so many slots (second value), one after the other; a difference beyond them all is impossible.
    `floors`: what a zone pays in any case between two rows, unless it holds nothing of either or
    both in full; none if empty.
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
        """Make a grid of one row of blocks that stay in order, for ranks that form no grid of
        hosts."""
        nothing = np.zeros(blocks + 1, dtype=np.int64)
        number = np.arange(blocks)[None, :]
        return BlockGrid(1, blocks, 0, 0, (), nothing, 0, Fraction(1), number, ())

    @property
    def size(self) -> int:
        return self.rows * self.width

    @property
    def everywhere(self) -> Mask:
        """The region of all blocks. Shape: (rows, width)."""
        return np.ones((self.rows, self.width), dtype=np.bool_)

    def coordinates(self, region: Mask) -> list[tuple[BlockAxis | None, Ints]]:
        """Return where each block of a region lies, in reading order: on the axis of the rows,
        which is None here, and on each axis of the slots."""
        row, slot = np.nonzero(region)
        placed: list[tuple[BlockAxis | None, Ints]] = [(None, row)]
        for axis in self.slice_axes:
            placed.append((axis, slot % axis.size))
            slot //= axis.size
        return placed

    def states(self, room: Sequence[int]) -> int:
        """Return how many entries a pricing table has, for zones with room for so many slots."""
        return self.rows * (self.width + 1) * max(room)

    def by_block(self, layout: Ints) -> Ints:
        """Return the zone of each block in a layout, by number of the block. Shape: (blocks,)."""
        said = np.empty(self.size, dtype=np.int64)
        said[self.block] = layout
        return said

    @property
    def joint(self) -> Ints:
        """Doubled cost between neighbouring rows that differ by 0 .. width slots.

        Shape: (rows - 1, width + 1).
        """
        return joint_costs(self.slopes, self.width)

    def between(self, held: Ints) -> Ints:
        """Compute what patterns pay between rows. Shapes: (patterns, rows) to (patterns,)."""
        pairs = np.arange(self.rows - 1)
        paid = self.joint[pairs, np.abs(np.diff(held, axis=1))].sum(axis=1)
        if self.floors:
            is_even = held[:, 1:] == held[:, :-1]
            is_free = is_even & ((held[:, 1:] == 0) | (held[:, 1:] == self.width))
            paid += (~is_free * np.array(self.floors)).sum(axis=1)
        return np.asarray(paid)

    @property
    def weights(self) -> tuple[int, ...]:
        """The weights of everything that can be cut, without zeros."""
        all_weights = [self.row_weight, self.row_wrap, *(axis.weight for axis in self.slice_axes)]
        return tuple(w for w in all_weights if w)

    def to_bytes(self, doubled: int) -> Fraction:
        return doubled * self.unit / 2


@lru_cache(maxsize=64)
def joint_costs(every: tuple[Slopes, ...], width: int) -> Ints:
    """Return `joint_cost` of each pair of rows, most of which are alike. Shape: (pairs, width +
    1)."""
    known = {slopes: joint_cost(slopes, width) for slopes in set(every)}
    costs = [known[slopes] for slopes in every]
    return np.array(costs, dtype=np.int64).reshape(-1, width + 1)


def joint_cost(slopes: Slopes, most: int) -> Ints:
    """Return the cost of 0 .. `most` slots of difference between two rows."""
    cost = np.full(most + 1, INFINITE)
    cost[0] = 0
    reached = total = 0
    for weight, many in slopes:
        until = min(most, reached + many)
        cost[reached : until + 1] = total + weight * np.arange(until - reached + 1)
        reached, total = until, int(cost[until])
    return cost


def block_axes(request: Request, gpus_per_host: int) -> tuple[BlockAxis, ...] | None:
    """Return the axes wider than a host with weights in bytes; None when blocks form no grid, as
    with trees, whose edges lead to ranks at any distance."""
    if request.roles:
        return None
    axes = []
    for traffic in axis_traffic(request):
        span = traffic.stride * traffic.size
        if gpus_per_host % span == 0:
            continue
        is_split = gpus_per_host % traffic.stride or span % gpus_per_host
        if traffic.pattern is Pattern.TREE or (traffic.stride % gpus_per_host and is_split):
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


def block_grid(request: Request, gpus_per_host: int) -> BlockGrid | None:
    """Arrange the blocks as rows along the chain axis by slots along the others; None where
    an axis begins or ends inside hosts.

    The heaviest slice axis is fastest, so that consecutive slots keep its groups together.
    """
    axes = block_axes(request, gpus_per_host)
    if axes is None:
        return None
    unit, axes = _scaled(request, axes)
    chain = next((a for a in axes if a.pattern is Pattern.CHAIN), None)
    rest = tuple(sorted((a for a in axes if a is not chain), key=lambda a: (-a.per_slot, a.axis)))
    width = prod(a.size for a in rest)
    step, offset = steps(rest, width)
    rows = chain.size if chain else 1
    return BlockGrid(
        rows=rows,
        width=width,
        row_weight=chain.weight if chain else 0,
        row_wrap=chain.wrap if chain else 0,
        slice_axes=rest,
        step=step,
        offset=offset * rows,
        unit=unit,
        block=np.arange(rows)[:, None] * (chain.stride if chain else 0) + _blocks(rest),
        slopes=(((chain.weight if chain else 0, width),),) * (rows - 1),
    )


def group_grid(request: Request, gpus_per_host: int) -> BlockGrid | None:
    """Arrange the blocks as `block_grid`, those of trees as of hierarchies, whose cut is no larger;
    for all that looks at groups, or bounds the cut, and not at edges."""
    return block_grid(without_trees(request), gpus_per_host)


def finer(grid: BlockGrid, factor: int) -> BlockGrid:
    """Return the grid with its costs in smaller units."""
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
    """Return `grid` in halves of its units, where zones share the cost of a hierarchical axis.

    A group that touches Z zones costs its weight Z - 1 times: the grid charges every zone that
    touches it, and takes one off. Here each zone that holds some of it and not all pays half, which
    is no more, and all of it where Z = 2. Then the zone that holds nearly all of a group pays for
    the few elsewhere. A ring of half the weight is charged like that. None where no axis is
    hierarchical or longer than two.
    """
    if not any(a.pattern is Pattern.HIERARCHICAL and a.size > 2 for a in grid.slice_axes):
        return None
    fine = finer(grid, 2)
    axes = tuple(
        replace(a, pattern=Pattern.RING, weight=a.weight // 2)
        if a.pattern is Pattern.HIERARCHICAL
        else a
        for a in fine.slice_axes
    )
    step, offset = steps(axes, grid.width)
    return replace(fine, slice_axes=axes, step=step, offset=offset * grid.rows)


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


def _blocks(axes: tuple[BlockAxis, ...]) -> Ints:
    """Block numbers of the slots of the first row, first axis fastest. Shape: (width,)."""
    block: Ints = np.zeros(1, dtype=np.int64)
    for axis in axes:
        block = (np.arange(axis.size)[:, None] * axis.stride + block[None, :]).ravel()
    return block
