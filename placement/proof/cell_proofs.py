"""Proofs on several views of one job: which of them gets how much of the work.

See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil

import numpy as np

from placement.bound.cells import Cells
from placement.fabric.tree import Ints
from placement.grid.layout import ZonePattern, counts
from placement.proof.branch_and_price import ROUNDS_EACH, Prover
from placement.search.integer_cover import covering_slots
from placement.search.multilevel import WIDE
from placement.search.zone_order import arranged
from placement.speculative import ahead

# Less patient than over zones, for a round on these tables takes longer.
MOST_AGAIN = 4  # times, as long as each leaves no more than this of the gap:
CLOSING = 0.75
RIVAL = 0.95  # of the best bound so far: of a view that may prove more in the end
FEW_OPEN = 4  # cases of a proof, which are gone through, if half as many are left each time


class Views:
    """What is proved on each view whose table is not too large, and goes on from call to call."""

    def __init__(self, views: Sequence[Cells], capacities: Sequence[int], states: int) -> None:
        """`states`: of the pricing table of a view that is priced, at most."""
        self.all, self._states = views, states
        self._capacities = capacities
        self._proofs: list[_Proof] = []
        self._is_begun = False

    def prove(self, layout: Ints, cost: int, rounds: int, bound: int) -> tuple[int, Ints | None]:
        """A doubled cut in bytes that no layout beats, at least `bound`, from about so many rounds
        against a layout of this `cost`; and a layout that a proof chose."""
        if bound < cost:
            bound = max(bound, self._begun(layout, cost, min(rounds, ROUNDS_EACH)))
        if bound >= cost or not self._proofs:
            return bound, None
        best = self._pursued(cost, rounds)
        bound = max(bound, best.bound)
        prover, view = best.prover, best.view
        is_better = prover.cover and view.lot == 1 and bound < cost
        return bound, _laid_out(view, self._capacities, prover.cover) if is_better else None

    def leave(self, bound: int) -> None:
        """Views that are far behind what is known otherwise."""
        self._proofs = [proof for proof in self._proofs if proof.bound >= RIVAL * bound]

    def _begun(self, layout: Ints, cost: int, rounds: int) -> int:
        """What the proofs have come to, after so many rounds on each of several views at first: the
        best of them and the next one, if that is near, are kept."""
        if not self._is_begun:
            self._is_begun = True
            room = self._capacities
            small = [v for v in self.all if v.states([c * v.lot for c in room]) <= self._states]
            tried = rounds if len(small) > 1 else 0
            begun = [partial(_begun, view, room, layout, cost, tried) for view in reversed(small)]
            for proof in ahead(begun):
                if proof.bound >= cost:
                    return cost
                self._proofs.append(proof)
            self._proofs.sort(key=lambda proof: -proof.bound)
            best = max((proof.bound for proof in self._proofs), default=0)
            self._proofs = [p for p in self._proofs[:2] if p.bound >= RIVAL * best]
        for proof in self._proofs:
            proof.learn(layout)
        return max((proof.bound for proof in self._proofs), default=0)

    def _pursued(self, cost: int, rounds: int) -> _Proof:
        """The proof that comes furthest. Two share the work; who closes a good part of the gap with
        it or has few cases left goes on with as much again, and so forth."""
        if rounds <= ROUNDS_EACH:
            self._proofs[0].prove(cost, rounds)
            return self._proofs[0]
        going = self._proofs
        for turn in range(1 + MOST_AGAIN):
            closing = []
            before = [cost - proof.bound if proof.bound else 0 for proof in going]
            share = rounds // len(going)
            more = ahead([partial(each.prove, cost, share, len(going) == 1) for each in going])
            for proof, was_open, known in zip(going, before, more, strict=True):
                if known >= cost:
                    return proof
                has_few = len(proof.prover.heap) <= FEW_OPEN >> turn and known >= WIDE * cost
                if has_few or cost - proof.bound < CLOSING * was_open:
                    closing.append(proof)
            going = closing
            if not going:
                break
        return max(self._proofs, key=lambda proof: proof.bound)


class _Proof:
    """A proof on one view, and the `bound` it has come to, in doubled bytes."""

    def __init__(self, view: Cells, capacities: Sequence[int], layout: Ints) -> None:
        """Begins with the patterns of a layout."""
        self.view = view
        self._room = [c * view.lot for c in capacities]
        seeds = self._patterns(layout)
        self.prover = Prover(view.grid, self._room, seeds, view.lot)
        self.bound = 0

    def learn(self, layout: Ints) -> None:
        """Of one more layout."""
        self.prover.pool.add(self._patterns(layout))

    def prove(self, cost: int, rounds: int, is_alone: bool = True) -> int:
        """The bound after so many rounds more against a layout of this cost. `is_alone`: as of a
        `Prover`."""
        incumbent = ceil(cost / self.view.grid.unit)
        proved = self.prover.prove(incumbent, rounds, is_alone=is_alone)
        self.bound = max(self.bound, self.view.in_bytes(proved))
        return self.bound

    def _patterns(self, layout: Ints) -> list[ZonePattern]:
        zone_of_cell = np.repeat(layout, self.view.cells_of_host)
        by_zone = counts(zone_of_cell[self.view.grid.block], len(self._room))
        return [tuple(int(n) for n in rows) for rows in by_zone if rows.any()]


def _begun(view: Cells, capacities: Sequence[int], layout: Ints, cost: int, rounds: int) -> _Proof:
    proof = _Proof(view, capacities, layout)
    if rounds:
        proof.prove(cost, rounds)
    return proof


def _laid_out(view: Cells, capacities: Sequence[int], cover: Sequence[ZonePattern]) -> Ints | None:
    """The zone of each block, in a layout out of these patterns. Slots are blocks."""
    slots = covering_slots(view.grid, capacities, cover)
    if slots is None:
        return None
    rows = arranged(slots, view.grid.row_weight)
    layout = np.empty(view.grid.size, dtype=np.int64)
    layout[view.grid.block // view.cells_of_host] = rows
    return layout
