"""The job as one weighted hypergraph: blocks, the bytes between them, the groups they share.

A block is what one host computes. Rings and chains are edges between blocks. A hierarchical
collective is a hyperedge under the connectivity metric of hypergraph partitioning: it costs its
weight for each domain it touches beyond the first. An all-to-all costs its weight for each ordered
pair apart: on a grid it stays one hyperedge, a clique, for 64 members have 2,016 pairs; blocks of
a gang that is no grid get an edge for each pair.

A vertex is a block, or a piece of several blocks that stay together: coarsening and restriction
both give every vertex a new label (`merged`). Arrays hold edges and memberships; `incidence`
lists them by vertex, for loops that walk from vertex to vertex.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import floor, lcm
from typing import NamedTuple

import numpy as np

from muster.structs import struct
from placement.fabric.hostset import Mask
from placement.fabric.tree import Ints
from placement.grid.block_grid import BlockGrid
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.trees import tree_edges

MOST_LINKS = 400_000  # edges between ranks; a larger graph costs more than it saves
MOST_WEIGHT = 1 << 59  # of all edges together, that sums stay whole numbers of 64 bits
FEW = 8  # members of a group up to which all of them are near each other

Triples = tuple[Ints, Ints, Ints]


class Incidence(NamedTuple):
    """A hypergraph by vertex: the entries of vertex v in a list are at begin[v] to begin[v + 1].

    `link_*`: neighbours, and the weight of the edge. `near_*`: others whose domain is worth a try.
    `in_*`: the groups of a vertex, what it counts in each and what parting costs: by count for a
    clique, else for each domain.
    """

    sizes: Ints
    link_begin: Ints
    link_to: Ints
    link_weight: Ints
    near_begin: Ints
    near_to: Ints
    in_begin: Ints
    in_group: Ints
    in_count: Ints
    in_price: Ints
    in_clique: Ints


@struct(frozen=True, eq=False)
class Hypergraph:
    """A weighted graph with edges and groups (hyperedges) of vertices. Weights are in units of
    1/`scale` bytes. Made by `hypergraph`, which puts it in order.

    Shapes: sizes (vertices,), blocks of each vertex; tail, head, weight (edges,), tail < head, each
    pair once; group, members, counts (memberships,), sorted by group and vertex, with the blocks
    that a vertex has in a clique, else 1; group_weight, is_clique, 0 or 1, (groups,).
    """

    scale: int
    sizes: Ints
    tail: Ints
    head: Ints
    weight: Ints
    group: Ints
    members: Ints
    counts: Ints
    group_weight: Ints
    is_clique: Ints

    @property
    def blocks(self) -> int:
        """Number of vertices, which are single blocks unless some have been merged."""
        return len(self.sizes)

    def cost(self, layout: Ints) -> int:
        """Compute the weight that a layout cuts. `layout`: the zone of each vertex."""
        cut = int(self.weight[layout[self.tail] != layout[self.head]].sum())
        if not len(self.group_weight):
            return cut
        zones, groups = int(layout.max()) + 1, len(self.group_weight)
        group, _, held = _summed(self.group, layout[self.members], self.counts, zones)
        total, squares = np.zeros((2, groups), dtype=np.int64)
        np.add.at(total, group, held)
        np.add.at(squares, group, held * held)
        touched = np.bincount(group, minlength=groups)
        apart = np.where(self.is_clique, total * total - squares, touched - 1)
        return cut + int((self.group_weight * apart).sum())

    def paid_by_zone(self, layout: Ints) -> Ints:
        """Sum the edges that each zone cuts; groups are left out. Shape: (zones,)."""
        apart = layout[self.tail] != layout[self.head]
        paid = np.zeros(int(layout.max()) + 1, dtype=np.int64)
        for ends in (self.tail, self.head):
            np.add.at(paid, layout[ends[apart]], self.weight[apart])
        return paid

    def period(self, order: Ints) -> int:
        """Return the least shift of blocks in a closed order that maps the graph onto itself."""
        place = np.empty(self.blocks, dtype=np.int64)
        place[order] = np.arange(self.blocks)
        for by in range(1, self.blocks):
            if self.blocks % by == 0:
                turned = order[(place + by) % self.blocks]
                ends = turned[self.tail], turned[self.head]
                edges = _summed(np.minimum(*ends), np.maximum(*ends), self.weight, self.blocks)
                if all(map(np.array_equal, edges, (self.tail, self.head, self.weight))):
                    return by
        return self.blocks

    def merged(self, label: Ints) -> Hypergraph:
        """Return the graph with vertices of equal label merged into one; those of label -1, and
        their edges, are left out. Labels are 0, 1, .. without holes."""
        count, inside = int(label.max(initial=-1)) + 1, label >= 0
        if count == self.blocks and np.array_equal(label, np.arange(count)):
            return self
        sizes = np.zeros(count, dtype=np.int64)
        np.add.at(sizes, label[inside], self.sizes[inside])
        edges = label[self.tail], label[self.head], self.weight
        memberships = self.group, label[self.members], self.counts
        kinds = self.group_weight, self.is_clique
        return hypergraph(sizes, edges, memberships, *kinds, scale=self.scale)

    def inside(self, blocks: Ints) -> Hypergraph:
        """Return the graph of the given blocks in their order, without edges to other blocks."""
        label = np.full(self.blocks, -1, dtype=np.int64)
        label[blocks] = np.arange(len(blocks))
        return self.merged(label)

    def pairwise(self) -> Hypergraph:
        """Return the graph with the edges of a clique added. For vertices of one block each."""
        if not self.is_clique.any():
            return self
        edges = [(self.tail, self.head, self.weight)]
        for clique in np.flatnonzero(self.is_clique):
            members = self.members[self.group == clique]
            a, b = np.triu_indices(len(members), 1)
            weight = np.full(len(a), 2 * self.group_weight[clique])
            edges.append((members[a], members[b], weight))
        rest = self.is_clique[self.group] == 0
        memberships = self.group[rest], self.members[rest], self.counts[rest]
        kinds = self.group_weight, np.zeros_like(self.is_clique)
        return hypergraph(self.sizes, _concatenate(edges), memberships, *kinds, scale=self.scale)

    @cached_property
    def savings(self) -> Triples:
        """Pairs a < b, each once and in order, with how much less is cut when the two are together.

        Of a group only members next to each other count as neighbours.
        """
        is_pair = self.group[1:] == self.group[:-1]
        group, counts = self.group[1:][is_pair], self.counts
        each = counts[:-1][is_pair] * counts[1:][is_pair] * (1 + self.is_clique[group])
        low = np.concatenate([self.tail, self.members[:-1][is_pair]])
        high = np.concatenate([self.head, self.members[1:][is_pair]])
        saved = np.concatenate([self.weight, self.group_weight[group] * each])
        return _summed(low, high, saved, self.blocks)

    @cached_property
    def incidence(self) -> Incidence:
        vertices = np.arange(self.blocks + 1)
        by_vertex = np.argsort(self.members, kind="stable")
        group, counts = self.group[by_vertex], self.counts[by_vertex]
        is_clique = self.is_clique[group]
        tail, head, weight = self._both_ways()
        return Incidence(
            self.sizes,
            np.searchsorted(tail, vertices),
            head,
            weight,
            *self._near(tail, head),
            np.searchsorted(self.members[by_vertex], vertices),
            group,
            counts,
            self.group_weight[group] * counts * (1 + is_clique),
            is_clique,
        )

    def _both_ways(self) -> Triples:
        tail, head = np.concatenate([[self.tail, self.head], [self.head, self.tail]], axis=1)
        return _summed(tail, head, np.concatenate([self.weight, self.weight]), self.blocks)

    def _near(self, tail: Ints, head: Ints) -> tuple[Ints, Ints]:
        """Neighbours, and all members of a small group, those next in a ring of a large one."""
        begin = np.searchsorted(self.group, np.arange(len(self.group_weight) + 1))
        length = np.diff(begin)[self.group]
        place = np.arange(len(self.group)) - begin[self.group]
        tails, heads = [tail], [head]
        for step in (1, -1, *range(2, FEW)):
            is_near = np.where(length > FEW, abs(step) == 1, (step > 0) & (step < length))
            there = begin[self.group] + (place + step) % np.maximum(length, 1)
            tails.append(self.members[is_near])
            heads.append(self.members[there[is_near]])
        tail, head = np.concatenate(tails), np.concatenate(heads)
        order = np.argsort(tail, kind="stable")
        return np.searchsorted(tail[order], np.arange(self.blocks + 1)), head[order]


def hypergraph(
    sizes: Ints,
    edges: Triples,
    memberships: Triples,
    group_weight: Ints,
    is_clique: Ints,
    scale: int = 1,
) -> Hypergraph:
    """Normalise a hypergraph: without loops and vertices -1, equal edges summed, groups of two
    vertices or more, equal ones taken together.

    `edges`: tail, head, weight; `memberships`: group, vertex, blocks of the vertex in it.
    """
    tail, head, weight = edges
    kept = (tail >= 0) & (head >= 0) & (tail != head) & (weight > 0)
    low, high = np.minimum(tail, head)[kept], np.maximum(tail, head)[kept]
    group, members, counts = memberships
    inside = members >= 0
    group, members, counts = _summed(group[inside], members[inside], counts[inside], len(sizes))
    counts = np.where(is_clique[group], counts, 1)
    groups = _distinct(group, members, counts, group_weight, is_clique)
    return Hypergraph(scale, sizes, *_summed(low, high, weight[kept], len(sizes)), *groups)


def _distinct(
    group: Ints, members: Ints, counts: Ints, weight: Ints, is_clique: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Groups of two vertices or more, equal ones as one with the sum of their weights."""
    begin = np.searchsorted(group, np.arange(len(weight) + 1))
    number: dict[tuple[bytes, bytes, bool], int] = {}
    label = np.full(len(weight), -1, dtype=np.int64)
    for g in np.flatnonzero((np.diff(begin) > 1) & (weight > 0)).tolist():
        part = slice(begin[g], begin[g + 1])
        key = (members[part].tobytes(), counts[part].tobytes(), bool(is_clique[g]))
        label[g] = number.setdefault(key, len(number))
    labels, first = np.unique(label, return_index=True)
    first = first[labels >= 0]
    total = np.zeros(len(number), dtype=np.int64)
    np.add.at(total, label[label >= 0], weight[label >= 0])
    kept = np.isin(group, first)
    return label[group[kept]], members[kept], counts[kept], total, is_clique[first]


