"""Layouts by slicing trees: order the blocks along an axis, cut where the least is cut.

A node of a slicing tree parts the blocks that it gets between two sets of zones. It orders them
along one of a few axes and counts the bytes between every prefix and the rest at once: an edge is
cut by the prefixes that end between its ends. Among the prefixes that the zones on either side can
hold, the one that cuts least is taken. So on a grid a cut is a straight line wherever capacities
allow one, and falls between two replicas or two stages whatever the sizes of blocks and replicas
are. Good layouts are made of near-rectangles, because a rectangle has the least boundary.

Trees are improved by small changes, the better one kept; the sequence of changes comes from a
seed, never from the clock. What lies outside the node that changed stays as it is, so only the
blocks below it are parted anew. `search` is the inner loop; by other scores, `best_of_trees`.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import factorial, isqrt
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, Incidence, block_coordinates, grid_graph
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, Region
from placement.kernels import Kernel, refill
from placement.search.slicing_trees import (
    PARTS,
    TreeArrays,
    _change,
    below,
    copied,
    copy_of,
    plan_of,
)
from placement.workload.request import Request

SMALL = 64  # blocks: up to so many, no groups are made, all rows get a row's cuts, one core does
# Share by which a kept neighbour may be worse, at the start: of a search that strays, and of one
# that stays near, for neither finds all.
SLACKS = (0.04, 0.01)
WINDOW = 4  # of the allowed prefixes, a lean to one side looks at this fraction
SWEPT = 20_000  # work of one tree in edges and members of groups; of larger ones fewer are tried
MOST_ORDERS = 6  # of the axes, along which blocks are swept


class Sweeps(NamedTuple):
    """Arrays in which layouts are built from trees. By block: `blocks`, those of a node side by
    side; `node`, -1 outside the part that changes; `place` on the way across its node. By group:
    its node, and its last member on the way, or of a clique how many were met. `curve`: what a
    first part of so many blocks cuts. `begin`, `end`: of each node; `path`: of nodes. `orders`: of
    all blocks along each axis, one after the other; `along`: of them those in the part that
    changes, `many` where that is known. `inside`: whether each zone is in that part."""

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
    along: Ints
    many: Ints
    inside: Ints


def _curve(graph: Incidence, sweeps: Sweeps, node: int, begin: int, end: int) -> None:
    """Bytes between the first n blocks of a node and its others."""
    curve, place, has_clique = sweeps.curve, sweeps.place, False
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
            group, price = graph.in_group[k], graph.in_price[k]
            is_met = sweeps.group_node[group] == node
            if graph.in_clique[k]:
                met = sweeps.last[group] if is_met else 0
                curve[at + 1] -= price * (2 * met + 1)
                sweeps.last[group] = met + 1
                has_clique = True
            else:
                if is_met:
                    curve[sweeps.last[group] + 1] += price
                    curve[at + 1] -= price
                sweeps.last[group] = at
            sweeps.group_node[group] = node
    for at in range(end - begin if has_clique else 0):
        block = sweeps.blocks[begin + at]
        for k in range(graph.in_begin[block], graph.in_begin[block + 1]):
            if graph.in_clique[k]:
                curve[at + 1] += graph.in_price[k] * sweeps.last[graph.in_group[k]]
    for n in range(1, end - begin + 1):
        curve[n] += curve[n - 1]


def _cheapest(curve: Ints, least: int, most: int, wish: int) -> int:
    """Where in [least, most] least is cut; ties to what is closest to `wish`."""
    best = least
    for n in range(least + 1, most + 1):
        if curve[n] < curve[best] or (curve[n] == curve[best] and abs(n - wish) < abs(best - wish)):
            best = n
    return best


def _swept(sweeps: Sweeps, node: int, axis: int, begin: int, end: int, is_in_order: bool) -> None:
    """The blocks of a node in the order of an axis, unless they are."""
    if is_in_order:
        for at in range(end - begin):
            block = sweeps.blocks[begin + at]
            sweeps.node[block] = node
            sweeps.place[block] = at
        return
    first = axis * len(sweeps.blocks)
    if not sweeps.many[axis]:
        many = 0
        for k in range(first, first + len(sweeps.blocks)):
            block = sweeps.orders[k]
            sweeps.along[first + many] = block
            many += sweeps.node[block] >= 0
        sweeps.many[axis] = many
    for k in range(begin, end):
        sweeps.node[sweeps.blocks[k]] = node
    at = 0
    for k in range(first, first + sweeps.many[axis]):
        block = sweeps.along[k]
        if sweeps.node[block] == node:
            sweeps.blocks[begin + at] = block
            sweeps.place[block] = at
            at += 1


def _part_graph(
    plan: TreeArrays, graph: Incidence, sweeps: Sweeps, top: int, layout: Ints, paid: Ints
) -> int:
    """The zone of each block below the node `top`, every cut where it is cheapest, what each node
    cuts, and all of them; a lean to one side looks at one part in `WINDOW` of the places
    allowed."""
    count, cost = 0, 0
    for block in range(len(layout)):
        if sweeps.node[block] >= 0:
            sweeps.blocks[count] = block
            count += 1
    for axis in range(len(sweeps.many)):
        sweeps.many[axis] = 0
    for group in range(len(sweeps.group_node)):
        sweeps.group_node[group] = -1
    sweeps.begin[top], sweeps.end[top] = 0, count
    path = sweeps.path
    path[0], open_ = top, 1
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
        paid[node] = 0
        if held:
            axis, above = plan.axis[node], plan.above[node]
            is_in_order = node != top and plan.axis[above] == axis
            _swept(sweeps, node, axis, begin, end, is_in_order)
            _curve(graph, sweeps, node, begin, end)
            size = _cheapest(sweeps.curve, least, most, wish)
            paid[node] = sweeps.curve[size]
            cost += sweeps.curve[size]
        sweeps.begin[first], sweeps.end[first] = begin, begin + size
        sweeps.begin[second], sweeps.end[second] = begin + size, end
        path[open_], path[open_ + 1] = first, second
        open_ += 2
    return cost


class GraphSearch(NamedTuple):
    """The state of a search over trees. `plan`, `layout` and what its nodes have `paid` are those
    kept; `other`, `next` and `next_paid` those tried; `best` is the best layout so far."""

    plan: TreeArrays
    other: TreeArrays
    layout: Ints
    next: Ints
    best: Ints
    paid: Ints
    next_paid: Ints


def _parted_anew(now: GraphSearch, graph: Incidence, sweeps: Sweeps, node: int) -> int:
    """Part the blocks below `node` as `other` says; what that cuts more."""
    for zone in range(len(sweeps.inside)):
        sweeps.inside[zone] = 0
    saved = 0
    for k in range(below(now.other, node, sweeps.path)):
        other = sweeps.path[k]
        saved += now.paid[other]
        if now.other.zone[other] >= 0:
            sweeps.inside[now.other.zone[other]] = 1
    for block in range(len(now.layout)):
        sweeps.node[block] = node if sweeps.inside[now.layout[block]] else -1
    return _part_graph(now.other, graph, sweeps, node, now.next, now.next_paid) - saved


def _search(
    now: GraphSearch,
    graph: Incidence,
    sweeps: Sweeps,
    tries: int,
    slack: float,
    target: int,
    word: int,
) -> int:
    """Try so many neighbours of a plan, until one cuts `target` or less; the least met.
    `word`: a random one, not zero."""
    cost = least = _parted_anew(now, graph, sweeps, 0)
    refill(now.layout, now.next)
    refill(now.best, now.next)
    refill(now.paid, now.next_paid)
    for step in range(tries):
        if least <= target:
            break
        node, word = _change(now.other, len(sweeps.many), sweeps.path, word)
        if node < 0:
            continue
        total = cost + _parted_anew(now, graph, sweeps, node)
        if total < least:
            least = total
            refill(now.best, now.next)
        if total <= _bar(cost, slack, step, tries):
            cost = total
            copied(now.plan, now.other)
            refill(now.layout, now.next)
            refill(now.paid, now.next_paid)
        else:
            copied(now.other, now.plan)
            refill(now.next, now.layout)
            refill(now.next_paid, now.paid)
    return least


def _bar(cost: float, slack: float, step: int, tries: int) -> float:
    """Threshold accepting (Dueck and Scheuer 1990): what a neighbour that is kept costs at most,
    not much more than the current tree, and "much" shrinks to nothing."""
    left = 1 - step / tries
    return cost * (1 + slack * left * left)


search = Kernel(
    _search,
    *PARTS,
    *(_curve, _cheapest, _swept, _part_graph, _parted_anew, _bar),
    inlines=False,
)


class BuiltTree(NamedTuple):
    """A layout built by the tree `plan`, what it cuts, and how many edges were met in building
    it."""

    plan: TreeArrays
    layout: Ints
    cost: int
    work: int


def _cost(built: BuiltTree) -> int:
    return built.cost


class Sweeper:
    """Builds layouts of a graph from trees over zones, which must hold all blocks.

    `orders`: blocks along each axis that a tree can cut; shape of each: (blocks,).
    """

    def __init__(self, graph: Hypergraph, orders: Sequence[Ints]) -> None:
        self.graph, self.axes, self._orders = graph, len(orders), np.concatenate(orders)
        self._starts: dict[tuple[int, ...], BuiltTree] = {}

    def layout(self, plan: TreeArrays) -> Ints:
        """Return the zone of each block in the layout of a tree."""
        return self._built(plan).layout

    def searched(
        self, capacities: Sequence[int], tries: int, target: int, slack: float = SLACKS[0]
    ) -> Ints:
        """Return the best layout met among so many neighbours of a good tree, until one cuts
        `target` or less."""
        start = self._start(capacities, target)
        tries = tries * SWEPT // max(SWEPT, start.work) if len(start.plan.zone) > 1 else 0
        if start.cost <= target or not tries:
            return start.layout
        word = random_word(f"{self.graph.blocks}:{sorted(capacities)}")
        return self._searched(copy_of(start.plan), tries, target, slack, word).layout

    def _start(self, capacities: Sequence[int], target: int) -> BuiltTree:
        """The best of: zones side by side, which do where they cut `target`; bands along each pair
        of axes with the best single axis; the best pair with other band sizes. Remembered."""
        key = tuple(capacities)
        if key in self._starts:
            return self._starts[key]
        zones = by_room(level_room(capacities, max(1, self.graph.blocks)))

        def banded(many: int, inner: int, outer: int) -> BuiltTree:
            """Bands of so many zones along one axis, side by side along another."""
            bands = [zones[k : k + many] for k in range(0, len(zones), many)]
            return self._built(plan_of(bands, capacities, [outer, inner]))

        side_by_side = [*map(self._built, comb_trees(zones, capacities, self.axes))]
        best = min(side_by_side, key=_cost)
        if best.cost <= target:
            return best
        first = int(np.argmin([built.cost for built in side_by_side])) % self.axes
        pairs = [pair for pair in permutations(range(self.axes), 2) if first in pair]
        middle = isqrt(len(zones))
        if middle > 1 and pairs:
            by_pair = [banded(middle, *pair) for pair in pairs]
            pair = pairs[int(np.argmin([built.cost for built in by_pair]))]
            sizes = [1 << k for k in range(1, (len(zones) - 1).bit_length())]
            by_size = [banded(many, *pair) for many in sizes]
            near = sizes[int(np.argmin([built.cost for built in by_size]))]
            others = [near - near // 4, near + near // 2]
            by_size += [banded(many, *pair) for many in others]
            best = min(best, *by_pair, *by_size, key=_cost)
        self._starts[key] = best
        return best

    def _built(self, plan: TreeArrays) -> BuiltTree:
        """By a tree as it is."""
        return self._searched(plan, 0, 0, 0.0, 1)

    def _searched(
        self, plan: TreeArrays, tries: int, target: int, slack: float, word: int
    ) -> BuiltTree:
        blocks, nodes = self.graph.blocks, len(plan.zone)
        by_block, curve = np.zeros((6, blocks), np.int64), np.zeros(blocks + 2, np.int64)
        by_group = np.zeros((2, len(self.graph.group_weight)), np.int64)
        by_node, along = np.zeros((5, nodes), np.int64), np.empty_like(self._orders)
        many, inside = np.zeros(self.axes, np.int64), np.zeros(int(plan.zone.max()) + 1, np.int64)
        room = curve, *by_node[:3], self._orders, along, many, inside
        sweeps = Sweeps(*by_block[:3], *by_group, *room)
        by_block[3] = plan.zone.max()  # somewhere below the root, which is parted anew first
        now = GraphSearch(plan, copy_of(plan), *by_block[3:], *by_node[3:])
        each = blocks * nodes + 2 * (len(self.graph.tail) + len(self.graph.group))
        run = now, self.graph.incidence, sweeps, tries, slack, target, word
        cost = search.run((1 + tries // 2) * each * nodes.bit_length(), *run)
        parted = int((by_node[1] - by_node[0])[plan.zone < 0].sum())
        edges = len(self.graph.tail) + len(self.graph.group)
        return BuiltTree(plan, now.best, cost, parted * edges // max(1, blocks))


def random_word(seed: str) -> int:
    """Return a seed for random words."""
    return random.Random(seed).randrange(1, 1 << 32)


def by_room(capacities: Sequence[int]) -> list[int]:
    """Return the zones with room, the largest first."""
    return sorted((z for z, c in enumerate(capacities) if c), key=lambda z: (-capacities[z], z))


def comb_trees(zones: Sequence[int], capacities: Sequence[int], axes: int) -> list[TreeArrays]:
    """Return trees with all zones side by side along each axis: filled one after the other, which
    leaves the most whole, and then each with its share."""
    ways = product((2, 1), range(axes))
    return [plan_of(zones, capacities, [axis], lean) for lean, axis in ways]


def level_room(room: Sequence[int], blocks: int) -> list[int]:
    """Return the room of domains without that of the tightest ones, while the others have twice
    what is needed: half empty domains are as good as any."""
    left = 2 * blocks
    kept = [0] * len(room)
    for domain in sorted(range(len(room)), key=lambda domain: (-room[domain], domain)):
        if left > 0:
            kept[domain] = min(room[domain], blocks)
            left -= kept[domain]
    return kept


def orders_along(coordinates: Sequence[Ints]) -> list[Ints]:
    """Return blocks sorted along axes, in every order of the axes, up to `MOST_ORDERS`.
    `coordinates`: of each block on each axis; shape of each: (blocks,)."""
    orders: list[Ints] = []
    for axes in permutations(coordinates):
        order = np.lexsort(axes) if axes else np.zeros(1, dtype=np.int64)
        if not any(np.array_equal(order, other) for other in orders):
            orders.append(order)
    return orders[:MOST_ORDERS]


def block_orders(request: Request, gpus: int) -> list[Ints]:
    """Return orders of the blocks, sorted along the axes that span hosts."""
    return orders_along(list(block_coordinates(request, gpus)))


@lru_cache(maxsize=16)
def grid_sweeper(grid: BlockGrid) -> Sweeper:
    """Return the sweeper of all blocks of a grid in reading order; weights are the grid's, each
    edge once."""
    return _region_sweeper(grid, grid.everywhere)


def _region_sweeper(grid: BlockGrid, region: Region) -> Sweeper:
    axes = grid.coordinates(region)
    if factorial(len(axes)) > MOST_ORDERS:  # all that are tried keep the heaviest together
        axes.sort(key=lambda each: -(each[0].weight if each[0] else grid.row_weight))
    return Sweeper(grid_graph(grid, region), orders_along([at for _, at in axes]))


def slice_grid(
    grid: BlockGrid,
    capacities: Sequence[int],
    tries: int,
    target: int,
    slack: float = SLACKS[0],
    region: Region | None = None,
) -> Layout:
    """Return the best layout of a grid met among so many trees, until its doubled cut is `target`;
    of a `region` of it, with -1 elsewhere."""
    if region is None:
        sweeper = grid_sweeper(grid)
        region = grid.everywhere
    else:
        sweeper = _region_sweeper(grid, region)
    layout = np.full(region.shape, -1, dtype=np.int64)
    layout[region] = sweeper.searched(capacities, tries, target // 2, slack)
    return layout


def best_of_trees(
    build: Callable[[TreeArrays], Layout],
    value: Callable[[Layout], float],
    plans: Sequence[TreeArrays],
    capacities: Sequence[int],
    tries: int,
    target: float,
    axes: int = 2,
) -> Layout:
    """Search trees as `Sweeper.searched` does, for any kind of layout and any value of it."""
    layouts = [build(plan) for plan in plans]
    costs = [value(layout) for layout in layouts]
    first = int(np.argmin(costs))
    now, other, cost = copy_of(plans[first]), copy_of(plans[first]), costs[first]
    best, best_cost = layouts[first], cost
    path = np.zeros(len(now.zone), dtype=np.int64)
    word = random_word(f"{best.size}:{sorted(capacities)}")
    for step in range(tries if len(path) > 1 else 0):
        if best_cost <= target:
            break
        node, word = _change(other, axes, path, word)
        if node < 0:
            continue
        layout = build(other)
        score = value(layout)
        if score < best_cost:
            best, best_cost = layout, score
        if score <= _bar(cost, SLACKS[0], step, tries):
            cost = score
            copied(now, other)
        else:
            copied(other, now)
    return best
