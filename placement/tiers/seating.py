"""From zones to hosts, with little harm to what stays free.

Each domain that carries a part of the gang packs it onto its children, and so on until the children
are hosts. Inner tiers only ever see hosts that are free.

The cut on every tier comes first. So every way to spare whole domains is a placement of
its own, which the caller compares; ways that need more domains are not tried, for they
would cut more.

A gang that is packed onto the children of one domain is a hypergraph of blocks (`Gang`), and what
lies in one domain is a region of it: a mask over the grid that the gang is laid out on. Where ranks
form no grid of hosts, that is one row of blocks in order. From cheap to dear, until the cut is what
cannot be beaten: walks through the region cut into one segment per child (`segmentation`), then
annealing from the best of these and from pieces put together anew (`multilevel`). Slicing trees
stand in where a region is too large to be cut along many walks and its children are few.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, tee

import numpy as np

from muster.structs import replace, struct
from placement.bound.pathwidth import PartBound
from placement.bound.size_relaxation import size_bound
from placement.fabric.tree import Fabric, Ints, sizes_of
from placement.graph.hypergraph import (
    Hypergraph,
    block_coordinates,
    block_graph,
    grid_graph,
    unlinked,
)
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, Region, layout_cost
from placement.search.graph_slicing import level_room, slice_grid
from placement.search.multilevel import improve
from placement.search.segmentation import LineSearch, box_walks
from placement.tiers.bound_proofs import proved
from placement.tiers.fragmentation import choose_domains, fewest_whole, rehoused, spare_domains
from placement.workload.request import Limits, Request

FIRST_WALKS, MORE_WALKS = (2, 5), (16, 24)  # cut at a time, before and after the proof
MOST_PROPOSALS = 1_000_000  # in all the passes
PASSES = 8  # of annealing over the whole gang in one domain; a part of it gets its share
QUICK = 100  # proposals for each block, or piece and level, of one pass
A_PASS = 24  # blocks for each pass
# Of domains, for each pass. Beside 16 of these and half as many passes twice as long, of 352 gangs
# (seeds 1, 101 to 103) 27 cut less inside a domain, by up to 1.8 %, and 10 more, by up to 2.4 %;
# 228 are proved there, 223 before, in 2 % more time.
SEQUENCES = 32
ABREAST = 8  # lines side by side in a walk, at most
TREES, FEW = 1_000, 24  # slicing trees, and up to how many children
Hosts = tuple[int, ...]


class Part:
    """The blocks of a region in reading order, as a graph. `packed`: where these blocks were packed
    before, by the room of the children, roomiest first: the child of each block."""

    def __init__(self, graph: Hypergraph, walks: Iterator[Ints]) -> None:
        self.graph = graph
        self.packed: dict[tuple[int, ...], Ints] = {}
        self._walks = walks

    def walks(self) -> Iterator[Ints]:
        """Orders of the blocks, the most promising first, made once."""
        self._walks, walks = tee(self._walks)
        return walks


class Gang:
    """The blocks of a gang to be packed into inner domains, and bounds on what parts of it cut, in
    units of their graph.

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
        """Return one part for all regions that look alike: on a grid, edges are the same wherever a
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

    def packed(self, region: Region, room: Sequence[int], limits: Limits) -> Ints:
        """Return the child of each block of a region in reading order, an index into `room`."""
        if max(room) == 1:  # every block is alone, wherever it is
            return np.flatnonzero(room)[: np.count_nonzero(region)]
        part, descending = self.part(region), tuple(sorted(room, reverse=True))
        if descending in part.packed:
            return in_tightest_children(part.packed[descending], room)
        at = self._packing(part, region, room, limits)
        part.packed[descending] = at
        return at

    def _packing(self, part: Part, region: Region, room: Sequence[int], limits: Limits) -> Ints:
        """From cheap to dear, until the cut is what cannot be beaten."""
        graph, gang = part.graph, self._grid.size
        roomy = level_room(room, graph.blocks)
        lines = LineSearch(graph, part.walks(), roomy, self.least(region, room))
        lines.walk(FIRST_WALKS)
        if not limits.trees or lines.is_done:
            return in_tightest_children(lines.layout(), room)
        if graph.blocks == gang:
            lines.least = max(lines.least, self.proved(room, lines.cost))
        per_block = min(QUICK, MOST_PROPOSALS // gang, graph.blocks)
        share = min(-(-PASSES * graph.blocks // gang), -(-graph.blocks // A_PASS))
        passes = min(share, MOST_PROPOSALS // (per_block * gang))
        if limits.may_use("more walks inside a domain"):
            lines.walk(MORE_WALKS)
        if limits.may_use("other sequences of domains"):
            lines.climb(passes * SEQUENCES)
        best = lines.layout()
        is_sliced = self._is_grid and len(room) <= FEW and not (lines.can_climb or lines.is_done)
        if is_sliced and limits.may_use("slicing trees inside a domain"):
            slices = best_fit(slice_grid(self._grid, room, TREES, 0, region=region)[region], roomy)
            best = best if slices is None else min(best, slices, key=graph.cost)
        if limits.may_use("annealing inside a domain"):
            best = improve(graph, roomy, best, passes, lines.least, per_block)
        return in_tightest_children(best, room)

    @cached_property
    def _part_bound(self) -> PartBound:
        return PartBound(self.graph)

    def least(self, region: Region, room: Sequence[int]) -> int:
        """Bound the cut inside the region that no packing beats, at once."""
        if self._is_grid:
            return -(-size_bound(self._grid).least_cut(region, room) // 2)
        return -(-self._part_bound.least_cut(room) // 2) if region.all() else 0

    def proved(self, room: Sequence[int], cost: int) -> int:
        """Bound the cut of the whole gang by branch and price, which takes longer. `cost`: of a
        good packing."""
        return -(-proved(self._grid, room, 2 * cost) // 2) if self._is_grid else 0


def _dearest_first(grid: BlockGrid) -> Ints:
    """Coordinates by axis, the one dearest to part first."""
    axes = grid.coordinates(grid.everywhere)
    axes.sort(key=lambda each: -(each[0].per_slot if each[0] else grid.row_weight))
    return np.array([at for _, at in axes])


def best_fit(at: Ints, room: Sequence[int]) -> Ints | None:
    """Put each part into the tightest child that holds it, the largest part first:
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