def _summed(first: Ints, second: Ints, weight: Ints, order: int) -> Triples:
    """Pairs sorted, equal ones with the sum of their weights. `order`: above each second."""
    key = first * order + second
    by_key = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[by_key], prepend=-1))
    if not len(starts):
        return key, key, key
    unique = key[by_key][starts]
    return unique // order, unique % order, np.add.reduceat(weight[by_key], starts)


class _Builder:
    """Edges and groups of blocks, axis by axis."""

    def __init__(self) -> None:
        nothing = np.zeros(0, dtype=np.int64)
        self._edges = [(nothing, nothing, nothing)]
        self._memberships = [(nothing, nothing, nothing)]
        self._kinds = [(nothing, nothing)]  # of groups: weight, is_clique
        self._made = 0

    def edges(self, tail: Ints, head: Ints, weight: Ints | int) -> None:
        each = np.broadcast_to(np.asarray(weight, dtype=np.int64), tail.shape)
        self._edges.append((tail.ravel(), head.ravel(), each.ravel()))

    def groups(self, lines: Ints, weight: Ints | int, *, is_clique: bool) -> None:
        """A group for each row of `lines`, which holds its blocks, -1 for none."""
        many, size = lines.shape
        number = np.repeat(self._made + np.arange(many), size)
        self._memberships.append((number, lines.ravel(), np.ones(lines.size, dtype=np.int64)))
        each = np.broadcast_to(np.asarray(weight, dtype=np.int64), many)
        self._kinds.append((each, np.full(many, int(is_clique))))
        self._made += many

    def graph(self, blocks: int, scale: int = 1) -> Hypergraph:
        sizes = np.ones(blocks, dtype=np.int64)
        edges, memberships = _concatenate(self._edges), _concatenate(self._memberships)
        weights, cliques = zip(*self._kinds, strict=True)
        kinds = np.concatenate(weights), np.concatenate(cliques)
        return hypergraph(sizes, edges, memberships, *kinds, scale=scale)


