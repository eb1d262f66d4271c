"""Stages that do not end where hosts do, and what a host means inside a stage.

The pipeline is the outermost axis, a stage is W cells in rank order, and a host holds `lot`
neighbouring cells. What a zone holds of a stage are whole runs of `lot` cells, but for the
ends of the stage, where a host holds cells of two stages.

*Inside a stage* the runs lie on a circle, and every ring joins runs that are near each
other: `ring_cuts` finds the cheapest way to hold n cells (`least_by_cells`).

*Between two stages* runs are staggered unless W is a multiple of `lot`: each overlaps two
of the other stage. The overlaps make a path, or a circle where one host holds the last cells
of one stage and the first of the next. A zone that holds neither nothing nor everything cuts
a path at its smallest overlap at least, a circle at its two smallest (`floors`). Who cuts a path
once holds one of its ends, so all zones but two cut a path at its two smallest overlaps too.

*Ends of groups*, where stages are whole hosts and hosts end inside groups of an inner ring,
say of five hosts: a zone whose blocks are no multiple of five parts a group at one end at
least. But where a zone begins another one ends, so what zones of one stage hold adds up to
whole turns: three zones of 1, 1 and 3 part groups at two places, not at one and a half. With a
potential on each of the five places, paid where a zone begins and given back where it ends, the
sum over the zones is the same and the least cost of n blocks is another one, which `ring_cuts`
finds. Potentials that rise evenly round the five are those of Gomory's cut of "the zones add up
to whole groups"; k of them, as steps of one or two places around are cuts as well (`Ends`).

*Odd cells*, a number that is no multiple of `lot`, are held by the zones of the hosts at the
ends of a stage alone: two zones at most (`odd`).
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from placement.bound.ring_cuts import Edges, least_cuts
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.grid.isoperimetry import MUCH, BlockAxis
from placement.workload.traffic import Pattern


@dataclass(frozen=True, slots=True)
class Ends:
    """Zones of one row pay `price` times what they add up to, of whichever sign, beyond what
    each of them costs: `paid[n % len(paid)]` for a zone of n blocks."""

    paid: tuple[int, ...]
    price: int


def floors(grid: BlockGrid, lot: int, *, is_inner: bool = False) -> tuple[int, ...]:
    """Of each pair of neighbouring stages, as of a BlockGrid; rows are stages of cells.
    `is_inner`: for zones that hold no end of a path."""
    pairs = range(grid.rows - 1)
    return tuple(grid.row_weight * _least_parted(grid.width, lot, s, is_inner) for s in pairs)


def odd(grid: BlockGrid, lot: int) -> tuple[int, ...]:
    """How many zones at most hold cells of each stage that are not whole runs."""
    is_split = [s * grid.width % lot != 0 for s in range(grid.rows + 1)]
    return tuple(is_split[s] + is_split[s + 1] for s in range(grid.rows))


def _least_parted(width: int, lot: int, stage: int, is_inner: bool) -> int:
    """Pipeline edges between a stage and the next that any zone cuts which holds a part, or any
    that holds no end as well."""
    cell = np.arange(width) + stage * width
    overlaps = Counter(zip((cell // lot).tolist(), ((cell + width) // lot).tolist(), strict=True))
    runs = {run for pair in overlaps for run in pair}
    smallest = sorted(overlaps.values())
    is_circle = len(overlaps) == len(runs)
    return sum(smallest[:2]) if is_circle or is_inner else smallest[0]


def least_by_cells(grid: BlockGrid, lot: int) -> Ints:
    """`grid.step`, or more where runs of `lot` cells stay together. Shape: (width + 1,)."""
    starts = sorted({s * grid.width % lot for s in range(grid.rows)})
    found = [_least_from(grid, lot, start) for start in starts]
    least = np.min([grid.step if each is None else each for each in found], axis=0)
    return np.where(least < MUCH, np.maximum(least, grid.step), grid.step)


def _least_from(grid: BlockGrid, lot: int, start: int, begun: Sequence[int] = ()) -> Ints | None:
    """For a stage whose first cell is cell `start` of its host; None if that is not known."""
    if any(axis.pattern is not Pattern.RING for axis in grid.slice_axes):
        return None
    run = (np.arange(grid.width) + start) // lot
    edges, cells = joined(grid.slice_axes, run), np.bincount(run).tolist()
    return least_cuts(edges, cells, grid.width, begun)


def shared_ends(grid: BlockGrid, lot: int) -> tuple[Ends, ...]:
    """What zones of one stage pay for the ends of groups that they share; for stages of whole
    hosts, whose first cell begins a group."""
    inner = next((a for a in grid.slice_axes if a.stride == 1), None)
    if inner is None or inner.pattern is not Pattern.RING or inner.size < 3:
        return ()
    period = inner.size // gcd(inner.size, lot)
    price = 2 * inner.weight // period
    tried = (_ends(grid, lot, period, k, price) for k in range(1, (period + 1) // 2))
    return tuple(ends for ends in tried if ends is not None)


def _ends(grid: BlockGrid, lot: int, period: int, k: int, price: int) -> Ends | None:
    """None where some part would pay more than it does, by the exact cost of every size."""
    host = np.arange(grid.width // lot + 1)
    turn = k * host % period
    paid = np.where(turn > 0, period - 2 * turn, 0)
    least = least_by_cells(grid, lot)[::lot]
    for sign in (price, -price):
        found = _least_from(grid, lot, 0, (-sign * paid[:-1]).tolist())
        if found is None or np.any(least + sign * paid > found[::lot]):
            return None
    return Ends(tuple(paid[:period].tolist()), price)


def joined(axes: Sequence[BlockAxis], run: Ints) -> Edges:
    """The rings of a stage: (run, later run) -> weight. `run`: of each cell, in rank order."""
    edges: Counter[tuple[int, int]] = Counter()
    cell = np.arange(len(run))
    for axis in axes:
        index = cell // axis.stride % axis.size
        there = run[cell + ((index + 1) % axis.size - index) * axis.stride]
        for a, b in zip(run.tolist(), there.tolist(), strict=True):
            if a != b:
                edges[min(a, b), max(a, b)] += axis.weight
    return edges
