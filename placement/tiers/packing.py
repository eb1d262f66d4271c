"""Blocks onto the domains of an inner tier, inside one domain of the tier above.

A gang is a hypergraph of blocks (`Gang`), and what lies in one domain is a region of it: a mask
over the grid that the gang is laid out on. Where ranks form no grid of hosts, that is one row of
blocks in order. From cheap to dear, until the cut is what cannot be beaten: walks through the
region cut into one segment per child (`segmentation`), then annealing from the best of these and
from pieces put together anew (`multilevel`). Slicing trees stand in where a region is too large
to be cut along many walks and its children are few.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, tee

import numpy as np

from placement.bound.part_sizes import PartBound
from placement.bound.size_relaxation import size_bound
from placement.fabric.tree import Ints
from placement.graph.hypergraph import (
    Hypergraph,
    block_coordinates,
    block_graph,
    grid_graph,
    unlinked,
)
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Region
from placement.search.graph_slicing import roomiest, slice_grid
from placement.search.multilevel import improved
from placement.search.segmentation import LineSearch, box_walks
from placement.tiers.inner_bound import proved
from placement.workload.request import Request

ABREAST = 8  # lines side by side in a walk, at most
TREES, FEW = 1_000, 24  # slicing trees, and up to how many children


class Part:
    """The blocks of a region in reading order: their graph, and the child of each where they were
    `packed` before, by the room of the children, roomiest first."""

    def __init__(self, graph: Hypergraph, walks: Iterator[Ints]) -> None:
        self.graph = graph
        self.packed: dict[tuple[int, ...], Ints] = {}
        self._walks = walks

    def walks(self) -> Iterator[Ints]:
        """Orders of the blocks, the most promising first, made once."""
        self._walks, walks = tee(self._walks)
        return walks


class Gang:
    """The blocks of a gang, and what parts of it cut at least, in units of their graph.

    `request`: of a gang whose ranks form no grid; without it, or where its graph has too many
    edges, its blocks send each other nothing.
    """

    def __init__(self, grid: BlockGrid, request: Request | None, gpus_per_host: int) -> None:
        self._grid, self._request, self._gpus = grid, request, gpus_per_host
        self._is_grid = grid.rows > 1 or bool(grid.slice_axes) or request is None
        self._parts: dict[bytes, Part] = {}

    @cached_property
    def graph(self) -> Hypergraph:
        if self._is_grid:
            return grid_graph(self._grid, self._grid.everywhere)
        assert self._request is not None
        return block_graph(self._request, self._gpus) or unlinked(self._grid.size)

    @cached_property
    def _coordinates(self) -> Ints:
        """The coordinates of every cell in reading order, by axis. Shape: (axes, cells)."""
        if self._is_grid:
            return _dearest_first(self._grid)
        assert self._request is not None
        return block_coordinates(self._request, self._gpus)

    def part(self, region: Region) -> Part:
        """The same one of all regions that look alike: on a grid, edges are the same wherever a
        region lies."""
        blocks = np.flatnonzero(region)
        inside = self._coordinates[:, blocks]
        look = region.tobytes()
        if self._is_grid:
            look = (inside - inside.min(axis=1, keepdims=True)).tobytes()
        if look not in self._parts:
            in_order = () if self._is_grid else (np.arange(len(blocks)),)
            walks = chain(in_order, box_walks(list(inside), ABREAST))
            self._parts[look] = Part(self.graph.inside(blocks), walks)
        return self._parts[look]

    def sliced(self, region: Region, room: Sequence[int]) -> Ints | None:
        """The child of each block by slicing trees; None where there is no grid, or they are
        many."""
        if not self._is_grid or len(room) > FEW:
            return None
        return slice_grid(self._grid, room, TREES, 0, region=region)[region]

    @cached_property
    def _part_bound(self) -> PartBound:
        return PartBound(self.graph)

    def least(self, region: Region, room: Sequence[int]) -> int:
        """A cut inside the region that no packing beats, at once."""
        if self._is_grid:
            return -(-size_bound(self._grid).least_cut(region, room) // 2)
        return -(-self._part_bound.least_cut(room) // 2) if region.all() else 0

    def proved(self, room: Sequence[int], cost: int) -> int:
        """The same for the whole gang by the prover, which takes longer. `cost`: of a good
        packing."""
        return -(-proved(self._grid, room, 2 * cost) // 2) if self._is_grid else 0


def _dearest_first(grid: BlockGrid) -> Ints:
    """Coordinates by axis, the one dearest to part first."""
    axes = grid.coordinates(grid.everywhere)
    axes.sort(key=lambda each: -(each[0].per_slot if each[0] else grid.row_weight))
    return np.array([at for _, at in axes])


class Packer:
    """A region, the `room` of the children that may take its blocks, and the best so far.

    `least`: a cut in the units of the graph that no packing beats.
    """

    def __init__(self, part: Part, room: Sequence[int], least: int) -> None:
        self._graph, self._all_room = part.graph, room
        self._room = roomiest(room, self._graph.blocks)
        self._lines = LineSearch(self._graph, part.walks(), self._room, least)
        self._offered: Ints | None = None
        self._cost = self._lines.cost + 1

    @property
    def cost(self) -> int:
        return min(self._cost, self._lines.cost)

    @property
    def is_done(self) -> bool:
        return self.cost <= self._lines.least

    def packing(self) -> Ints:
        """The child of each block in reading order."""
        return fitted(self._best(), self._all_room)

    def _best(self) -> Ints:
        """The same in children that are roomy."""
        if self._offered is None or self._lines.cost <= self._cost:
            return self._lines.layout()
        return self._offered

    def bound(self, least: int) -> None:
        """A cut that no packing beats, known now."""
        self._lines.least = max(self._lines.least, least)

    def offer(self, at: Ints) -> None:
        """Keep another packing if its parts fit and cut less."""
        parts = best_fit(at, self._room)
        if parts is not None and (cost := self._graph.cost(parts)) < self.cost:
            self._offered, self._cost = parts, cost

    def walk(self, batches: Sequence[int]) -> None:
        if not self.is_done:
            self._lines.walk(batches)

    @property
    def can_climb(self) -> bool:
        return self._lines.can_climb

    def climb(self, tries: int) -> None:
        if not self.is_done:
            self._lines.climb(tries)

    def anneal(self, per_block: int, passes: int) -> None:
        """From the best packing, and from pieces put together anew; so many proposals per block."""
        if not self.is_done:
            start = self._best()
            self.offer(
                improved(self._graph, self._room, start, passes, self._lines.least, per_block)
            )


def best_fit(at: Ints, room: Sequence[int]) -> Ints | None:
    """The same parts, each in the tightest child that holds it, the largest part first:
    who is with whom decides the cut, and roomy children stay free for others. None when
    they do not fit."""
    parts, part, sizes = np.unique(at, return_inverse=True, return_counts=True)
    child = np.empty_like(parts)
    tightest = sorted((n, z) for z, n in enumerate(room))
    for k in np.argsort(-sizes, kind="stable").tolist():
        position = bisect_left(tightest, (int(sizes[k]), -1))
        if position == len(tightest):
            return None
        _, child[k] = tightest.pop(position)
    return child[part]


def fitted(at: Ints, room: Sequence[int]) -> Ints:
    """The best fit of a packing that these children hold, or as it is."""
    parts = best_fit(at, room)
    return at if parts is None else parts