def _concatenate(parts: Sequence[Triples]) -> Triples:
    first, second, third = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second), np.concatenate(third)


def unlinked(blocks: int) -> Hypergraph:
    """Return a graph of blocks that send each other nothing, which stands for graphs with too many
    edges to be searched."""
    return _Builder().graph(blocks)


def grid_graph(grid: BlockGrid, region: Mask) -> Hypergraph:
    """Return the graph of a region of the grid, its blocks in reading order; edges that leave the
    region are left out.

    Weights are those of the grid, each edge once: the cost is half of `layout_cost`.
    """
    number = np.full(region.shape, -1, dtype=np.int64)
    count = int(np.count_nonzero(region))
    number[region] = np.arange(count)
    made, stride = _Builder(), 1
    made.edges(number[:-1], number[1:], grid.row_weight)
    made.edges(number[:1], number[-1:], grid.row_wrap)
    for axis in grid.slice_axes:
        lines = np.moveaxis(number.reshape(-1, axis.size, stride), 1, -1).reshape(-1, axis.size)
        if axis.pattern is Pattern.RING:
            made.edges(lines, np.roll(lines, -1, axis=1), axis.weight)
        else:
            made.groups(lines, axis.weight, is_clique=axis.pattern is Pattern.ALL_TO_ALL)
        stride *= axis.size
    return made.graph(count)


