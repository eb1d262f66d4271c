"""Layouts by sweeps: order the blocks along an axis, and cut where the least is cut.

What straight lines are to a grid, sweeps are to any graph. A node of a slicing tree
orders the blocks it gets along one of a few axes and counts the bytes between every
prefix and the rest at once: an edge is cut by the prefixes that end between its ends.
Among the prefixes that the zones on either side can hold, the one that cuts least is
taken. So a cut falls between two replicas or two stages wherever capacities allow it,
whatever the sizes of blocks and replicas are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.block_graph import BlockGraph
from placement.kernels import Kernel, refill
from placement.search.grid_slicing import SLACK, _bar, random_word
from placement.search.slicing_trees import PARTS, Plan, Tree, _change, copied, copy_of, plan_of
from placement.search.tree_kernels import SWEEP_PARTS, Links, Sweeps, _part_graph, part_graph

WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction


class Members(NamedTuple):
    """Blocks of groups, side by side, and the `group` of each. Room to work in: the last group
    that was `met` in each zone."""

    block: Ints
    group: Ints
    met: Ints


class Search(NamedTuple):
    """A search on its way. `plan` is the one kept, `other` the one tried and `next` its layout;
    `best` is the best layout so far."""

    plan: Plan
    other: Plan
    next: Ints
    best: Ints


def _cut(layout: Ints, links: Links, members: Members) -> int:
    """What a layout of the graph cuts."""
    cost = 0
    for block in range(len(layout)):
        for link in range(links.begin[block], links.begin[block + 1]):
            other = links.to[link]
            if other > block and layout[other] != layout[block]:
                cost += links.weight[link]
    for zone in range(len(members.met)):
        members.met[zone] = -1
    last = -1
    for k in range(len(members.block)):
        group, zone = members.group[k], layout[members.block[k]]
        if members.met[zone] != group:
            cost += links.group_weight[group] if group == last else 0
            members.met[zone], last = group, group
    return cost


def _search(
    now: Search,
    links: Links,
    sweeps: Sweeps,
    members: Members,
    axes: int,
    tries: int,
    slack: float,
    target: int,
    word: int,
) -> int:
    """So many neighbours from the best layout, until one cuts `target` or less; the least met.
    `word`: a random one, not zero."""
    cost = least = _cut(now.best, links, members)
    for step in range(tries):
        if least <= target:
            break
        node, word = _change(now.other, axes, sweeps.path, word)
        if node < 0:
            continue
        _part_graph(now.other, links, sweeps, WINDOW, now.next)
        found = _cut(now.next, links, members)
        if found < least:
            least = found
            refill(now.best, now.next)
        if found <= _bar(cost, slack, step, tries):
            cost = found
            copied(now.plan, now.other)
        else:
            copied(now.other, now.plan)
    return least


search = Kernel(_search, *PARTS, *SWEEP_PARTS, _part_graph, _cut, _bar, inlines=False)


class Sweeper:
    """Builds layouts of a graph from trees over zones.

    `orders`: blocks along each axis that a tree can cut; shape of each: (blocks,).
    The zones of a tree must hold all blocks.
    """

    def __init__(self, graph: BlockGraph, orders: Sequence[Ints]) -> None:
        self._graph, self._axes, self._links = graph, len(orders), _links(graph, orders)

    def layout(self, plan: Plan) -> Ints:
        """The zone of each block."""
        layout = np.zeros(self._graph.blocks, dtype=np.int64)
        part_graph.run(self._steps(plan), plan, self._links, self._room(plan), WINDOW, layout)
        return layout

    def searched(
        self,
        starts: Sequence[Tree],
        capacities: Sequence[int],
        tries: int,
        target: int,
        seed: str,
        slack: float = SLACK,
    ) -> Ints:
        """The best layout met among so many neighbours of the best of these trees, until one cuts
        `target` or less."""
        graph = self._graph
        plans = [plan_of(start, capacities) for start in starts]
        layouts = [self.layout(plan) for plan in plans]
        first = int(np.argmin([graph.cost(layout) for layout in layouts]))
        plan, best = plans[first], layouts[first]
        if len(plan.zone) > 1:
            met = np.zeros(len(capacities), dtype=np.int64)
            search.run(
                tries * self._steps(plan),
                Search(plan, copy_of(plan), best.copy(), best),
                self._links,
                self._room(plan),
                Members(graph.members, graph.group, met),
                self._axes,
                tries,
                slack,
                target,
                random_word(seed),
            )
        return best

    def _room(self, plan: Plan) -> Sweeps:
        blocks = self._graph.blocks
        by_block, curve = np.zeros((3, blocks), np.int64), np.zeros(blocks + 2, np.int64)
        by_group = np.zeros((2, len(self._graph.group_weight)), np.int64)
        return Sweeps(*(*by_block, *by_group, curve, *np.zeros((3, len(plan.zone)), np.int64)))

    def _steps(self, plan: Plan) -> int:
        nodes = len(plan.zone)
        return self._graph.blocks * nodes + len(self._links.to) * nodes.bit_length()


def _links(graph: BlockGraph, orders: Sequence[Ints]) -> Links:
    tail = np.concatenate([graph.tail, graph.head])
    by_tail = np.argsort(tail, kind="stable")
    by_member = np.argsort(graph.members, kind="stable")
    ends = np.arange(graph.blocks + 1)
    return Links(
        np.searchsorted(tail[by_tail], ends),
        np.concatenate([graph.head, graph.tail])[by_tail],
        np.concatenate([graph.weight, graph.weight])[by_tail],
        np.searchsorted(graph.members[by_member], ends),
        graph.group[by_member],
        graph.group_weight,
        np.concatenate(orders),
    )
