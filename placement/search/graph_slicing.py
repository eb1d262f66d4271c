"""Layouts by sweeps: order the blocks along an axis, and cut where the least is cut.

What straight lines are to a grid, sweeps are to any graph. A node of a slicing tree
orders the blocks it gets along one of a few axes and counts the bytes between every
prefix and the rest at once: an edge is cut by the prefixes that end between its ends.
Among the prefixes that the zones on either side can hold, the one that cuts least is
taken. So a cut falls between two replicas or two stages wherever capacities allow it,
whatever the sizes of blocks and replicas are.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, Incidence
from placement.kernels import Kernel, refill
from placement.search.grid_slicing import SLACK, _bar, random_word
from placement.search.slicing_trees import PARTS, Plan, Tree, _change, copied, copy_of, plan_of

WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction


class Sweeps(NamedTuple):
    """Room to work in. By block: `blocks`, those of a node side by side; `node`, `place` on the
    way across it. By group: its node, and its last member on the way. `curve`: what a first
    part of so many blocks cuts. `begin`, `end`: of each node; `path`: of nodes. `orders`: of all
    blocks along each axis, one after the other."""

    blocks: Ints
    node: Ints
    place: Ints
    group_node: Ints
    last: Ints
    curve: Ints
    begin: Ints
    end: Ints
    path: Ints
    orders: Ints


def _curve(graph: Incidence, sweeps: Sweeps, node: int, begin: int, end: int) -> None:
    """Bytes between the first n blocks of a node and its others."""
    curve, place = sweeps.curve, sweeps.place
    for n in range(end - begin + 2):
        curve[n] = 0
    for at in range(end - begin):
        block = sweeps.blocks[begin + at]
        for link in range(graph.link_begin[block], graph.link_begin[block + 1]):
            other = graph.link_to[link]
            if sweeps.node[other] == node and place[other] > at:
                curve[at + 1] += graph.link_weight[link]
                curve[place[other] + 1] -= graph.link_weight[link]
        for k in range(graph.in_begin[block], graph.in_begin[block + 1]):
            group = graph.in_group[k]
            if sweeps.group_node[group] == node:
                curve[sweeps.last[group] + 1] += graph.in_price[k]
                curve[at + 1] -= graph.in_price[k]
            sweeps.group_node[group] = node
            sweeps.last[group] = at
    for n in range(1, end - begin + 1):
        curve[n] += curve[n - 1]


def _cheapest(curve: Ints, least: int, most: int, wish: int) -> int:
    """Where in [least, most] least is cut; ties to what is closest to `wish`."""
    best = least
    for n in range(least + 1, most + 1):
        if curve[n] < curve[best] or (curve[n] == curve[best] and abs(n - wish) < abs(best - wish)):
            best = n
    return best


def _swept(sweeps: Sweeps, node: int, axis: int, begin: int, end: int) -> None:
    """The blocks of a node in the order of an axis."""
    for k in range(begin, end):
        sweeps.node[sweeps.blocks[k]] = node
    count, at = len(sweeps.blocks), 0
    for block in sweeps.orders[axis * count : (axis + 1) * count]:
        if sweeps.node[block] == node:
            sweeps.blocks[begin + at] = block
            sweeps.place[block] = at
            at += 1


def _part_graph(plan: Plan, graph: Incidence, sweeps: Sweeps, layout: Ints) -> int:
    """The zone of each block, every cut where it is cheapest, and what all of them cut; a lean
    to one side looks at one part in `WINDOW` of the places allowed."""
    count, cost = len(layout), 0
    for block in range(count):
        sweeps.blocks[block], sweeps.node[block] = block, -1
    for group in range(len(sweeps.group_node)):
        sweeps.group_node[group] = -1
    sweeps.begin[0], sweeps.end[0] = 0, count
    path = sweeps.path
    path[0], open_ = 0, 1
    while open_:
        open_ -= 1
        node = path[open_]
        begin, end = sweeps.begin[node], sweeps.end[node]
        if plan.zone[node] >= 0:
            for k in range(begin, end):
                layout[sweeps.blocks[k]] = plan.zone[node]
            continue
        first, second, held = plan.first[node], plan.second[node], end - begin
        least, most = max(0, held - plan.held[second]), min(plan.held[first], held)
        wish = held * plan.held[first] // (plan.held[first] + plan.held[second])
        some = (most - least) // WINDOW
        if plan.lean[node] == 0:
            most = least + some
        elif plan.lean[node] == 2:
            least = most - some
        size = 0
        if held:
            _swept(sweeps, node, plan.axis[node], begin, end)
            _curve(graph, sweeps, node, begin, end)
            size = _cheapest(sweeps.curve, least, most, wish)
            cost += sweeps.curve[size]
        sweeps.begin[first], sweeps.end[first] = begin, begin + size
        sweeps.begin[second], sweeps.end[second] = begin + size, end
        path[open_], path[open_ + 1] = first, second
        open_ += 2
    return cost


class GraphSearch(NamedTuple):
    """A search on its way. `plan` is the one kept, `other` the one tried and `next` its layout;
    `best` is the best layout so far."""

    plan: Plan
    other: Plan
    next: Ints
    best: Ints


def _search(
    now: GraphSearch,
    graph: Incidence,
    sweeps: Sweeps,
    axes: int,
    tries: int,
    slack: float,
    target: int,
    word: int,
) -> int:
    """So many neighbours of a plan, until one cuts `target` or less; the least met.
    `word`: a random one, not zero."""
    cost = least = _part_graph(now.plan, graph, sweeps, now.best)
    for step in range(tries):
        if least <= target:
            break
        node, word = _change(now.other, axes, sweeps.path, word)
        if node < 0:
            continue
        found = _part_graph(now.other, graph, sweeps, now.next)
        if found < least:
            least = found
            refill(now.best, now.next)
        if found <= _bar(cost, slack, step, tries):
            cost = found
            copied(now.plan, now.other)
        else:
            copied(now.other, now.plan)
    return least


search = Kernel(_search, *PARTS, _curve, _cheapest, _swept, _part_graph, _bar, inlines=False)


class Sweeper:
    """Builds layouts of a graph without cliques from trees over zones.

    `orders`: blocks along each axis that a tree can cut; shape of each: (blocks,).
    The zones of a tree must hold all blocks.
    """

    def __init__(self, graph: Hypergraph, orders: Sequence[Ints]) -> None:
        self._graph, self._axes, self._orders = graph, len(orders), np.concatenate(orders)

    def layout(self, plan: Plan) -> Ints:
        """The zone of each block."""
        return self._searched(plan, 0, 0, 0.0, 1)[1]

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
        plans = [plan_of(start, capacities) for start in starts]
        costs = [self._searched(plan, 0, 0, 0.0, 1)[0] for plan in plans]
        plan = plans[costs.index(min(costs))]
        tries = tries if len(plan.zone) > 1 else 0
        return self._searched(plan, tries, target, slack, random_word(seed))[1]

    def _searched(
        self, plan: Plan, tries: int, target: int, slack: float, word: int
    ) -> tuple[int, Ints]:
        blocks, nodes = self._graph.blocks, len(plan.zone)
        by_block, curve = np.zeros((5, blocks), np.int64), np.zeros(blocks + 2, np.int64)
        by_group = np.zeros((2, len(self._graph.group_weight)), np.int64)
        by_node = np.zeros((3, nodes), np.int64)
        sweeps = Sweeps(*(*by_block[:3], *by_group, curve, *by_node, self._orders))
        now = GraphSearch(plan, copy_of(plan), *by_block[3:])
        steps = (1 + tries) * (blocks * nodes + 2 * len(self._graph.tail) * nodes.bit_length())
        run = now, self._graph.incidence, sweeps, self._axes, tries, slack, target, word
        return search.run(steps, *run), now.best