@lru_cache(maxsize=8)
def block_graph(request: Request, gpus_per_host: int) -> Hypergraph | None:
    """Return the graph of a request's blocks; None when it has too many edges. It is cached, for a
    gang is placed and moved again and again."""
    world = request.parallelism.world_size
    axes = axis_traffic(request, gpus_per_host)
    if sum(_links(t, world, gpus_per_host) for t in axes) > MOST_LINKS:
        return None
    scale = lcm(*(t.size - 1 for t in axes if t.pattern is Pattern.HIERARCHICAL))
    trees = [t for t in axes if t.pattern is Pattern.TREE]
    exact = lcm(scale, *(t.tree_part.denominator for t in trees))
    if exact * world * sum(t.edge_bytes for t in axes) < MOST_WEIGHT:  # else whole parts, rounded
        scale = exact
    block, made = np.arange(world) // gpus_per_host, _Builder()
    for t in axes:
        lines, each = groups_of(block, t), t.edge_bytes * scale
        match t.pattern:
            case Pattern.RING:
                made.edges(lines, np.roll(lines, -1, axis=1), each)
            case Pattern.CHAIN:
                made.edges(lines[:, :-1], lines[:, 1:], each)
                made.edges(lines[:, -1], lines[:, 0], t.wrap_bytes * scale)
            case Pattern.ALL_TO_ALL:
                for step in range(1, t.size):
                    made.edges(lines, np.roll(lines, -step, axis=1), each)
            case Pattern.HIERARCHICAL:
                unique, count = np.unique(lines, axis=0, return_counts=True)
                weight = count * (t.edge_bytes * t.size * scale // (t.size - 1))
                made.groups(unique, weight, is_clique=False)
            case Pattern.PAIRS:
                near, far = np.split(lines[0], [t.ranks])
                tail, head = np.meshgrid(np.unique(near), np.unique(far))
                made.edges(tail, head, each * gpus_per_host**2)
            case Pattern.TREE:
                tail, head, parts = tree_edges(t.size, t.node)
                once = tail < head
                sent = 2 * parts[once] * floor(t.tree_part * scale)
                made.edges(lines[:, tail[once]], lines[:, head[once]], sent)
    return made.graph(world // gpus_per_host, scale)


def block_coordinates(request: Request, gpus_per_host: int) -> Ints:
    """Return where each block begins on each axis that spans hosts. Shape: (axes, blocks)."""
    if request.roles:
        return _role_coordinates(request, gpus_per_host)
    first = np.arange(request.parallelism.world_size // gpus_per_host) * gpus_per_host
    axes = [t for t in axis_traffic(request) if t.stride * t.size > gpus_per_host]
    return np.array([first // t.stride % t.size for t in axes]).reshape(-1, len(first))


def _role_coordinates(request: Request, gpus_per_host: int) -> Ints:
    """The number of the role of each block, and the places of blocks by how far in their roles
    they lie, along its axes and across them: in proportion, all roles lie near each other."""
    rows = []
    for number, role in enumerate(request.roles):
        axes = block_coordinates(role.request, gpus_per_host)
        blocks = axes.shape[1]
        across = np.argsort(np.lexsort(axes[::-1])) if len(axes) else np.arange(blocks)
        rows.append(
            np.array([np.full(blocks, number), np.arange(blocks) / blocks, across / blocks])
        )
    return np.array([np.unique(each, return_inverse=True)[1] for each in np.hstack(rows)])


def _links(traffic: AxisTraffic, world: int, gpus_per_host: int) -> int:
    """Return the edges that one axis gives the graph."""
    ranks = traffic.ranks or world
    if traffic.pattern is Pattern.PAIRS:
        return ranks * (traffic.size - ranks) // gpus_per_host**2
    if traffic.pattern is Pattern.TREE:
        return ranks // traffic.size * len(tree_edges(traffic.size, traffic.node)[0]) // 2
    return ranks * (traffic.size // 2 if traffic.pattern is Pattern.ALL_TO_ALL else 1)
