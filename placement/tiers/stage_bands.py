"""Blocks of several pipeline stages side by side in innermost domains, alike in all of them.

What a step waits for between two stages is the busiest link of that hop, so one rack with other
stages than the rest undoes what all others gain, and no price of a byte tells. Here stages are
parted into *bands*, the same for all replicas. A band's blocks, replica by replica, fill one
domain after the other: hops inside a band stay inside racks of NVLink, and a thin uplink is met
by few blocks of each hop. Of 42 gangs of bench-time's seeds 102 to 104 on NVLink racks and thin
uplinks 12 step 0.3 to 8 % faster with these layouts, one 0.2 % slower, in a third less time.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import BlockGrid

MOST_BANDED = 6  # layouts in bands that are tried, where so many slots share racks

Run = tuple[int, int, int]  # a band, and the first and the number of its blocks in one domain


def banded_layouts(
    fabric: Fabric, grid: BlockGrid, free: Ints, hosts: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Yield layouts of the gang in bands of stages on the free hosts. On NVLink racks, bands fill
    racks wherever these are, those first that split the fewest hops. Elsewhere they lie in the
    domains outside the innermost ones that `hosts` have, with as many blocks in each, or as whole
    tiles fill these domains, those first that are nearest to squares."""
    if not fabric.tiers or grid.rows < 2:
        return
    gang, has_racks = _Gang(fabric, grid, free), fabric.has_scale_up_tier
    for together in _slots_together(grid, gang.most) if has_racks else [1]:
        whole, parted = list[Ints](), list[Ints]()
        for heights in _bandings(grid.rows, gang.most, together, has_racks):
            quanta = [height * together if has_racks else 1 for height in heights]
            for zones in gang.zones(hosts, heights):
                at, count = gang.laid_out(zones, heights, quanta)
                (parted if has_racks and count else whole).append(at)
            if len(whole) >= MOST_BANDED:
                break
        for at in [*whole, *parted][:MOST_BANDED]:
            yield tuple(at.tolist())


