"""The outermost tier: which zone carries which block, and how good that is.

Slicing trees find layouts from above, `bounds` proves from below, in turns and with
growing effort, until the two meet or the work allowed is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.bands import band_trees
from placement.bounds import Prover
from placement.grid import BlockGrid
from placement.layout import Layout, counts
from placement.request import Limits
from placement.slicing import slice_grid


@dataclass(frozen=True, slots=True)
class ZoneStep:
    """A layout, its doubled cut, and a doubled cut that no layout beats."""

    layout: Layout
    cost: int
    bound: int


def solve_zones(
    grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int], limits: Limits
) -> ZoneStep:
    """The least cut over zones with `capacities` free hosts.

    `reserved`: the same, less the spares one would like to keep in each zone. Among
    layouts of equal cut one that respects these wins; the bound is over `capacities`.
    The zones must hold the grid, and no single zone can.
    """
    best = _search(grid, capacities, reserved, limits.trees // 4, 0)
    if not best.cost or not limits.rounds:
        return ZoneStep(best.layout, best.cost, 0)
    zones = counts(best.layout, len(capacities))
    seeds = [tuple(int(n) for n in rows) for rows in zones if rows.any()]
    prover = Prover(grid, capacities, seeds)
    bound = prover.prove(best.cost, limits.rounds // 4)
    if bound < best.cost:
        more = _search(grid, capacities, reserved, limits.trees, bound)
        best = min(best, more, key=lambda step: step.cost)
        bound = prover.prove(best.cost, limits.rounds - limits.rounds // 4)
    return ZoneStep(best.layout, best.cost, bound)


def _search(
    grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int], tries: int, target: int
) -> ZoneStep:
    """The better of two searches; with spares kept if that costs no cut."""
    found: list[ZoneStep] = []
    for room in (reserved, capacities):
        if sum(room) < grid.size or (found and found[0].cost <= target):
            continue
        cost, layout = slice_grid(grid, room, band_trees(grid, room), tries, target)
        found.append(ZoneStep(layout, cost, target))
        if list(reserved) == list(capacities):
            break
    return min(found, key=lambda step: step.cost)
