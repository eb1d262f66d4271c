"""Proofs of a bound, as a certificate has them.

The bound is proved once more, as far as it is claimed and no further: by sizes where that is
enough, else by branch and price, whose whole prices and branches are what is written. A node whose
bound reaches the claim needs no branches below it, and what a tree proves as far as it has been
written is a bound as well. See docs/engine.md, "The proof".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor
from typing import Any, NamedTuple

from placement.bound.rounding import attainable
from placement.bound.size_relaxation import ChargingForm, forms
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, patterns_of
from placement.proof.branch_and_price import Prover, Step
from placement.proof.master import Counter, Range
from placement.proof.node import Node, Witness

MOST_STATES = 60_000_000  # of pricing tables that a checker fills: some 20 s
AGAIN = 4  # times the rounds of a placement, for a proof that is to be written
MOST_ENTRIES = 30_000_000  # of tables by sizes: some 10 s
OWN, SHARED = "own", "shared"


class WrittenProof(NamedTuple):
    """The proof of a bound as a certificate has it, and the bytes that follow from it."""

    content: dict[str, Any]
    least_bytes: int


NOTHING = WrittenProof({"by": "nothing"}, 0)


def written_proof(
    grid: BlockGrid, room: Sequence[int], layout: Layout, claimed: int, rounds: int
) -> WrittenProof:
    """Prove that no layout of the grid on zones with so much room cuts less than `claimed` bytes,
    or as much of that as can be shown. `layout`: a good one. `rounds`: of the proof that is
    known."""
    best = NOTHING
    for content, doubled in _proofs(grid, room, layout, claimed, rounds):
        proof = WrittenProof(content, ceil(grid.to_bytes(doubled)))
        best = max(best, proof, key=lambda each: each.least_bytes)
        if best.least_bytes >= claimed:
            break
    return best


def _proofs(
    grid: BlockGrid, room: Sequence[int], layout: Layout, claimed: int, rounds: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """Proofs with their doubled bounds, what is easy to check first."""
    for form in forms(grid):
        yield {"by": "sizes", "charge": _charge(form)}, form.by_sizes(room, MOST_ENTRIES)
    enough = attainable(grid, floor((claimed - 1) * 2 / grid.unit) + 1)
    for form in forms(grid):
        prover = Prover(form.charged, room, patterns_of(layout, len(room)))
        prover.prove(enough * form.parts, AGAIN * rounds)
        if prover.steps:
            content, doubled = _tree(prover, MOST_STATES)
            yield {"by": "prices", "charge": _charge(form), **content}, form.cut_bound(doubled)


def _charge(form: ChargingForm) -> str:
    return OWN if form.grid is form.charged else SHARED


def _tree(prover: Prover, most_states: int) -> tuple[dict[str, Any], int]:
    """The tree as far as it is needed for the most that it can prove with tables of so many states
    in all; and that."""
    most = max(1, most_states // max(1, prover.states))
    proved = sorted({step.proved for step in prover.steps}, reverse=True)
    for target in proved:
        writer = _Writer(prover, target)
        tree, bound = writer.below(prover.steps[0].node, None, 0)
        if len(writer.prices) <= most:
            break
    content = {
        "scale": prover.scale,
        "counters": [_counter(each) for each in writer.counters],
        "prices": [_prices(each, writer.counters) for each in writer.prices.values()],
        "tree": tree,
    }
    return content, bound


class _Writer:
    """The nodes that a prover has explored, cut off where they have reached `target`. `prices`: of
    leaves, by identity; `counters`: with their numbers."""

    def __init__(self, prover: Prover, target: int) -> None:
        self._steps: dict[int, Step] = {id(step.node): step for step in prover.steps}
        self._zones, self._rows = sum(c > 0 for c in prover.capacities), prover.grid.rows
        self._target = target
        self.prices: dict[int, Witness] = {}
        self.counters: dict[Counter, int] = {}
        self._places: dict[int, int] = {}

    def _range(self, node: Node, counter: Counter) -> Range:
        return node.ranges.get(counter, (0, self._zones))

    def below(self, node: Node, known: Witness | None, bound: int) -> tuple[Any, int]:
        """Return what the certificate says of a node, and its bound. `known`: prices at which
        `bound` holds."""
        step = self._steps.get(id(node))
        if step is not None:
            known, bound = step.witness or known, max(bound, step.proved)
        if step is None or bound >= self._target or not step.children:
            return self._leaf(known), bound
        parts = [self.below(child, known, bound) for child in step.children]
        ranges = step.children[0].ranges
        counter = next(c for c, r in ranges.items() if self._range(node, c) != r)
        low, high = ranges[counter]
        is_below = low == self._range(node, counter)[0]
        sides = dict(zip(("below", "above") if is_below else ("above",), parts, strict=False))
        void = self._leaf(known), parts[0][1]  # no count is in its range
        written = {
            "counter": self.counters.setdefault(counter, len(self.counters)),
            "at_most": high if is_below else low - 1,
            "below": sides.get("below", void)[0],
            "above": sides.get("above", void)[0],
        }
        return written, min(part[1] for part in parts)

    def _leaf(self, known: Witness | None) -> int:
        witness = known or Witness((0,) * self._rows, ())
        for counter, _ in witness.of_counter:
            self.counters.setdefault(counter, len(self.counters))
        self.prices.setdefault(id(known), witness)
        return self._places.setdefault(id(known), len(self._places))


def _counter(counter: Counter) -> dict[str, int]:
    if counter.rise:
        stairs = {"rise": counter.rise, "run": counter.run, "top": counter.top}
        return {"row": counter.row, **stairs}
    return {"row": counter.row, "least": counter.least}


def _prices(witness: Witness, numbers: dict[Counter, int]) -> dict[str, Any]:
    return {
        "rows": list(witness.of_slot),
        "counters": [[numbers[counter], price] for counter, price in witness.of_counter],
    }
