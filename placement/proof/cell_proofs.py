"""Proofs over the cells of a job whose blocks form no grid.

See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import ceil

import numpy as np

from placement.bound.cells import Cells, cells_of
from placement.bound.size_relaxation import SizeBound
from placement.fabric.tree import Ints
from placement.grid.layout import ZonePattern, patterns_of
from placement.proof.branch_and_price import Prover
from placement.search.integer_cover import arranged, covering_slots
from placement.workload.request import Request

CLOSING = 0.75  # of a gap: a proof that leaves no more of it goes on


class CellProof:
    """A proof over cells that continues from call to call, unless its table is too large. Bounds
    are doubled cuts in bytes that no layout beats."""

    def __init__(self, request: Request, gpus: int, capacities: Sequence[int], states: int) -> None:
        """`states`: of the pricing table, at most."""
        self._request, self._gpus = request, gpus
        self._capacities, self._states = capacities, states
        self._prover: Prover | None = None
        self._bound = 0

    @cached_property
    def _cells(self) -> Cells:
        return cells_of(self._request, self._gpus)

    @cached_property
    def _sizes(self) -> SizeBound:
        return SizeBound(self._cells.grid, self._cells.lot)

    @cached_property
    def _room(self) -> list[int]:
        return [c * self._cells.lot for c in self._capacities]

    def by_sizes(self, entries: int) -> int:
        """Return a bound from sizes alone, by tables of at most so many entries, else 0."""
        least = self._sizes.least_cut(self._cells.grid.everywhere, self._room, entries)
        return self._cells.in_bytes(least)

    def prove(self, layout: Ints, cost: int, rounds: int, known: int) -> tuple[int, Ints | None]:
        """Prove by about so many rounds against a layout of this `cost`, where a bound is `known`;
        as long as they close a good part of the gap, by as many again. Return the bound, and a
        layout that the proof chose."""
        cells, patterns = self._cells, self._patterns(layout)
        if cells.grid.states(self._room) > self._states:
            return known, None
        if self._prover is None:
            self._prover = Prover(cells.grid, self._room, patterns, cells.lot)
        self._prover.pool.add(patterns)
        while True:
            gap = cost - self._bound if self._bound else 0
            proved = self._prover.prove(ceil(cost / cells.grid.unit), rounds)
            self._bound = max(self._bound, cells.in_bytes(proved))
            if self._bound >= cost:
                return cost, None
            if cost - self._bound >= CLOSING * gap:
                return max(known, self._bound), self._laid_out(self._prover.cover)

    def _laid_out(self, cover: Sequence[ZonePattern]) -> Ints | None:
        """The zone of each block, in a layout out of these patterns, where slots are blocks."""
        grid = self._cells.grid
        slots = covering_slots(grid, self._room, cover) if cover and self._cells.lot == 1 else None
        if slots is None:
            return None
        layout = np.empty(grid.size, dtype=np.int64)
        layout[grid.block // self._cells.cells_of_host] = arranged(slots, grid.row_weight)
        return layout

    def _patterns(self, layout: Ints) -> list[ZonePattern]:
        """The patterns of a layout, which a proof begins with or learns of."""
        zone_of_cell = np.repeat(layout, self._cells.cells_of_host)
        return patterns_of(zone_of_cell[self._cells.grid.block], len(self._room))