class _Gang:
    """A gang on free hosts. `most`: hosts of an innermost domain that are free."""

    def __init__(self, fabric: Fabric, grid: BlockGrid, free: Ints) -> None:
        tiers = fabric.tiers
        self._free, self._domain = free, tiers[-1].domain_by_host
        self._outer = np.zeros(fabric.host_count, dtype=np.int64)
        if len(tiers) > 1 and not fabric.has_scale_up_tier:
            self._outer = tiers[-2].domain_by_host
        slots, rows = np.arange(grid.width), np.arange(grid.rows)[:, None]
        self._slots = grid.by_block(np.broadcast_to(slots, grid.block.shape))
        self._rows = grid.by_block(np.broadcast_to(rows, grid.block.shape))
        self._in_order = np.lexsort((self._rows, self._slots))
        self.most = int(tiers[-1].count(free).max())

    def zones(self, hosts: Sequence[int], heights: Sequence[int]) -> Iterator[Ints]:
        """The domains outside the innermost ones by block: those of `hosts`, and the roomiest in
        the order of names, filled by whole tiles of one band as large as an innermost domain."""
        yield self._outer[np.asarray(hosts)]
        if not self._outer.any():
            return
        wide = max(1, self.most // max(heights))
        band = np.repeat(np.arange(len(heights)), heights)[self._rows]
        tiled = np.lexsort((self._rows, self._slots, band, self._slots // wide))
        room, tile = np.bincount(self._outer[self._free]), max(heights) * wide
        whole = room // tile * tile
        roomiest = np.argsort(-room, kind="stable")
        many = int(np.searchsorted(whole[roomiest].cumsum(), len(tiled))) + 1
        used = np.sort(roomiest[:many])
        zone = np.repeat(used, whole[used])
        zone = np.concatenate([zone, np.repeat(np.arange(len(room)), room - whole)])
        layout = np.empty(len(tiled), dtype=np.int64)
        layout[tiled] = zone[: len(tiled)]
        yield layout

    def laid_out(
        self, zones: Ints, heights: Sequence[int], quanta: Sequence[int]
    ) -> tuple[Ints, int]:
        """Return the host of each block, and how many `quanta` of blocks, by band, are parted."""
        at, parted = np.empty(len(zones), dtype=np.int64), 0
        band = np.repeat(np.arange(len(heights)), heights)[self._rows]
        for zone in np.unique(zones):
            inside = self._in_order[zones[self._in_order] == zone]
            room = self._free[self._outer[self._free] == zone]
            bands = [inside[band[inside] == number] for number in range(len(heights))]
            parted += _fill(at, bands, quanta, room, self._domain[room])
        return at, parted


def _slots_together(grid: BlockGrid, most: int) -> list[int]:
    """Slots whose blocks may share a domain of `most` hosts: groups of no axis, of the dearest, of
    the two dearest, and so on."""
    products = accumulate((axis.size for axis in grid.slice_axes), mul, initial=1)
    return sorted({slots for slots in products if slots <= most})


def _bandings(rows: int, most: int, together: int, has_racks: bool) -> list[tuple[int, ...]]:
    """Heights of bands, the lowest first: equal ones, those first that make a domain of `most`
    hosts a square; or, in racks of NVLink, also some of as many rows as a rack holds of so many
    slots beside lower ones that share racks, the fewest bands first."""
    tallest, found = min(most // together, rows), set[tuple[int, ...]]()
    for many in range(rows // tallest + 1 if has_racks else 1):
        rest = rows - many * tallest
        for height in range(1, tallest + 1):
            last = [rest % height] * (rest % height > 0)
            lower = [height] * (rest // height)
            found.add(tuple(sorted([*last, *lower, *([tallest] * many)])))
    if has_racks:
        return sorted(found, key=lambda heights: (len(heights), heights))
    return sorted(found, key=lambda heights: (abs(max(heights) ** 2 - most), heights))


def _fill(at: Ints, bands: Sequence[Ints], quanta: Sequence[int], free: Ints, domain: Ints) -> int:
    """Give the blocks of each band hosts, domain by domain; return how many quanta are parted.
    `at`: takes the host of each block. `domain`: of each of the `free` hosts.

    Domains with parts of the same replicas come one after the other, in the order of names, so
    that zones are cut little.
    """
    by_domain = np.argsort(domain, kind="stable")
    free = free[by_domain]
    _, first, room = np.unique(domain[by_domain], return_index=True, return_counts=True)
    dealt, parted = _deal([len(band) for band in bands], quanta, room.tolist())
    for size in np.unique(room):
        alike = np.flatnonzero(room == size).tolist()
        filled = [dealt[number] for number in alike if dealt[number]]
        filled.sort(key=lambda runs: runs[0][1] / len(bands[runs[0][0]]))
        for number, runs in zip(alike, filled, strict=False):
            host = int(first[number])
            for band, begin, count in runs:
                at[bands[band][begin : begin + count]] = free[host : host + count]
                host += count
    return parted


def _deal(
    sizes: Sequence[int], quanta: Sequence[int], rooms: Sequence[int]
) -> tuple[list[list[Run]], int]:
    """Share domains out among bands, whole quanta first, the roomiest domain and the largest
    quantum first; only what is left of bands at the end shares a domain unless quanta leave room.
    Return the runs of each domain, and how many quanta are parted."""
    left, room = list(sizes), list(rooms)
    dealt: list[list[Run]] = [[] for _ in rooms]

    def give(number: int, band: int, count: int) -> None:
        dealt[number].append((band, sizes[band] - left[band], count))
        left[band] -= count
        room[number] -= count

    largest_first = sorted(range(len(sizes)), key=lambda band: -quanta[band])
    roomiest_first = sorted(range(len(rooms)), key=lambda number: -rooms[number])
    for number in roomiest_first:
        for band in largest_first:
            quantum = quanta[band]
            count = min(left[band], room[number]) // quantum * quantum
            if count and (quantum > 1 or count == room[number]):
                give(number, band, count)
    parted = sum(-(-n // quantum) for n, quantum in zip(left, quanta, strict=True))
    for band in sorted(range(len(sizes)), key=lambda band: -left[band]):
        while left[band]:
            unused = [k for k in roomiest_first if room[k] >= left[band] and not dealt[k]]
            number = unused[-1] if unused else max(roomiest_first, key=room.__getitem__)
            give(number, band, min(left[band], room[number]))
    return dealt, parted
