"""A node of the proof as one integer program, where few patterns can be part of anything better.

At any prices a layout costs at least the Lagrangian bound, and more by what its patterns cost
beyond the cheapest one of their zones. So only patterns within the gap can be part of a layout
that beats the best one known. Where there are few, CP-SAT settles the node outright: rows are
covered exactly, and zones of every size are as many as there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placement.fabric import Ints
from placement.master import EVERY_ROW, Counter, Pattern, Range
from placement.solver import FEW, INFINITY, IntegerProgram


def least_cover(
    patterns: Ints,
    cost: Ints,
    width: int,
    ranges: Mapping[Counter, Range],
    below: int,
    work: float,
    more: float,
) -> tuple[int | None, list[Pattern]]:
    """The least sum of costs under `below` of patterns that cover each row `width` times, and
    those patterns; `below` and none if there is no such sum. None for the sum if that stays
    open, with the best patterns met.

    `ranges` count the zones. `work`, `more`: deterministic time of CP-SAT in a first try, and
    after it. Shapes: (patterns, rows), (patterns,).
    """
    if not len(patterns):
        return below, []
    program = IntegerProgram()
    of_zones = (c for c in ranges if not c.rise and c.row != EVERY_ROW)
    zones = max(ranges[counter][1] for counter in of_zones)
    paid: list[tuple[int, int]] = []  # beyond patterns
    copies = [program.variable(zones, c) for c in cost.tolist()]

    def row(low: int, high: int, factors: Ints, more: Sequence[tuple[int, int]] = ()) -> None:
        entries = zip(copies, factors.tolist(), strict=True)
        program.row(low, high, [*((x, factor) for x, factor in entries if factor), *more])

    for held in patterns.T:
        row(width, width, held)
    for counter, (low, high) in ranges.items():
        counted = counter.of(patterns)
        if counter.turn:
            off = program.variable(zones * max(counter.turn), counter.price)
            row(low, INFINITY, counted, [(off, 1)])
            row(-INFINITY, high, counted, [(off, -1)])
            paid.append((off, counter.price))
        elif not counter.rise and not (_is_said(counter, patterns, low, width) and high >= zones):
            row(low, high, counted)
    row(-INFINITY, below - 1, cost, paid)
    solution = program.solve(work, more)
    if solution is None:
        return below if program.is_impossible else None, []
    used = np.repeat(np.arange(len(patterns)), [solution.values[x] for x in copies])
    cover = [tuple(patterns[i].tolist()) for i in used]
    return solution.cost if solution.is_optimal else None, cover


def _is_said(counter: Counter, patterns: Ints, low: int, width: int) -> bool:
    """Whether covered rows say as much: of how many zones hold some of one, where the patterns are
    few. Among many of them the search goes by other ways without, no shorter ones."""
    is_plain = counter.row >= 0 and not (counter.is_link or counter.lot) and counter.least == 1
    few = is_plain and len(patterns) <= FEW
    return few and low * int(patterns[:, counter.row].max()) <= width
