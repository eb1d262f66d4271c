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
from placement.solver import INFINITY, IntegerProgram

MOST_BLOCKS = 64  # of a gang
MOST_ENTRIES = 20_000  # of a program: blocks and edges by zones
WORK = 0.5  # deterministic time of CP-SAT, about as many seconds


class ExactAssignment(NamedTuple):
    """The zone of each block, shape (blocks,), and a cut that no layout goes below, in the units
    of the graph."""

    layout: Ints
    bound: int


def assign_blocks(
    graph: Hypergraph, capacities: Sequence[int], known: Ints, least: int, work: float = WORK
) -> ExactAssignment | None:
    """Cut as little as possible. `known`: the zone of each block in a layout to begin with;
    `least`: a cut that no layout goes below. None where the gang or the program is too large, or
    nothing is found in the deterministic time `work`."""
    graph = graph.pairwise()
    zones = by_room(capacities)[: graph.blocks]
    entries = len(zones) * (graph.blocks + len(graph.weight) + len(graph.members))
    if graph.blocks > MOST_BLOCKS or entries > MOST_ENTRIES:
        return None
    begin = _largest_first(known)
    program, hint = IntegerProgram(), list[int]()

    def variable(cost: int, value: bool) -> int:
        hint.append(int(value))
        return program.variable(1, cost)

    holds = [[variable(0, begin[b] == z) for z in range(len(zones))] for b in range(graph.blocks)]
    for of_block in holds:
        program.row(1, 1, [(x, 1) for x in of_block])
    for z, zone in enumerate(zones):
        program.row(0, capacities[zone], [(of_block[z], 1) for of_block in holds])
    for z, (larger, smaller) in enumerate(pairwise(zones)):
        if capacities[larger] == capacities[smaller]:
            held = [(of_block[z + k], sign) for of_block in holds for k, sign in ((0, 1), (1, -1))]
            program.row(0, INFINITY, held)
    edges = zip(graph.tail.tolist(), graph.head.tolist(), graph.weight.tolist(), strict=True)
    for tail, head, weight in edges:
        is_cut = variable(weight, begin[tail] != begin[head])
        for here, there in zip(holds[tail], holds[head], strict=True):
            program.row(0, INFINITY, [(is_cut, 1), (here, -1), (there, 1)])
    for group, weight in enumerate(graph.group_weight.tolist()):
        members = graph.members[graph.group == group]
        for z in range(len(zones)):
            touches = variable(weight, bool((begin[members] == z).any()))
            for block in members.tolist():
                program.row(0, INFINITY, [(touches, 1), (holds[block][z], -1)])
    offset = int(graph.group_weight.sum())
    program.cost_at_least(least + offset)
    program.hint(hint)
    values, bound = program.solve_with_bound(work)
    if values is None or bound is None:
        return None
    at = np.array([[values[x] for x in of_block] for of_block in holds]).argmax(axis=1)
    return ExactAssignment(np.array(zones)[at], max(least, bound - offset))


def _largest_first(layout: Ints) -> Ints:
    """The same parts numbered by size, the largest first: so each fits a zone of that rank."""
    _, part, sizes = np.unique(layout, return_inverse=True, return_counts=True)
    rank = np.empty_like(sizes)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.asarray(rank[part])
