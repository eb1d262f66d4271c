"""Parts of a gang as the packer sees them: graph, walks, and what they cut at least.

A region is a mask over the grid that the gang is laid out on. Where ranks form no grid of
hosts, the "grid" is one row of blocks in order, and everything comes from their graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Protocol

import numpy as np

from placement.bound.part_sizes import PartBound
from placement.bound.size_relaxation import size_bound
from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, block_graph, grid_graph, unlinked
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Region
from placement.search.segmentation import box_walks
from placement.tiers.inner_bound import proved
from placement.workload.request import Request
from placement.workload.traffic import Pattern, axis_traffic

ABREAST = 8  # lines side by side in a walk, at most


class Part:
    """The blocks of a region, numbered in reading order, as a packer sees them; and what takes long
    to say of them, once it has been asked for.

    `graph`: weights in a unit of its own. `walks`: orders of the blocks, the most promising first.
    """

    def __init__(self, graph: Hypergraph, walks: Iterator[Ints]) -> None:
        self.graph = graph
        self._walks: list[Ints] = []
        self._more = walks

    def walks(self) -> Iterator[Ints]:
        for k in count():
            if k == len(self._walks):
                self._walks += islice(self._more, 1)
            if k == len(self._walks):
                return
            yield self._walks[k]


class Regions(Protocol):
    """What a packer asks of a gang."""

    def part(self, region: Region) -> Part:
        """The same one of all regions that look alike."""

    def least(self, region: Region, room: Sequence[int]) -> int:
        """A cut inside the region that no packing beats, in the graph's unit; at once."""

    def proved(self, room: Sequence[int], cost: int) -> int:
        """The same for the whole gang by the prover, which takes longer. `cost`: of a good
        packing."""


class GridRegions:
    """Of a gang whose blocks form a grid."""

    def __init__(self, grid: BlockGrid) -> None:
        self._grid = grid
        self._sizes = size_bound(grid)
        self._coordinates = _dearest_first(grid)
        self._parts: dict[bytes, Part] = {}

    def part(self, region: Region) -> Part:
        """Edges are the same wherever a region lies on the grid; walks are those of the first."""
        inside = self._coordinates[:, region.ravel()]
        look = (inside - inside.min(axis=1, keepdims=True)).tobytes()
        if look not in self._parts:
            graph, walks = grid_graph(self._grid, region), box_walks(list(inside), ABREAST)
            self._parts[look] = Part(graph, walks)
        return self._parts[look]

    def least(self, region: Region, room: Sequence[int]) -> int:
        return -(-self._sizes.least_cut(region, room) // 2)

    def proved(self, room: Sequence[int], cost: int) -> int:
        return -(-proved(self._grid, room, 2 * cost) // 2)


def _dearest_first(grid: BlockGrid) -> Ints:
    """Coordinates of every cell in reading order, by axis, the one dearest to part first. Shape:
    (axes, cells)."""
    rows, slots = (part.ravel() for part in np.indices((grid.rows, grid.width)))
    found = [(-grid.row_weight, rows)]
    stride = 1
    for axis in grid.slice_axes:
        all_pairs = axis.pattern is Pattern.ALL_TO_ALL
        found.append((-axis.weight * (axis.size if all_pairs else 1), slots // stride % axis.size))
        stride *= axis.size
    return np.array([coordinates for _, coordinates in sorted(found, key=lambda pair: pair[0])])


class GraphRegions:
    """Of a gang whose blocks form no grid. Where their graph has too many edges, blocks
    stay in order."""

    def __init__(self, request: Request, gpus_per_host: int) -> None:
        self._graph = block_graph(request, gpus_per_host)
        self._parts = None if self._graph is None else PartBound(self._graph)
        self._known: dict[bytes, Part] = {}
        first = np.arange(request.hosts_needed(gpus_per_host)) * gpus_per_host
        self._coordinates = [
            first // traffic.stride % traffic.size
            for traffic in axis_traffic(request)
            if traffic.stride * traffic.size > gpus_per_host
        ]

    def part(self, region: Region) -> Part:
        look = region.tobytes()
        if look not in self._known:
            self._known[look] = Part(self._pieces(region), self._walks(region))
        return self._known[look]

    def _pieces(self, region: Region) -> Hypergraph:
        blocks = np.flatnonzero(region)
        if self._graph is None:
            return unlinked(len(blocks))
        return self._graph.inside(blocks)

    def _walks(self, region: Region) -> Iterator[Ints]:
        yield np.arange(np.count_nonzero(region))
        if self._graph is not None:
            inside = region.ravel()
            yield from box_walks([axis[inside] for axis in self._coordinates], ABREAST)

    def least(self, region: Region, room: Sequence[int]) -> int:
        if self._parts is None or not region.all():
            return 0
        return -(-self._parts.least_cut(room) // 2)

    def proved(self, room: Sequence[int], cost: int) -> int:
        return 0
