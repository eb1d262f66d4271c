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

from placement.fabric import Fabric, Ints
from placement.grid import BlockGrid
from placement.layout import Layout
from placement.pack import FEW, Packer, sliced
from placement.regions import GraphRegions, GridRegions, Regions
from placement.request import Request
from placement.slicing import Region

FIRST_WALKS, MORE_WALKS = (2, 5), (16, 24)  # cut at a time, before and after the proof


@dataclass(frozen=True, slots=True)
class Effort:
    """Work on one region, counted: slicing trees, orders of domains, rounds of annealing and
    proposals per block in each."""

    trees: int = 60
    orders: int = 60
    per_block: int = 100
    rounds: int = 6

    def limited(self, trees: int, gang: int) -> Effort:
        """No more trees than allowed, and less annealing for a large gang."""
        per_block = min(self.per_block, MOST_PROPOSALS // gang)
        rounds = min(self.rounds, MOST_PROPOSALS // max(1, per_block * gang))
        return replace(self, trees=min(trees, self.trees), per_block=per_block, rounds=rounds)


MOST_PROPOSALS = 120_000  # in all the rounds
GANG = Effort()
SMALL_GANG = Effort(trees=15, orders=8, per_block=40, rounds=1)
SMALL = 64  # blocks of a small gang
PART = Effort(trees=15, orders=15, per_block=25, rounds=0)  # outer tiers decide more


class Descent:
    """Assigns hosts to the blocks of one grid; `host` holds the answer by row and slot.

    `grids`: the same grid with its slots in other orders, in which inner tiers may be
    packed better than in the order that suits the outermost one. `request`: of a gang
    whose ranks form no grid; without it the blocks stay in order.
    """

    def __init__(
        self,
        fabric: Fabric,
        grid: BlockGrid,
        tries: int,
        grids: Sequence[BlockGrid] = (),
        request: Request | None = None,
    ) -> None:
        self._fabric = fabric
        self._grid = grid
        self._orders = [(other, _slots_of(grid, other)) for other in grids or [grid]]
        self._trees = tries
        self._packed_before: list[tuple[bytes, list[int], list[int]]] = []
        self._regions = _regions(grid, request, fabric.gpus_per_host)
        self.host = np.full((grid.rows, grid.width), -1, dtype=np.int64)

    def into_zones(self, layout: Layout, free: Ints) -> None:
        """Every zone of `layout` carries its part on its own `free` hosts."""
        zone = self._fabric.tiers[0].domain_by_host[free]
        for number in np.unique(layout):
            self.into(layout == number, free[zone == number], 1)

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
        layout = self._packed(region, room.tolist())
        if tier + 1 == len(self._fabric.tiers):
            self._seat(region, layout, children, free)
            return
        for label, number in enumerate(children):
            part = layout == label
            if part.any():
                self.into(part, free[domain == number], tier + 1)

    def _packed(self, region: Region, room: list[int]) -> Layout:
        """The child of each block of `region`, as an index into `room`; -1 elsewhere."""
        regions = self._regions
        least = regions.least(region, room)
        packer = Packer(regions.graph(region), regions.walks(region), room, least)
        packer.walk(FIRST_WALKS)
        if self._trees and not packer.is_done:
            self._search(packer, region, room)
        layout = np.full(region.shape, -1, dtype=np.int64)
        layout[region] = packer.packing()
        return layout

    def _search(self, packer: Packer, region: Region, room: list[int]) -> None:
        """From cheap to dear, and beginning with how the same region was packed elsewhere."""
        roomiest = sorted(room, reverse=True)
        mine = region.tobytes()
        had_as_much = False
        for other, its_room, at in self._packed_before:
            if other == mine:
                packer.try_parts(at)
                pairs = zip_longest(its_room, roomiest, fillvalue=0)
                had_as_much |= all(had >= free for had, free in pairs)
        is_whole = bool(region.all())
        effort = SMALL_GANG if self._grid.size <= SMALL else GANG
        if not is_whole or had_as_much:
            effort = PART
        effort = effort.limited(self._trees, self._grid.size)
        if is_whole and not packer.is_done:
            packer.bound(self._regions.proved(room, packer.cost))
        packer.walk(MORE_WALKS)
        packer.climb(effort.orders)
        self._slice(packer, region, room, effort.trees)
        packer.anneal(effort.per_block, effort.rounds)
        self._packed_before.append((mine, roomiest, packer.packing()))

    def _slice(self, packer: Packer, region: Region, room: list[int], trees: int) -> None:
        """Slicing trees over few children, with the slots in every order."""
        if len(room) > FEW or not isinstance(self._regions, GridRegions):
            return
        for grid, slots in self._orders:
            if packer.is_done:
                return
            in_place = np.empty(region.shape, dtype=np.int64)
            in_place[:, slots] = sliced(grid, region[:, slots], room, trees, 0)
            packer.offer(in_place[region].tolist())

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


def _slots_of(grid: BlockGrid, other: BlockGrid) -> Ints:
    """For each slot of `other` the slot of `grid` that holds the same block."""
    slot = np.empty(int(grid.block[0].max()) + 1, dtype=np.int64)
    slot[grid.block[0]] = np.arange(grid.width)
    return np.asarray(slot[other.block[0]])


def _first_of_each(hosts: Ints, labels: Ints, wanted: npt.NDArray[np.int64]) -> Ints:
    """The first wanted[k] hosts with label k, for k = 0, 1, .. one after the other."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    sorted_labels = labels[order]
    starts = np.searchsorted(sorted_labels, np.arange(len(wanted)))
    rank = np.arange(len(order)) - starts[sorted_labels]
    return np.asarray(hosts[order[rank < wanted[sorted_labels]]])