def in_tightest_children(at: Ints, room: Sequence[int]) -> Ints:
    """Return a packing with each part in the tightest child that holds it, or as it is where they
    do not fit."""
    parts = best_fit(at, room)
    return at if parts is None else parts


@struct(frozen=True, slots=True, eq=False)
class ZoneChoice:
    """One choice of zones for a gang: the zone of each block, or one domain (`zones` None) with
    children on `tier`. Hosts come from `free`."""

    zones: Layout | None
    free: Ints
    tier: int = 1


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `request`: of a gang whose ranks form no grid; without it the blocks stay in order. `limits`: of
    the searches inside domains, for which first walks must do where no trees are allowed.
    """

    def __init__(
        self,
        fabric: Fabric,
        grid: BlockGrid,
        limits: Limits,
        request: Request | None = None,
    ) -> None:
        self._fabric = fabric
        self._limits = limits
        self._gang = Gang(grid, request, fabric.gpus_per_host)
        self.host = np.full((grid.rows, grid.width), -1, dtype=np.int64)

    def into(self, region: Region, free: Ints, tier: int) -> None:
        """Pack `region` onto `free` hosts of one domain, whose children are on `tier`."""
        needed = int(np.count_nonzero(region))
        if tier == len(self._fabric.tiers):
            self.host[region] = free[:needed]
            return
        domain = self._fabric.tiers[tier].domain_by_host[free]
        children, room = np.unique(domain, return_counts=True)
        fitting = np.flatnonzero(room >= needed)
        if len(fitting):
            child = children[fitting[np.argmin(room[fitting])]]
            self.into(region, free[domain == child], tier + 1)
            return
        layout = np.full(region.shape, -1, dtype=np.int64)
        layout[region] = self._gang.packed(region, room.tolist(), self._limits)
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _seat(self, region: Region, layout: Layout, numbers: Ints, free: Ints) -> None:
        """Blocks of each innermost domain onto its hosts, both in ascending order."""
        domain = self._fabric.tiers[-1].domain_by_host[free]
        for label in np.unique(layout[region]):
            part = layout == label
            self.host[part] = free[domain == numbers[label]][: np.count_nonzero(part)]


class Seating:
    """Chooses hosts for the blocks of one grid. `free`: host indices, ascending."""

    def __init__(
        self,
        fabric: Fabric,
        request: Request,
        free: Ints,
        grid: BlockGrid,
        limits: Limits,
    ) -> None:
        self._fabric = fabric
        self._free = free
        self._grid = grid
        self._few_trees = limits.first.trees
        self._descent = Descent(fabric, grid, limits, request)
        self._known: dict[tuple[bytes, bytes], Ints] = {}

    def in_zones(self, layout: Layout, kept: Ints, kind: Ints) -> Iterator[ZoneChoice]:
        """Yield the zones of `layout`, and zones with the same cut whose use fragments less.

        `kept`: spares wished for beside the part in each zone; `kind`: zones are exchanged within
        one kind. Both of shape (zones,).
        """
        layouts = [layout]
        yield ZoneChoice(layout, self._free)
        for zones in (layout, self._without_whole_zones(layout)):
            if zones is not None:
                for other in (zones, self._kindest(zones, kept, kind)[zones]):
                    if not any((other == known).all() for known in layouts):
                        layouts.append(other)
                        yield ZoneChoice(other, self._free)

    def inside(self, domains: Sequence[tuple[Ints, int]]) -> list[ZoneChoice]:
        """Return choices with the whole gang in one of `domains`: (free hosts, tier below)."""
        return [ZoneChoice(None, free, tier) for free, tier in domains]

    def zone_by_block(self, way: ZoneChoice) -> Ints:
        """Return the zone of each block; 0 on a fabric without tiers."""
        if way.zones is not None:
            return self._grid.by_block(way.zones)
        tiers = self._fabric.tiers
        if tiers and way.tier == 0:
            return np.asarray(tiers[0].domain_by_host[list(self._hosts(way))])
        return np.full(self._grid.size, tiers[0].domain_by_host[way.free[0]] if tiers else 0)

    def seated(self, ways: Sequence[ZoneChoice]) -> list[Hosts]:
        """Return hosts for each choice, and, where that is likely to fit, hosts that break fewer
        whole domains."""
        layouts = [self._hosts(way) for way in ways]
        for way, hosts in zip(ways, list(layouts), strict=True):
            if way.zones is None and way.tier >= len(self._fabric.tiers):
                continue
            free = spare_domains(self._fabric, way.free, hosts)
            if np.isin(hosts, np.setdiff1d(way.free, free)).any():
                layouts.append(self._hosts(replace(way, free=free)))
        return layouts

    def _hosts(self, way: ZoneChoice) -> Hosts:
        if way.tier >= len(self._fabric.tiers) and way.zones is None:
            return tuple(way.free[: self._grid.size].tolist())
        zones = np.zeros((self._grid.rows, self._grid.width), dtype=np.int64)
        zone_of_free = np.zeros(len(way.free), dtype=np.int64)
        if way.zones is not None:
            zones, zone_of_free = way.zones, self._fabric.tiers[0].domain_by_host[way.free]
        host = np.empty_like(zones)
        for number in np.unique(zones):
            part = zones == number
            host[part] = self._part(part, way.free[zone_of_free == number], way.tier)
        return rehoused(self._fabric, way.free, tuple(self._grid.by_block(host).tolist()))

    def _part(self, part: Region, free: Ints, tier: int) -> Ints:
        """Hosts of the blocks in one domain, remembered: ways share most of theirs."""
        key = (part.tobytes(), free.tobytes())
        if key not in self._known:
            self._descent.into(part, free, tier)
            self._known[key] = self._descent.host[part]
        return self._known[key]

    def _kindest(self, layout: Layout, kept: Ints, kind: Ints) -> Ints:
        tier = self._fabric.tiers[0]
        free, used = tier.count(self._free), np.bincount(layout.ravel(), minlength=len(kind))
        kept = np.minimum(kept, free - used) * (used > 0)
        return choose_domains(used, free, sizes_of(tier), kept, kind)

    def _without_whole_zones(self, layout: Layout) -> Layout | None:
        """A layout of the same cut in broken zones and as few whole ones as these leave
        necessary; None when a short search finds none, or `layout` is one."""
        if not self._grid.weights:
            return None
        tier = self._fabric.tiers[0]
        room = tier.count(self._free)
        room = np.where(fewest_whole(room, sizes_of(tier), self._grid.size), room, 0)
        if room[np.unique(layout)].all() or np.count_nonzero(room) < 2:
            return None
        cost = layout_cost(self._grid, layout)
        other = slice_grid(self._grid, room.tolist(), self._few_trees, cost)
        return other if layout_cost(self._grid, other) <= cost else None
