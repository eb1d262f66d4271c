"""What zones cut at least where every stage is one ring of hosts: their borders are curves.

Setting: `rows` stages of `width` hosts in a ring, each host joined to the next one, perhaps to
the one after that, and to its like in the next stage. A *region* is what a zone holds in one
piece. A border between two regions that both reach from the first stage to the last is a *curve*:
one place in each stage. It pays for what it parts there, and `row_weight` for each host by which
it moves from one stage to the next. What lies between two curves is the difference of their areas,
the sums of their places. Prices of hosts know nothing of that: they let each zone have the two
best curves for its size, although one of them is its neighbour's, whose best one it is not.

So let a region pay a potential of the area of its left curve and get that of its right one, by
the area modulo rows x period (a curve moved by a whole period of the ring costs the same). Round
the ring these payments cancel, hence for any potential and any price u of a host

    2 cut >= u x hosts    if no region costs less, payments included, than its hosts are worth.

The best u is that of a closed walk over areas of least cost per host; its potential is a shortest
path. What other regions cost has to be known as well (`_Regions`):

- *One that misses a stage* costs what patterns with an empty stage do. Between two curves such
  regions make a gap, whose payments are shared out by their sizes: one more way to walk from area
  to area.
- *Fewer than two that span the stages*: then nearly all hosts are in regions that miss one, each
  dearer than its hosts are worth.
- *One that spans them but is no single run in each*. Its outline reaches in each stage from its
  first host to its last. In it lie I runs of others, q hosts, each between two runs of its own;
  and column by column it is above or below them as well, at v places or more, I v >= q. That costs
  it so much more, and where it then costs more than it may be worth, it lies in a gap. Else it is
  given those hosts, which saves both sides of what parted them. Only where others reach in from
  outside the outline, at o of the v places, another side is parted instead; but there the
  outline moves by o + 1 or more.
- *One of few hosts in some stage*, where hosts are joined over one: such an edge is cut once or
  not at all though both its ends are, and a run of one host is not charged it. And one of nearly
  all hosts of a stage, whose outline may be longer than the ring. Both cost more than they may be
  worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.hostset import Mask
from placement.pricing import Pricer
from placement.steps import MUCH

FINE = 12  # bits of a cost unit in which hosts are priced
MOST_COST = int(MUCH) >> FINE + 1
NEVER = int(MUCH) >> 8  # as often as there are rows
MOST_AREAS = 160  # rows x period
MOST_CASES = 10_000  # of regions that are no single runs
LIMITS = 8  # tried of what a region may be worth
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


def by_curves(grid: BlockGrid, ring: Ring, capacity: int, known: int = 0) -> int:
    """A doubled cut that no layout beats in which no zone holds more than `capacity` hosts; 0
    where that is no more than is `known`. `ring`: each row of `grid`, in its units."""
    is_plain = set(grid.slopes) == {((grid.row_weight, grid.width),)} and not grid.floors
    total = 2 * (grid.rows * max(ring.ends) + grid.row_weight) * grid.size
    is_small = grid.rows * ring.period <= MOST_AREAS and total < MOST_COST
    if not (is_plain and is_small and grid.row_weight and ring.parted > 0):
        return 0
    regions = _Regions(grid, ring, min(capacity, grid.size))
    low, high = (known << FINE) // grid.size + 1, regions.dearest + 1
    if low >= high or not regions.are_dear(low):
        return 0
    while high - low > 1:
        price = (low + high) // 2
        low, high = (price, high) if regions.are_dear(price) else (low, price)
    return -(-low * grid.size >> FINE)


class _Regions:
    """What regions of at most so many hosts cost at least, doubled and in fine units."""

    def __init__(self, grid: BlockGrid, ring: Ring, most: int) -> None:
        self._grid, self._most = grid, most
        self._weight = grid.row_weight << FINE
        self._run, self._least_run = 2 * min(ring.ends) << FINE, ring.least << FINE
        self._parted = ring.parted << FINE
        self._sizes = np.arange(1, most + 1)
        self._curves = _curves(grid, ring) << FINE
        areas = np.arange(len(self._curves))
        self._grown = (areas - areas[:, None]) % len(areas)  # from one area to another
        largest = np.zeros_like(areas)
        largest[self._sizes % len(areas)] = self._sizes
        self._largest = largest[self._grown]
        both = self._curves[:, None] + self._curves
        self._spanning = np.where(self._largest > 0, both, MUCH)
        held = np.arange(grid.width + 1)
        cost = np.tile(ring.steps(), (grid.rows, 1))
        # Stages are alike from either end, so it is the last one that is missed.
        self._missing = self._patterns(_only(cost, grid.rows - 1, held == 0))
        cost[:, 0] = NEVER
        self._held = self._patterns(cost)
        self._spare = grid.width // 4
        self._cost, self._less = cost, ring.less

    @cached_property
    def _odd(self) -> Ints:
        """Of few hosts of some stage, where that pays less, or of nearly all, by size."""
        held = np.arange(self._grid.width + 1)
        is_odd = (held <= FEW) & bool(self._less) | (held > self._grid.width - self._spare)
        odd = (_only(self._cost, s, is_odd) for s in range((self._grid.rows + 1) // 2))
        return np.asarray(np.min([*map(self._patterns, odd)], axis=0))

    @property
    def dearest(self) -> int:
        """No host is worth more where no region that misses a stage costs less."""
        return int((self._missing // self._sizes).min())

    def _patterns(self, cost: Ints) -> Ints:
        """The least cost by size, from one host on. `cost`: of each row, by what is held of it."""
        grid, most = self._grid, self._most
        pricer = Pricer(grid.rows, grid.width, most, grid.slopes, has_patterns=False)
        pricer.price(cost, np.zeros(most + 1, dtype=np.int64))
        return np.minimum(pricer.by_used[1:], MOST_COST) << FINE

    def are_dear(self, price: int) -> bool:
        """Whether none costs less than its hosts are worth, for some potential."""
        over = self._missing - price * self._sizes
        rest = (over // self._sizes).min() * (self._grid.size - self._sizes)
        if over.min() < 0 or np.any(self._held - price * self._sizes + rest < 0):
            return False  # fewer than two span the stages
        # The less any region is worth with what it gets, the fewer are left that are no runs.
        low = price * self._most
        high = low + 4 * self._run
        found = self._potential(price, over, high)
        for _ in range(LIMITS if found is not None else 0):
            limit = (low + high) // 2
            potential = self._potential(price, over, limit)
            low, high = (limit, high) if potential is None else (low, limit)
            found = found if potential is None else potential
        return found is not None and self._is_enough(price, found)

    def _potential(self, price: int, over: Ints, limit: int) -> Ints | None:
        """By area, for which no region is worth more than `limit`; None if there is none."""
        gap = np.full(len(self._curves), MUCH)
        np.minimum.at(gap, self._sizes % len(gap), over)
        spanning = np.minimum(self._spanning, limit) - price * self._largest
        way = np.minimum(gap[self._grown], spanning)
        potential = np.zeros(len(gap), dtype=np.int64)
        for _ in range(len(gap) + 1):
            nearer = np.minimum(potential, (potential[:, None] + way).min(axis=0))
            if np.array_equal(nearer, potential):
                return potential
            potential = nearer
        return None  # a closed walk is cheaper than its hosts are worth

    def _is_enough(self, price: int, potential: Ints) -> bool:
        """Whether it is also enough for regions that are no run of two or more in each stage."""
        areas = np.arange(len(potential))
        right = (areas[:, None] + areas) % len(areas)  # by left area and size
        got = potential[right] - potential[:, None]
        most_got = got.max(axis=0)
        curves = (self._curves[:, None] + self._curves[right] - got).min(axis=0)
        worth = price * self._sizes + most_got[self._sizes % len(areas)]
        straight = self._grid.rows * self._run
        left = int(worth.max()) - straight
        if np.any(self._odd < worth) or left // self._parted * left > MOST_CASES * self._weight:
            return False
        saved = self._parted + self._least_run
        for runs, columns, open_ in self._cases(left):
            closed = (columns - open_) * self._weight
            moved = (open_ + 1 if open_ else 0) * self._weight
            if runs * columns > self._spare:
                return False
            size = np.arange(1, runs * columns + 1) + self._most
            outline = np.maximum(
                curves[size % len(areas)], straight + moved - most_got[size % len(areas)]
            )
            if np.any(outline + runs * saved + 2 * closed < price * size):
                return False
        return True

    def _cases(self, left: int) -> Iterator[tuple[int, int, int]]:
        """Runs of others inside an outline, columns, and open ones, for less than `left` more than
        a straight outline."""
        for runs in range(1, left // self._parted + 1):
            for columns in range(1, left // self._weight + 1):
                for open_ in range(columns + 1):
                    more = columns + 1 if open_ else columns
                    if runs * self._parted + more * self._weight < left:
                        yield runs, columns, open_


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
