"""The cheapest part of every size where holding a block has its price, by the kind of the block.

A narrow graph is gone along in one or several *courses* (`pathwidth`). What a part holds of each
kind comes with it: as many bits of one number for each kind as the largest part needs.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.bound.frontier import Walk, Worth
from placement.bound.pathwidth import Ahead, Passage
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.grid.isoperimetry import MUCH

CODE_BITS = 62


class Course(NamedTuple):
    """Parts that hold all of the `pinned` blocks of a walk if it `holds` them, else none. They pay
    so much more than the walk tells."""

    walk: Walk
    pinned: tuple[int, ...] = ()
    holds: bool = False
    paid: int = 0


class Priced(NamedTuple):
    """By size: what a part pays at least, prices taken off, and how many blocks of each kind one
    holds that pays just that, where it `is_known`. Shapes: (sizes,), (sizes, kinds), (sizes,)."""

    cost: Ints
    held: Ints
    is_known: Ints


def kinds_by_edges(graph: Hypergraph, most: int) -> Ints:
    """The kind of each block: equal edges, and groups of equal weights. Kind 0 is the most
    frequent, and what is beyond the kinds that the code of a part of `most` blocks has bits for."""
    edges: list[list[int]] = [[] for _ in range(graph.blocks)]
    groups: list[list[int]] = [[] for _ in range(graph.blocks)]
    for ends in (graph.tail, graph.head):
        for block, weight in zip(ends.tolist(), graph.weight.tolist(), strict=True):
            edges[block].append(weight)
    weights = graph.group_weight[graph.group].tolist()
    for block, weight in zip(graph.members.tolist(), weights, strict=True):
        groups[block].append(weight)
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for block in range(graph.blocks):
        key = tuple(sorted(edges[block])), tuple(sorted(groups[block]))
        alike.setdefault(key, []).append(block)
    kind = np.zeros(graph.blocks, dtype=np.int64)
    by_size = sorted(alike.values(), key=lambda blocks: -len(blocks))
    for number, blocks in enumerate(by_size[: 1 + CODE_BITS // most.bit_length()]):
        kind[blocks] = number
    return kind


class PartPricer:
    """`spent`: work so far, in sizes of states of a frontier."""

    def __init__(
        self,
        kind: Ints,
        most: int,
        courses: Sequence[Course],
        mixed: int = int(MUCH),
    ) -> None:
        """`kind`: of each block. `mixed`: what parts pay at least that no course finds."""
        self.spent = 0
        self._kind, self._most, self._courses, self._mixed = kind, most, courses, mixed
        self._kinds = int(kind.max()) + 1
        self._bits = most.bit_length()

    def least(self, price: Ints, slope: int, budget: int, work: int) -> Priced | None:
        """`price`: of each kind. Who pays more than `budget`, and `slope` less for each block, is
        known to do so, and no more. None if it takes more `work`."""
        sizes = np.arange(self._most + 1)
        codes = np.append(0, 1 << self._bits * np.arange(self._kinds - 1))
        worth = Worth((slope - price)[self._kind], codes[self._kind])
        cost = budget + 1 - slope * sizes
        code, is_known = np.zeros((2, len(sizes)), dtype=np.int64)
        for course in self._courses:
            passage = _gone(course, worth, len(sizes), budget, work)
            if passage is None:
                return None
            work -= passage.work
            self.spent += passage.work
            paid, coded = passage.least(), passage.codes()
            better = (paid <= budget) & (paid - slope * sizes < cost)
            cost[better], code[better] = (paid - slope * sizes)[better], coded[better]
            is_known[better] = 1
        held = code[:, None] >> (self._bits * np.arange(self._kinds - 1)) & (1 << self._bits) - 1
        first = sizes - held.sum(axis=1)
        return self._with_mixed(price, Priced(cost, np.c_[first, held], is_known))

    def _with_mixed(self, price: Ints, found: Priced) -> Priced:
        """Of the others nothing is known but what they pay without prices."""
        if self._mixed >= MUCH:
            return found
        dearest = self._kind[np.argsort(-price[self._kind], kind="stable")[: self._most]]
        held = np.cumsum(np.eye(self._kinds, dtype=np.int64)[dearest], axis=0)
        held = np.concatenate([np.zeros((1, self._kinds), dtype=np.int64), held])
        cost = self._mixed - held @ price
        is_less = cost < found.cost
        return Priced(
            np.where(is_less, cost, found.cost),
            np.where(is_less[:, None], held, found.held),
            found.is_known | is_less,
        )


def _gone(course: Course, worth: Worth, sizes: int, budget: int, work: int) -> Passage | None:
    """To the end of a course; None if that takes more work."""
    walk, pinned, holds, more = course
    if walk.done[-1][0] << walk.bits > work:
        return None
    counts, at = ((0, 1), list(pinned)) if holds else ((1, 0), [])
    paid = more + int(worth.price[at].sum()), int(worth.code[at].sum())
    passage = Passage(walk, sizes, budget, counts, len(at), worth, paid)
    return passage if Ahead(walk, counts, worth).led([passage], work) else None
