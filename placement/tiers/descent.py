"""From the outermost tier down to hosts.

Each domain that carries a part of the gang packs it onto its children, and so on until
the children are hosts. Inner tiers only ever see hosts that are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Fabric, Ints
from placement.graph.exhaustive import MOST_BLOCKS, best_partition
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Layout, Region
from placement.tiers.inner_bound import SMALL as SMALL_DOMAIN
from placement.tiers.inner_bound import common_room
from placement.tiers.packing import Packer, fitted, sliced
from placement.tiers.regions import GraphRegions, GridRegions, Part, Regions
from placement.workload.request import Request

TREES, FEW = 1_000, 24  # slicing trees, and up to how many children
FIRST_WALKS, MORE_WALKS = (2, 5), (16, 24)  # cut at a time, before and after the proof
FEW_WALKS = (8,)  # in place of the latter, for parts of small gangs


@dataclass(frozen=True, slots=True)
class Effort:
    """Work on one region, counted: orders of domains, rounds of annealing and proposals per
    block in each."""

    orders: int
    per_block: int
    rounds: int

    def limited(self, gang: int) -> Effort:
        """Less annealing for a large gang."""
        per_block = min(self.per_block, MOST_PROPOSALS // gang)
        rounds = min(self.rounds, MOST_PROPOSALS // max(1, per_block * gang))
        return replace(self, per_block=per_block, rounds=rounds)


MOST_PROPOSALS = 1_000_000  # in all the rounds
GANG = Effort(orders=60, per_block=300, rounds=8)
SMALL_GANG = Effort(orders=8, per_block=40, rounds=1)
SMALL = 64  # blocks of a small gang
PART = Effort(orders=15, per_block=200, rounds=1)  # outer tiers decide more
SMALL_PART = Effort(orders=4, per_block=40, rounds=0)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A part, the room of the children it was packed onto, roomiest first, how, and the cut that
    nothing there beats."""

    part: Part
    room: list[int]
    at: Ints
    least: int

    def had_as_much_as(self, room: Sequence[int]) -> bool:
        pairs = zip_longest(self.room, room, fillvalue=0)
        return all(had >= has for had, has in pairs)


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `tries`: none, and the first walks must do. `request`: of a gang whose ranks form no
    grid; without it the blocks stay in order. `everywhere`: all free hosts, ascending.
    """

    def __init__(
        self,
        fabric: Fabric,
        grid: BlockGrid,
        tries: int,
        request: Request | None = None,
        everywhere: Ints | None = None,
    ) -> None:
        self._fabric = fabric
        self._everywhere = everywhere
        self._grid = grid
        self._tries = tries
        self._packed_before: list[_Packed] = []
        self._regions = _regions(grid, request, fabric.gpus_per_host)
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
        layout = self._packed(region, room.tolist(), tier)
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _packed(self, region: Region, room: list[int], tier: int) -> Layout:
        """The child on `tier` of each block of `region`, as an index into `room`; -1
        elsewhere."""
        regions = self._regions
        layout = np.full(region.shape, -1, dtype=np.int64)
        if max(room) == 1:  # every block is alone, wherever it is
            layout[region] = np.arange(np.count_nonzero(region))
            return layout
        part = regions.part(region)
        if self._tries and part.graph.blocks <= MOST_BLOCKS:
            layout[region] = fitted(best_partition(part.graph, room), room)
        else:
            layout[region] = self._at_best(part, region, room, tier)
        return layout

    def _at_best(self, part: Part, region: Region, room: list[int], tier: int) -> Ints:
        """The child of each block of a part, which `region` is: as before where it was packed onto
        as much room."""
        roomiest = sorted(room, reverse=True)
        before = [other for other in self._packed_before if other.part is part]
        for other in before:
            if other.room == roomiest:
                return fitted(other.at, room)
        least = self._regions.least(region, room)
        packer = Packer(part, room, least)
        packer.walk(FIRST_WALKS)
        if self._tries and not packer.is_done:
            self._search(packer, roomiest, before, region, room, tier)
        at = packer.packing()
        self._packed_before.append(_Packed(part, roomiest, at, packer.least))
        return at

    def _search(
        self,
        packer: Packer,
        roomiest: Sequence[int],
        before: Sequence[_Packed],
        region: Region,
        room: list[int],
        tier: int,
    ) -> None:
        """From cheap to dear, and beginning with how the same part was packed elsewhere."""
        is_whole = bool(region.all())
        is_small = self._grid.size <= SMALL
        effort, part = (SMALL_GANG, SMALL_PART) if is_small else (GANG, PART)
        for other in before:
            packer.try_parts(other.at)
            if other.had_as_much_as(roomiest):
                packer.bound(other.least)
                effort = part
        if not is_whole:
            effort = part
        elif effort is not part and not packer.is_done:
            self._prove(packer, room, tier)
        is_part, effort = effort is part, effort.limited(self._grid.size)
        packer.walk(FEW_WALKS if is_small and is_part else MORE_WALKS)
        packer.climb(effort.orders)
        has_shape = isinstance(self._regions, GridRegions)
        if has_shape and not packer.can_climb and not packer.is_done and len(room) <= FEW:
            packer.offer(sliced(self._grid, region, room, TREES))
        packer.anneal(effort.per_block, effort.rounds)

    def _prove(self, packer: Packer, room: list[int], tier: int) -> None:
        """What nothing beats in any domain comes first, for the certificate asks for it again.
        Of a small gang the rest of the search takes no longer than a proof on this one alone."""
        common: Sequence[int] = ()
        if tier and self._everywhere is not None:
            common = common_room(self._fabric, self._everywhere, tier, self._grid.size)
        if not common or max(common) > SMALL_DOMAIN:  # proved there against the final cut
            packer.bound(self._regions.proved(room, packer.cost))
            return
        packer.bound(self._regions.proved(common, packer.cost))
        if not packer.is_done and self._grid.size > SMALL:
            packer.bound(self._regions.proved(room, packer.cost))

    def _seat(self, region: Region, layout: Layout, numbers: Ints, free: Ints) -> None:
        """Blocks of each innermost domain onto its hosts, both in ascending order."""
        domain = self._fabric.tiers[-1].domain_by_host[free]
        position = {int(number): label for label, number in enumerate(numbers)}
        label_by_host = np.array([position.get(int(d), -1) for d in domain])
        labels = layout[region]
        seats = np.empty(len(labels), dtype=np.int64)
        seats[np.argsort(labels, kind="stable")] = _first_of_each(
            free, label_by_host, np.bincount(labels, minlength=len(numbers))
        )
        self.host[region] = seats


def _regions(grid: BlockGrid, request: Request | None, gpus_per_host: int) -> Regions:
    has_shape = grid.rows > 1 or bool(grid.slice_axes)
    if has_shape or request is None:
        return GridRegions(grid)
    return GraphRegions(request, gpus_per_host)


def _first_of_each(hosts: Ints, labels: Ints, wanted: npt.NDArray[np.int64]) -> Ints:
    """The first wanted[k] hosts with label k, for k = 0, 1, .. one after the other."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    sorted_labels = labels[order]
    starts = np.searchsorted(sorted_labels, np.arange(len(wanted)))
    rank = np.arange(len(order)) - starts[sorted_labels]
    return np.asarray(hosts[order[rank < wanted[sorted_labels]]])
