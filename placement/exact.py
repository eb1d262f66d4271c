"""Small cases as one integer program over counts of slots.

With few zones and rows, how many slots of each row every zone holds can be decided at
once: CP-SAT proves what column generation leaves open. One slice axis only, a ring or a
hierarchical collective; what a zone pays for a row is then a matter of three cases (none,
some, all of it), which binary variables tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.milp import INFINITY, IntegerProgram
from placement.traffic import Pattern

MOST_COUNTS = 48  # zones x rows; CP-SAT needs more than half a second for larger ones
WORK, MORE = 0.1, 0.4  # deterministic time of CP-SAT, about as many seconds


def exact_counts(grid: BlockGrid, capacities: Sequence[int]) -> tuple[Ints, int] | None:
    """Slots by zone and row of the least doubled cost, and that cost; None when the case is
    too large, of another kind, or not solved in the time. Shape: (zones, rows)."""
    zones = sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))
    is_simple = len(grid.slice_axes) == 1 and grid.slice_axes[0].pattern in (
        Pattern.RING,
        Pattern.HIERARCHICAL,
    )
    if not is_simple or len(zones) * grid.rows > MOST_COUNTS:
        return None
    program = IntegerProgram()
    count = [_zone(program, grid, capacities[zone]) for zone in zones]
    for s in range(grid.rows):
        program.row(grid.width, grid.width, [(row[s], 1) for row in count])
    for here, after, zone, other in zip(count, count[1:], zones, zones[1:], strict=False):
        if capacities[zone] == capacities[other]:  # alike: the fuller one comes first
            program.row(0, INFINITY, [(n, 1) for n in here] + [(n, -1) for n in after])
    solution = program.solve(WORK, MORE)
    if solution is None or not solution.is_optimal:
        return None
    slots = np.zeros((len(capacities), grid.rows), dtype=np.int64)
    for zone, row in zip(zones, count, strict=True):
        slots[zone] = [solution.values[n] for n in row]
    return slots, solution.cost - grid.offset


def _zone(program: IntegerProgram, grid: BlockGrid, capacity: int) -> list[int]:
    """Variables of one zone: its slots of each row."""
    most = min(capacity, grid.width)
    some, all_ = int(grid.step[1]), int(grid.step[-1])
    count = [program.variable(most, 0) for _ in range(grid.rows)]
    for n in count:
        is_touched = program.variable(1, some)
        program.row(-INFINITY, 0, [(n, 1), (is_touched, -most)])
        if all_ < some and most == grid.width:
            is_whole = program.variable(1, all_ - some)
            program.row(0, INFINITY, [(n, 1), (is_whole, -grid.width)])
            program.row(-INFINITY, 0, [(is_whole, 1), (is_touched, -1)])
    program.row(-INFINITY, capacity, [(n, 1) for n in count])
    for here, after in pairwise(count):
        # Over all zones, what is gained between two rows is what is lost.
        lost = program.variable(most, 2 * grid.row_weight)
        program.row(0, INFINITY, [(lost, 1), (here, -1), (after, 1)])
    return count
