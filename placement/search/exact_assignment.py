"""Small gangs block by block: which zone carries each block, as one integer program.

A zone has a variable for each block, an edge is cut if some zone holds its first end and not its
second, a group pays for each zone beyond the first that holds a part of it. Zones of one size are
alike, so each holds no more than the one before. CP-SAT searches and bounds at once, in whole
numbers; the layout that is known is its hint.
See docs/engine.md, "What OR-Tools decides".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph
from placement.search.graph_slicing import by_room
from placement.solver import IntegerProgram

MOST_BLOCKS = 64  # of a gang
MOST_ENTRIES = 20_000  # of a program: blocks and edges by zones
WORK = 0.005  # deterministic time of CP-SAT for each round of a proof, about as many seconds


class ExactAssignment(NamedTuple):
    """The zone of each block, shape (blocks,), and a cut that no layout beats, in the units of the
    graph."""

    layout: Ints
    bound: int


def assign_blocks(
    graph: Hypergraph, capacities: Sequence[int], known: Ints, least: int, rounds: int
) -> ExactAssignment | None:
    """Assign blocks to zones so that as little as possible is cut. `known`: the zone of each block
    in a layout to begin with; `least`: a cut that no layout goes below; `rounds`: of a proof, whose
    work it takes. None where the gang or the program is too large, or nothing is found."""
    if (pairs := _small_enough(graph, capacities)) is None:
        return None
    assignment = _Assignment(pairs, capacities, known)
    assignment.add_cut(is_minimised=True, least=least)
    solution = assignment.solved(WORK * rounds)
    if solution is None:
        return None
    layout, bound = solution
    return ExactAssignment(layout, max(least, bound - assignment.offset))


def keep_spares(
    graph: Hypergraph,
    capacities: Sequence[int],
    known: Ints,
    lacking: Sequence[Ints],
    rounds: int,
) -> Ints | None:
    """Leave room for as many spares as a cut no larger than that of `known` allows.

    `lacking`: for each zone, how many spares it lacks with 0, 1, .. blocks in it, which grows with
    these. Returns the zone of each block, or None as `assign_blocks`.
    """
    if (pairs := _small_enough(graph, capacities)) is None:
        return None
    assignment = _Assignment(pairs, capacities, known, lacking)
    assignment.add_cut(is_minimised=False, most=graph.cost(known))
    assignment.add_lacking(lacking)
    solution = assignment.solved(WORK * rounds)
    return None if solution is None else solution[0]


def _small_enough(graph: Hypergraph, capacities: Sequence[int]) -> Hypergraph | None:
    """Return the graph with cliques as edges; None where its program would be too large."""
    if graph.blocks > MOST_BLOCKS:
        return None
    pairs, zones = graph.pairwise(), min(graph.blocks, len(by_room(capacities)))
    entries = zones * (graph.blocks + len(pairs.weight) + len(pairs.members))
    return pairs if entries <= MOST_ENTRIES else None


class _Assignment:
    """The program of one gang: a variable for each block and zone, those with most room. The hint
    puts the parts of the known layout, by size, into the zones with most room."""

    def __init__(
        self,
        graph: Hypergraph,
        capacities: Sequence[int],
        known: Ints,
        kinds: Sequence[Ints] | None = None,
    ) -> None:
        """`kinds`: by zone, what makes zones of one capacity unlike."""
        self._graph = graph
        self._zones = by_room(capacities)[: graph.blocks]
        self._capacities = [capacities[zone] for zone in self._zones]
        self._program, self._hint = IntegerProgram(), list[int]()
        self.offset = int(graph.group_weight.sum())
        self._begin = begin = _largest_first(known)
        everywhere = range(len(self._zones))
        self._holds = holds = [
            [self._variable(0, begin[b] == z) for z in everywhere] for b in range(graph.blocks)
        ]
        for of_block in holds:
            self._program.row(1, 1, [(x, 1) for x in of_block])
        for z, capacity in enumerate(self._capacities):
            self._program.row(0, capacity, [(of_block[z], 1) for of_block in holds])
        for z in everywhere[1:]:
            zone, before = self._zones[z], self._zones[z - 1]
            is_like = kinds is None or np.array_equal(kinds[zone], kinds[before])
            if self._capacities[z] == self._capacities[z - 1] and is_like:
                larger = [(of_block[z - 1], 1) for of_block in holds]
                self._program.row(0, None, [*larger, *((each[z], -1) for each in holds)])

    def _variable(self, cost: int, value: bool) -> int:
        self._hint.append(int(value))
        return self._program.variable(1, cost)

    def add_cut(self, *, is_minimised: bool, least: int = 0, most: int | None = None) -> None:
        """Count what is cut: as the cost, or with a limit, `most`."""
        graph, program, costs = self._graph, self._program, list[tuple[int, int]]()

        def counted(weight: int, value: bool) -> int:
            variable = self._variable(weight if is_minimised else 0, value)
            costs.append((variable, weight))
            return variable

        edges = zip(graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist(), strict=True)
        for tail, head, weight in edges:
            is_cut = counted(weight, self._begin[tail] != self._begin[head])
            for here, there in zip(self._holds[tail], self._holds[head], strict=True):
                program.row(0, None, [(is_cut, 1), (here, -1), (there, 1)])
        for group, weight in enumerate(graph.group_weight.tolist()):
            members = graph.members[graph.group == group]
            for z in range(len(self._zones)):
                touches = counted(weight, bool((self._begin[members] == z).any()))
                for block in members.tolist():
                    program.row(0, None, [(touches, 1), (self._holds[block][z], -1)])
        high = None if most is None else most + self.offset
        program.row(least + self.offset, high, costs)

    def add_lacking(self, lacking: Sequence[Ints]) -> None:
        """Count the spares that zones lack, as the cost."""
        for z, zone in enumerate(self._zones):
            more = np.diff(lacking[zone])[: self._capacities[z]]
            held = int((self._begin == z).sum())
            first = int(np.argmax(more > 0)) if (more > 0).any() else len(more)
            steps = [
                self._variable(int(each), held > first + k) for k, each in enumerate(more[first:])
            ]
            for larger, smaller in pairwise(steps):
                self._program.row(0, 1, [(larger, 1), (smaller, -1)])
            blocks = [(of_block[z], 1) for of_block in self._holds]
            self._program.row(None, first, [*blocks, *((step, -1) for step in steps)])

    def solved(self, work: float) -> tuple[Ints, int] | None:
        """The zone of each block, and a bound on the cost."""
        self._program.hint(self._hint)
        values, bound = self._program.solve_with_bound(work)
        if values is None or bound is None:
            return None
        at = np.array([[values[x] for x in of_block] for of_block in self._holds]).argmax(axis=1)
        return np.array(self._zones)[at], bound


def _largest_first(layout: Ints) -> Ints:
    """Number the parts of a layout by size, the largest first, as zones are by room."""
    _, part, sizes = np.unique(layout, return_inverse=True, return_counts=True)
    rank = np.empty_like(sizes)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.asarray(rank[part])
