"""Blocks and pieces of several blocks as a graph that a search walks vertex by vertex.

The grid's lines are fast to count but only say what straight cuts cost. A search that
moves single blocks needs to know who talks to whom: pairs along rings and chains as
*links*, and groups whose cost depends only on how many members each domain holds
(hierarchical collectives, all-to-all) as such, for a clique of 64 has 4,032 pairs.
Plain dictionaries and integers, which are easy to build and to count on; `flat` makes them
the arrays that annealing runs over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from placement.fabric.tree import Ints
from placement.graph.block_graph import BlockGraph
from placement.grid.block_grid import BlockGrid
from placement.search.grid_slicing import Region
from placement.workload.traffic import Pattern


@dataclass(frozen=True, slots=True)
class Group:
    """Vertices with the blocks each has in the group, and what parting them costs.

    A clique pays `weight` for each ordered pair apart; other groups (hierarchical) for
    each domain beyond the first.
    """

    members: tuple[tuple[int, int], ...]
    weight: int
    is_clique: bool

    def cost(self, at: Sequence[int]) -> int:
        """What the group costs with vertex v in domain `at[v]`."""
        held: dict[int, int] = {}
        for vertex, blocks in self.members:
            held[at[vertex]] = held.get(at[vertex], 0) + blocks
        if not self.is_clique:
            return self.weight * (len(held) - 1)
        total = sum(held.values())
        return self.weight * (total * total - sum(n * n for n in held.values()))


@dataclass(frozen=True, slots=True)
class PieceGraph:
    """`links[v]`: neighbours of vertex v with the weight of the edge, each edge twice.

    A vertex is one block, or `sizes[v]` blocks that stay together.
    """

    sizes: tuple[int, ...]
    links: tuple[dict[int, int], ...]
    groups: tuple[Group, ...]

    @property
    def order(self) -> int:
        """Number of vertices."""
        return len(self.sizes)

    def cost(self, at: Sequence[int]) -> int:
        """The cut with vertex v in domain `at[v]`, in the units of the weights."""
        twice = sum(
            weight
            for vertex, links in enumerate(self.links)
            for other, weight in links.items()
            if at[other] != at[vertex]
        )
        return twice // 2 + sum(group.cost(at) for group in self.groups)


def pieces_of_grid(grid: BlockGrid, region: Region) -> PieceGraph:
    """Blocks of `region` in reading order; edges that leave the region are left out.

    Weights are those of the grid, each edge once: the cost is half of `layout_cost`.
    """
    number = np.full(region.shape, -1, dtype=np.int64)
    count = int(np.count_nonzero(region))
    number[region] = np.arange(count)
    links: list[dict[int, int]] = [{} for _ in range(count)]
    groups: list[Group] = []
    _join(links, number[:-1], number[1:], grid.row_weight)
    _join(links, number[:1], number[-1:], grid.row_wrap)
    stride = 1
    for axis in grid.slice_axes:
        lines = np.moveaxis(number.reshape(-1, axis.size, stride), 1, -1).reshape(-1, axis.size)
        if axis.pattern is Pattern.RING:
            _join(links, lines, np.roll(lines, -1, axis=1), axis.weight)
        elif axis.weight:
            is_clique = axis.pattern is Pattern.ALL_TO_ALL
            inside = ([v for v in line if v >= 0] for line in lines.tolist())
            groups += [
                Group(tuple((v, 1) for v in line), axis.weight, is_clique)
                for line in inside
                if len(line) > 1
            ]
        stride *= axis.size
    return PieceGraph((1,) * count, tuple(links), tuple(groups))


def graph_of_pieces(graph: PieceGraph) -> BlockGraph:
    """The same as arrays, with a clique as pairs. For vertices of one block each."""
    cliques = [group for group in graph.groups if group.is_clique]
    groups = [group for group in graph.groups if not group.is_clique]
    edges = [(a, b, w) for a, near in enumerate(graph.links) for b, w in near.items() if a < b]
    for group in cliques:
        pairs = combinations(sorted(vertex for vertex, _ in group.members), 2)
        edges += [(a, b, 2 * group.weight) for a, b in pairs]
    members = [(v, k) for k, group in enumerate(groups) for v, _ in group.members]
    tail, head, weight = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    member, number = np.array(members, dtype=np.int64).reshape(-1, 2).T
    group_weight = np.array([group.weight for group in groups], dtype=np.int64)
    return BlockGraph(graph.order, 1, tail, head, weight, member, number, group_weight)


def _join(links: list[dict[int, int]], tails: Ints, heads: Ints, weight: int) -> None:
    """Add edges between vertices of equal position, where both are there and differ."""
    if not weight:
        return
    inside = (tails >= 0) & (heads >= 0) & (tails != heads)
    for a, b in zip(tails[inside].tolist(), heads[inside].tolist(), strict=True):
        links[a][b] = links[a].get(b, 0) + weight
        links[b][a] = links[b].get(a, 0) + weight


def pieces_of_graph(graph: BlockGraph, blocks: Ints) -> PieceGraph:
    """The given blocks in their order; edges to others are left out."""
    number = np.full(graph.blocks, -1, dtype=np.int64)
    number[blocks] = np.arange(len(blocks))
    links: list[dict[int, int]] = [{} for _ in range(len(blocks))]
    tails, heads = number[graph.tail], number[graph.head]
    inside = (tails >= 0) & (heads >= 0) & (graph.weight > 0)
    edges = (tails[inside].tolist(), heads[inside].tolist(), graph.weight[inside].tolist())
    for a, b, weight in zip(*edges, strict=True):
        links[a][b] = links[b][a] = weight
    members: list[dict[int, int]] = [{} for _ in range(len(graph.group_weight))]
    vertices = number[graph.members]
    here = vertices >= 0
    for group, vertex in zip(graph.group[here].tolist(), vertices[here].tolist(), strict=True):
        members[group][vertex] = 1
    groups = tuple(
        Group(tuple(held.items()), weight, is_clique=False)
        for held, weight in zip(members, graph.group_weight.tolist(), strict=True)
        if len(held) > 1 and weight
    )
    return PieceGraph((1,) * len(blocks), tuple(links), groups)
