"""What no layout of a gang beats, as it follows from a certificate by weak duality.

Blocks form a grid, and a zone pays for the slots that it holds: at least `Grid.step` of each row,
and `row_weight` for each slot that is in one row and not in the next. The least that zones of these
sizes can pay together is found by sizes alone, or at the prices of the certificate: whatever these
are, what slots are worth at them, less what zones pay less than that, is a bound. docs/verify.md
has the inequalities. Whole numbers and the standard library alone.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate, combinations, pairwise, product
from itertools import combinations_with_replacement as ordered_pairs
from math import gcd, lcm, prod
from typing import Any, NamedTuple

MUCH = 1 << 200  # dearer than anything
MOST_SUMS = 200_000  # of whole edges that are tried for a bound that is rounded up
FINE = 16  # layers of at most so many cells are told apart by the cell
GANG = -1  # in place of a row


class Refused(Exception):
    """A claim of the certificate is false, or does not follow from its numbers."""


class Line(NamedTuple):
    """An axis of blocks beside the pipeline: lines of `size` of them."""

    size: int
    pattern: str
    weight: int

    def cost(self) -> list[int]:
        """Doubled, of a zone that holds 0 .. size blocks of a line. Concave."""
        if self.pattern == "all_to_all":
            return [2 * self.weight * m * (self.size - m) for m in range(self.size + 1)]
        whole = self.weight * 2 * (self.pattern == "hierarchical")
        return [0] + [2 * self.weight] * (self.size - 1) + [whole]


@dataclass(frozen=True)
class Grid:
    """The blocks of a gang as a grid: `rows` along its chain, an edge of which weighs
    `row_weight`, and `width` slots in each. `weights`: of every edge, in a `unit` of bytes."""

    rows: int
    width: int
    row_weight: int
    lines: tuple[Line, ...]
    weights: tuple[int, ...]
    unit: Fraction

    def step(self) -> list[int]:
        """The least that a zone pays for 0 .. width slots of a row, whichever these are."""
        lines = range(len(self.lines))
        if len(lines) < 2:
            return self.lines[0].cost() if lines else [0, 0]
        least = [0] * (self.width + 1)
        for pair in combinations(lines, 2):
            layer = plane(*(self.lines[i] for i in pair))
            for i in set(lines).difference(pair):
                layer = stack(layer, self.lines[i])
            least = list(map(max, least, layer))
        return least

    def offset(self) -> int:
        """Return the cost of one zone for each hierarchical group, which sums over zones have too
        much."""
        groups = (n.weight * self.width // n.size for n in self.lines if n.pattern[0] == "h")
        return 2 * self.rows * sum(groups)

    def attainable(self, doubled: int) -> int:
        """The least sum of whole edges, doubled, that is no less."""
        weights = sorted({2 * w for w in self.weights if w}, reverse=True)
        if doubled <= 0 or not weights:
            return max(0, doubled)
        common = gcd(*weights)
        *large, small = (w // common for w in weights)
        least = -(-doubled // common)
        many = [range(min(-(-least // w), small) + 1) for w in large]
        if len(large) > 2 or prod(map(len, many)) > MOST_SUMS:
            return least * common
        sums = (sum(map(int.__mul__, large, each)) for each in product(*many))
        return min(s + max(0, -(-(least - s) // small)) * small for s in sums) * common

    def shared(self) -> Grid:
        """Return the grid in half units: zones that part a hierarchical group pay half."""
        whole = (n._replace(weight=2 * n.weight) for n in self.lines if n.pattern[0] != "h")
        parts = (n._replace(pattern="ring") for n in self.lines if n.pattern[0] == "h")
        lines = (*whole, *parts)
        weights = (2 * self.row_weight, *(2 * w for w in self.weights), *(n.weight for n in lines))
        return Grid(self.rows, self.width, 2 * self.row_weight, lines, weights, self.unit / 2)


def grid_of(traffic: list[dict[str, Any]], gpus: int) -> Grid:
    """Return the grid of blocks of so many ranks. No layout sends less over trees than over a
    hierarchy, which has Z - 1 edges of twice the vector over Z domains, as two trees have at least.
    """
    rows, row_weight, lines, exact = 1, Fraction(0), [], []
    for each in traffic:
        size, stride = each["size"], each["stride"]
        pattern = {"tree": "hierarchical"}.get(each["pattern"], each["pattern"])
        if gpus % (size * stride) == 0:
            continue
        if stride % gpus and (gpus % stride or size * stride % gpus):
            raise Refused("ranks of a host form no grid")
        inside = max(1, gpus // stride)
        weight = Fraction(each["edge_bytes"] * (gpus // inside))
        if pattern == "chain":
            rows, row_weight = size // inside, weight
            exact.append(Fraction(each["wrap_bytes"] * (gpus // inside)))
        else:
            weight *= inside**2 if pattern == "all_to_all" else 1
            weight *= Fraction(size, size - 1) if pattern == "hierarchical" else 1
            lines.append((size // inside, pattern, weight))
        exact.append(weight)
    fine = lcm(*(w.denominator for w in exact))
    unit = Fraction(gcd(*(int(w * fine) for w in exact)) or 1, fine)
    scaled = tuple(Line(size, pattern, int(w / unit)) for size, pattern, w in lines)
    weights, width = tuple(int(w / unit) for w in exact), prod(line.size for line in scaled)
    return Grid(rows, width, int(row_weight / unit), scaled, weights, unit)


def plane(a: Line, b: Line) -> list[int]:
    """Doubled least cost of so many cells of an a.size x b.size plane: all lines of `a` but one
    hold the least or the most of any, for the cost of a line is concave."""
    if b.pattern[0] == "a" or (a.pattern[0] != "a" and b.size < a.size):
        a, b = b, a
    line, across, many = a.cost(), b.cost()[1], b.size - 1
    least = [MUCH] * (a.size * b.size + 1)
    for low, high in ordered_pairs(range(a.size + 1), 2):
        extra = across * (high if b.pattern[0] == "h" else high - low)
        for full in range(b.size):
            held = full * high + (many - full) * low + low
            paid = full * line[high] + (many - full) * line[low] + extra
            part = slice(held, held + high - low + 1)
            least[part] = map(min, least[part], [paid + c for c in line[low : high + 1]])
    return least


def stack(base: list[int], line: Line) -> list[int]:
    """The floor of a stack of layers that cost `base` each: where they hold low to high cells, at
    least high - low lines are held in part, or high touched. In large layers low and high are
    intervals."""
    cells, cost = len(base) - 1, line.cost()
    begins = {0, 1, cells // 4, cells // 2, cells - 1, cells}
    ends = sorted(begins if cells > FINE else range(cells + 1))
    parts = [(a, b - 1) for a, b in pairwise([*ends, cells + 1])]
    best = [MUCH] * (cells * line.size + 1)
    for low, high in ordered_pairs(parts, 2):
        lines = high[0] if line.pattern[0] == "h" else max(0, high[0] - low[1])
        allowed = [c if low[0] <= n <= high[1] else MUCH for n, c in enumerate(base)]
        layers = reduce(min_plus, [allowed] * line.size)
        best = [min(b, c + cost[1] * lines) for b, c in zip(best, layers, strict=True)]
    return best


def min_plus(a: list[int], b: list[int]) -> list[int]:
    """The least of a[i] + b[n - i], for each n."""
    least = [MUCH] * (len(a) + len(b) - 1)
    for i, first in enumerate(a):
        if first < MUCH:
            least[i : i + len(b)] = map(min, least[i : i + len(b)], [first + c for c in b])
    return least


def cheapest(rows: list[list[int]], weight: int, most: int) -> list[int]:
    """The least cost of 0 .. most slots in all: rows[s][n] for n of row s, `weight` for each in
    one row and not in the next."""
    table, slots = [[0] + [MUCH] * most], min(len(rows[0]) - 1, most)
    for s, row in enumerate(rows):
        moved = spread(table, weight) if s else table * (slots + 1)
        moved = [[MUCH] * n + each[: most + 1 - n] for n, each in enumerate(moved)]
        table = [[c + row[n] for c in each] for n, each in enumerate(moved)]
    return list(map(min, *table))


def spread(table: list[list[int]], weight: int) -> list[list[int]]:
    """The least of each row and the others, at so much for each row between."""
    for way in (range(1, len(table)), range(len(table) - 2, -1, -1)):
        for i in way:
            near = table[i - way.step]
            table[i] = list(map(min, table[i], [c + weight for c in near]))
    return table


class CutBound:
    """Computes the bound that the numbers of a certificate prove for zones of these capacities
    (`room`)."""

    def __init__(self, grid: Grid, room: list[int], proof: dict[str, Any]) -> None:
        self.own, self.proof = grid, proof
        self.parts = 2 if proof["charge"] == "shared" else 1
        self.grid = grid.shared() if self.parts == 2 else grid
        self.size = grid.rows * grid.width
        self.room, self.step = [min(c, self.size) for c in room], self.grid.step()

    def bound(self) -> int:
        """A doubled cut that no layout beats, in units of the grid."""
        doubled = self._by_sizes() if self.proof["by"] == "sizes" else self._by_prices()
        doubled = self.grid.attainable(doubled - self.grid.offset())
        return self.own.attainable(-(-doubled // self.parts))

    def _by_sizes(self) -> int:
        grid, most = self.grid, self.room[0]
        least = [0]
        part = cheapest([self.step] * grid.rows, grid.row_weight, most)
        for room in self.room:
            least = min_plus(least, part[: room + 1])[: self.size + 1]
        chain = 2 * grid.row_weight * (self._fewest(self.size) - 1) if grid.width == 1 else 0
        return max(chain, least[self.size])

    def _fewest(self, needed: int) -> int:
        """Zones that together hold so many slots."""
        return 1 + bisect_left(list(accumulate(self.room)), needed)

    def _by_prices(self) -> int:
        counters = self.proof["counters"]
        self._priced: dict[int, int] = {}
        ranges = dict(enumerate(map(self._range, counters)))
        scale: int = self.proof["scale"]
        return -(-self._least(self.proof["tree"], ranges) // scale)

    def _range(self, counter: dict[str, int]) -> tuple[int, int]:
        """Return the least and the most of a counter, summed over the zones of a layout."""
        row, zones, top = counter["row"], len(self.room), self.room[0]
        if not GANG <= row < self.grid.rows:
            raise Refused(f"there is no row {row}")
        target = self.size if row == GANG else self.grid.width
        if "top" in counter:
            if counter["top"] > counter["run"]:
                raise Refused("such stairs are not subadditive")
            return climbed(counter, target), zones * climbed(counter, top)
        few = self._fewest(target) if counter["least"] == 1 else 0
        return few, sum(room >= counter["least"] for room in self.room)

    def _least(self, tree: Any, ranges: dict[int, tuple[int, int]]) -> int:
        """Return the least charge of a layout whose counters lie in these ranges."""
        if any(low > high for low, high in ranges.values()):
            return MUCH
        if isinstance(tree, dict):
            which, at = tree["counter"], tree["at_most"]
            low, high = ranges[which]
            below = ranges | {which: (low, min(high, at))}
            above = ranges | {which: (max(low, at + 1), high)}
            return min(self._least(tree["below"], below), self._least(tree["above"], above))
        paid, prices = self._paid(tree), self.proof["prices"][tree]["counters"]
        return paid + sum(int(v) * ranges[i][0 if v > 0 else 1] for i, v in prices)

    def _paid(self, which: int) -> int:
        """Return the value of all slots at these prices, less what zones pay below it."""
        if which not in self._priced:
            grid, prices, top = self.grid, self.proof["prices"][which], self.room[0]
            scale, by_size = self.proof["scale"], [0] * (top + 1)
            rows = [[scale * c - u * n for n, c in enumerate(self.step)] for u in prices["rows"]]
            for i, v in prices["counters"]:
                counter = self.proof["counters"][i]
                row = counter["row"]
                if row == GANG:
                    by_size = [c + v * climbed(counter, n) for n, c in enumerate(by_size)]
                else:
                    rows[row] = [c - v * climbed(counter, n) for n, c in enumerate(rows[row])]
            used = cheapest(rows, scale * grid.row_weight, top)
            best = [0, *accumulate(map(int.__sub__, used[1:], by_size[1:]), min)]
            zones = sum(min(0, best[room]) for room in self.room)
            self._priced[which] = grid.width * sum(prices["rows"]) + zones
        return self._priced[which]


def climbed(counter: dict[str, int], held: int) -> int:
    """Return the value of a counter for a zone that holds `held` slots."""
    if "least" in counter:
        return int(held >= counter["least"])
    whole, rest = divmod(held * counter["rise"], counter["run"])
    return whole * counter["top"] + min(rest, counter["top"])
