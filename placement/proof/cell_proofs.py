"""Proofs on several views of one job: which of them gets how much of the work.

See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from math import ceil

import numpy as np

from placement.bound.cells import Cells, cell_views
from placement.bound.size_relaxation import SizeBound
from placement.fabric.tree import Ints
from placement.grid.layout import ZonePattern, counts
from placement.proof.branch_and_price import Prover
from placement.search.integer_cover import arranged, covering_slots
from placement.speculative import ahead
from placement.workload.request import Request

CLOSING = 0.75  # of a gap: a proof that leaves no more of it goes on


class Views:
    """What is proved on each view whose table is not too large, and goes on from call to call.
    Bounds are doubled cuts in bytes that no layout beats."""

    def __init__(self, request: Request, gpus: int, capacities: Sequence[int], states: int) -> None:
        """`states`: of the pricing table of a view that is priced, at most."""
        self._request, self._gpus = request, gpus
        self._capacities, self._states = capacities, states
        self._proofs: list[_Proof] | None = None

    @cached_property
    def _views(self) -> list[tuple[Cells, SizeBound]]:
        views = cell_views(self._request, self._gpus)
        return [(view, SizeBound(view.grid, view.lot)) for view in views]

    def by_sizes(self, entries: int) -> int:
        """From sizes alone, by tables of up to so many entries; 0 if all are larger."""
        bound = 0
        for view, sizes in self._views:
            room = [c * view.lot for c in self._capacities]
            least = sizes.least_cut(view.grid.everywhere, room, entries)
            bound = max(bound, view.in_bytes(least))
        return bound

    def prove(self, layout: Ints, cost: int, rounds: int, known: int) -> tuple[int, Ints | None]:
        """From about so many rounds against a layout of this `cost`, where a bound is `known`; and
        a layout that a proof chose. Views share the work, then the best one goes on; as long as it
        closes a good part of the gap with it, with as much again."""
        if self._proofs is None:
            room = self._capacities
            small = [
                v for v, _ in self._views if v.states([c * v.lot for c in room]) <= self._states
            ]
            self._proofs = [_Proof(view, room, layout) for view in small]
        for proof in self._proofs:
            proof.learn(layout)
        if not self._proofs:
            return known, None
        while True:
            going = self._proofs
            share = max(1, rounds // len(going))
            more = [partial(each.prove, cost, share, len(going) == 1) for each in going]
            for bound in ahead(more):
                if bound >= cost:
                    return cost, None
            best = max(going, key=lambda proof: proof.bound)
            known, self._proofs = max(known, best.bound), [best]
            if not best.is_closing:
                break
        if best.view.lot > 1 or not best.prover.cover:
            return known, None
        return known, _laid_out(best.view, self._capacities, best.prover.cover)


class _Proof:
    """A proof on one view, and the `bound` it has come to, in doubled bytes. `is_closing`: whether
    it closed a good part of the gap that it knew of when it was asked last."""

    def __init__(self, view: Cells, capacities: Sequence[int], layout: Ints) -> None:
        """Begins with the patterns of a layout."""
        self.view = view
        self._room = [c * view.lot for c in capacities]
        seeds = self._patterns(layout)
        self.prover = Prover(view.grid, self._room, seeds, view.lot)
        self.bound, self.is_closing = 0, False

    def learn(self, layout: Ints) -> None:
        """Of one more layout."""
        self.prover.pool.add(self._patterns(layout))

    def prove(self, cost: int, rounds: int, is_alone: bool = True) -> int:
        """The bound after so many rounds more against a layout of this cost. `is_alone`: as of a
        `Prover`."""
        incumbent = ceil(cost / self.view.grid.unit)
        gap = cost - self.bound if self.bound else 0
        proved = self.prover.prove(incumbent, rounds, is_alone=is_alone)
        self.bound = max(self.bound, self.view.in_bytes(proved))
        self.is_closing = cost - self.bound < CLOSING * gap
        return self.bound

    def _patterns(self, layout: Ints) -> list[ZonePattern]:
        zone_of_cell = np.repeat(layout, self.view.cells_of_host)
        by_zone = counts(zone_of_cell[self.view.grid.block], len(self._room))
        return [tuple(int(n) for n in rows) for rows in by_zone if rows.any()]


def _laid_out(view: Cells, capacities: Sequence[int], cover: Sequence[ZonePattern]) -> Ints | None:
    """The zone of each block, in a layout out of these patterns. Slots are blocks."""
    slots = covering_slots(view.grid, capacities, cover)
    if slots is None:
        return None
    rows = arranged(slots, view.grid.row_weight)
    layout = np.empty(view.grid.size, dtype=np.int64)
    layout[view.grid.block // view.cells_of_host] = rows
    return layout
