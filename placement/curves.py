"""What zones cut at least where every stage is one ring of hosts: their borders are curves.

Setting: `rows` stages of `width` hosts in a ring, each host joined to the next one, perhaps to
the one after that, and to its like in the next stage. An edge over a host counts at both borders
beside that host; a run of one host may be passed so, and pays less (`Ring.single`). A *region* is
what a zone holds in one piece, by edges between neighbours. A border between two regions that
both reach from the first stage to the last is a *curve*: one place in each stage. It pays for what
it parts there, and `row_weight` for each host by which it moves from one stage to the next. What
lies between two curves is the difference of their areas, the sums of their places. A curve moved
by a whole period of the ring costs the same, so its area modulo rows x period tells what it
costs at least. Prices of hosts know nothing of that: they let each zone have the two
best curves for its size, although one of them is its neighbour's, whose best one it is not.

A *strip* is a region with a single run in each stage. It shares a column with itself in the
next stage, so strips lie in one order round the ring, in all stages. They pay for their curves; in
gaps between them lies the rest. So the doubled cut is a closed walk over areas that takes all
hosts, and the bound is the cheapest one (`placement.rounds`), from any area to begin with; or, if
there is no strip, the least by sizes alone (`alone`). What other regions cost:

- *One that misses a stage* costs what patterns with an empty stage do, the first or the last one,
  for it is in one piece. More is known where it lies between curves: `placement.gaps`.
- *One of few hosts in some stage*, where hosts are joined over one, *or of nearly all* costs what
  such patterns do. *One that goes once round* has hosts in all columns, width + rows - 1 or
  more, and pays in each column that is not whole. These lie in gaps, which cost then what they
  do by sizes alone.
- *Torn* ones have others in their outline, which reaches in each stage from their first host to
  the last. Let these be q hosts in I runs, each between two runs of its own. Column by column it is
  above or below them as well, at v places, I v >= q. So it pays for I runs and v hosts
  more than a straight strip. With more than FILLED hosts that is charged, and it lies in a gap.
- With fewer it is given those hosts, and is a strip. That saves both sides of what parted the
  runs, and both of a host in each column, but for o open ones, where others reach in from
  outside the outline: another side is parted instead. There the outline moves by o + 1 hosts or
  more. Others may lose hosts by it, and are what they are then; nobody else's outline contains a
  strip, which is a wall from the first stage to the last.

So a strip of up to FILLED hosts more than a zone can hold is charged what was saved beside its
curves, where the cheapest ones of these areas pay for o moves and one anyway (`bent`). Else
it is charged that many moves in place of them: then gaps beside it may not count on its curves,
but two strips that share both its borders pay for the moves as well, unless they are charged so
themselves. The walk is begun with a strip that is not, or else all hosts lie in regions that count
by size alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from placement.fabric import Ints
from placement.gaps import gap_costs, piled
from placement.grid import BlockGrid
from placement.hostset import Mask
from placement.pricing import Pricer
from placement.rounds import Steps, least_round
from placement.steps import MUCH

NEVER = int(MUCH) >> 8  # as often as there are rows
MOST_AREAS = 160  # rows x period
FILLED = 4  # hosts of others in the outline of a region, at most, that are given to it
FEW = 4  # hosts of a stage
LEAST_WIDTH = 5  # of a ring whose hosts are joined over one


@dataclass(frozen=True, slots=True)
class Ring:
    """What zones pay for a run of hosts of one stage, doubled: `ends[p]` if it begins at host p,
    as much if it ends before it; `single[p]`, both together, if it is host p alone. Shapes:
    (width,)."""

    ends: tuple[int, ...]
    single: tuple[int, ...]

    @property
    def period(self) -> int:
        width, both = len(self.ends), [*zip(self.ends, self.single, strict=True)]
        tried = (p for p in range(1, width + 1) if width % p == 0)
        return next(p for p in tried if both[p:] == both[: width - p])

    @property
    def least(self) -> int:
        """Of any run."""
        return min(2 * min(self.ends), *self.single)

    @property
    def less(self) -> int:
        """What a run of one host saves at most of its two ends."""
        ends = np.array(self.ends)
        return int((ends + np.roll(ends, -1) - np.array(self.single)).max())

    @property
    def parted(self) -> int:
        """What a zone pays at least for each run of others between two of its own in a stage, of
        which it holds more than FEW hosts: only where its runs are still more are all single."""
        return 2 * min(self.ends) + -self.less * (FEW + 1) // FEW

    def steps(self) -> Ints:
        """The least cost of n = 0 .. width hosts, in any runs. Shape: (width + 1,)."""
        ends, width = np.array(self.ends), len(self.ends)
        one_run = [int((ends + np.roll(ends, -n)).min()) for n in range(width)]
        step = np.append(np.minimum(one_run, 2 * self.least), 0)
        step[:2] = 0, min(self.single)
        return step


def ring_of(edges: Mapping[tuple[int, int], int], width: int) -> Ring | None:
    """`edges`: (host, later host) -> weight. None where one reaches over two hosts."""
    next_, over = np.zeros((2, width), dtype=np.int64)  # to p from the host before; over p
    for (a, b), weight in edges.items():
        reach = min(b - a, width - b + a)
        if reach > 2 or width < LEAST_WIDTH:
            return None
        after = ((a if b - a == reach else b) + 1) % width
        (next_ if reach == 1 else over)[after] += weight
    ends = next_ + over + np.roll(over, 1)
    # Beside it others may be one zone, which do not pay for the edge over it either.
    single = ends + np.roll(ends, -1) - 4 * over
    return Ring(tuple(ends.tolist()), tuple(single.tolist()))


def is_within_reach(grid: BlockGrid, ring: Ring) -> bool:
    """Whether rows are alike, and areas and costs not too many."""
    is_plain = set(grid.slopes) == {((grid.row_weight, grid.width),)} and not grid.floors
    total = 2 * (grid.rows * max(ring.ends) + grid.row_weight) * grid.size
    is_small = grid.rows * ring.period <= MOST_AREAS and total < NEVER
    return bool(is_plain and is_small and grid.row_weight and ring.parted > 0)


def by_curves(grid: BlockGrid, ring: Ring, capacity: int, known: int = 0) -> int:
    """A doubled cut that no layout beats in which no zone holds more than `capacity` hosts; 0
    where that is no more than is `known`. `ring`: each row of `grid`, in its units."""
    if not is_within_reach(grid, ring):
        return 0
    regions = _Regions(grid, ring, min(capacity, grid.size))
    least = regions.alone
    if least > known:
        least = min(least, regions.around())
    return least if least > known else 0


class _Regions:
    """What regions of at most so many hosts cost at least, doubled."""

    def __init__(self, grid: BlockGrid, ring: Ring, most: int) -> None:
        self._grid, self._ring, self._most = grid, ring, most
        self._straight = grid.rows * 2 * min(ring.ends)
        self._curves = _curves(grid, ring)
        self._filled = min(FILLED, max(1, grid.width // 4) - 1)
        held, cost = np.arange(grid.width + 1), np.tile(ring.steps(), (grid.rows, 1))
        # Stages are alike from either end, so it is the last one that is missed.
        self._piece = self._patterns(_only(cost, grid.rows - 1, held == 0))
        cost[:, 0] = NEVER
        self._dear = np.minimum(self._torn_wide(), self._odd(cost))
        self._missing = piled(self._piece, grid.size)
        self._any = piled(np.minimum(self._piece, self._dear), grid.size)

    def _patterns(self, cost: Ints) -> Ints:
        """The least cost by size, from one host on. `cost`: of each row, by what is held of it."""
        grid, most = self._grid, self._most
        pricer = Pricer(grid.rows, grid.width, most, grid.slopes, has_patterns=False)
        pricer.price(cost, np.zeros(most + 1, dtype=np.int64))
        return np.minimum(pricer.by_used[1:], MUCH)

    def _odd(self, cost: Ints) -> Ints:
        """Of few hosts of some stage, where that pays less, or of nearly all, or once round, by
        size. `cost`: of each row where it is not missed."""
        rows, width = self._grid.rows, self._grid.width
        held = np.arange(width + 1)
        is_odd = (held <= FEW) & bool(self._ring.less) | (held > width - max(1, width // 4))
        odd = [self._patterns(_only(cost, s, is_odd)) for s in range((rows + 1) // 2)]
        # Who goes once round has some host of each column, and pays for all that are not whole.
        size = np.arange(1, self._most + 1)
        parted = self._grid.row_weight * (width - (size - width) // (rows - 1))
        round_ = np.maximum(self._patterns(cost), parted)
        round_[: width + rows - 2] = MUCH
        return np.asarray(np.min([*odd, round_], axis=0))

    def _torn_wide(self) -> int:
        """With more hosts of others in the outline than are filled in."""
        more = self._filled + 1
        each, weight = self._ring.parted, self._grid.row_weight
        return self._straight + min(n * each + -(-more // n) * weight for n in range(1, more + 1))

    @property
    def alone(self) -> int:
        """The least where no region that spans the stages is a single run in each."""
        piece = np.full(self._most + self._filled, MUCH)
        piece[: self._most] = np.minimum(self._piece, self._dear)
        if self._filled:
            filled = np.maximum(1, np.arange(1, len(piece) + 1) - self._most)
            piece = np.minimum(piece, self._straight + self._torn(filled, 1, 1))
        return int(piled(piece, self._grid.size)[-1])

    def around(self) -> int:
        """The least where some is: a walk over areas."""
        return least_round(self._steps(), self._grid.size, self._most)

    def _torn(self, filled: Ints | int, moved: Ints | int, sides: int) -> Ints:
        """What it costs at least that so many hosts of others lie in an outline, in columns of
        which `moved` or more are open, for zones on so many sides of it."""
        weight, saved = self._grid.row_weight, self._ring.parted + self._ring.least
        ways = [
            runs * saved + sides * weight * (np.maximum(-(-filled // runs), moved) + 1)
            for runs in range(1, FILLED + 1)
        ]
        return np.asarray(np.min(ways, axis=0))

    def _bent(self, filled: int, moved: Ints) -> Ints:
        """The same where the outline has moved for so many open columns anyway."""
        weight, saved = self._grid.row_weight, self._ring.parted + self._ring.least
        ways = [
            runs * saved + 2 * weight * np.maximum(-(-filled // runs) - moved, 0)
            for runs in range(1, FILLED + 1)
        ]
        return np.asarray(np.min(ways, axis=0))

    def _steps(self) -> Steps:
        grid, period = self._grid, self._ring.period
        ends, single = (np.array(each[:period]) for each in (self._ring.ends, self._ring.single))
        gap = gap_costs(grid.rows, (ends, single), grid.row_weight, self._curves, self._missing)
        with_dear = np.full(grid.size + 1, MUCH)
        for n, cost in enumerate(self._dear.tolist(), 1):
            np.minimum(with_dear[n:], cost + self._any[:-n], out=with_dear[n:])
        bent, torn, shared = np.full((3, self._filled + 1, len(self._curves)), MUCH)
        for q in range(1, self._filled + 1):
            both = self._curves + np.roll(self._curves, -(self._most + q))
            moved = np.maximum((both - self._straight) // grid.row_weight - 1, 0)
            bent[q] = both + self._bent(q, moved)
            torn[q] = self._straight + self._torn(q, moved + 1, 1)
            shared[q] = 2 * self._straight + self._torn(q, moved + 1, 2) - both
        lines = (self._curves, np.minimum(gap, with_dear).T, bent, torn, shared)
        curve, gaps, *others = (np.concatenate([each, each], axis=-1).ravel() for each in lines)
        return Steps(curve, gaps, self._any, *others)


def _only(cost: Ints, row: int, allowed: Mask) -> Ints:
    """`cost` by row and hosts, where `row` holds an allowed number."""
    return np.where((np.arange(len(cost)) == row)[:, None] & ~allowed, NEVER, cost)


def _curves(grid: BlockGrid, ring: Ring) -> Ints:
    """The least cost of a curve by its area. Shape: (rows x period,)."""
    areas = grid.rows * ring.period
    parted = np.tile(np.array(ring.ends[: ring.period], dtype=np.int64), grid.rows)
    cost = np.full((areas, areas), MUCH)  # by place and area
    np.fill_diagonal(cost, parted)
    for _ in range(grid.rows - 1):
        for step in (1, -1):
            for place in range(0, 2 * areas * step, step):  # twice round
                into = cost[place % areas]
                np.minimum(into, cost[(place - step) % areas] + grid.row_weight, out=into)
        for place in range(areas):
            cost[place] = np.roll(cost[place], place) + parted[place]
    return np.asarray(cost.min(axis=0))
