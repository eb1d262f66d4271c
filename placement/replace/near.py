"""Placing a gang again, near where it is: after failures, or once room has come free.

A block stays when its old host is free and its zone is the old one, so how many blocks
move is decided by zones alone. Three ways lead to layouts near the old one:

- *repaired*: hosts that are gone are swapped one by one; nothing moves that need not;
- *polished*: from there, what two zones hold is sliced anew where that cuts less;
- *renamed*: the best layout found afresh, turned along its axes and with its zones
  exchanged so that most blocks find their old zone. Neither changes the cut: rings have
  no beginning, chains read the same backwards.

The answer moves the fewest blocks among those of the least cut over the outermost tier,
or of a cut that the hint's `slack` still allows. Cuts on inner tiers come after moves.
See docs/engine.md, "Near an old placement".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import TypeVar

import numpy as np

from muster.structs import struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import joinable, with_gang_view
from placement.fabric.hostset import HostSet, Mask
from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import BlockGrid, block_axes, block_grid
from placement.grid.isoperimetry import BlockAxis
from placement.grid.layout import Layout, layout_cost
from placement.objective.cut import cut
from placement.replace.swaps import choose_swaps
from placement.search.graph_slicing import slice_grid
from placement.search.portfolio import Incumbent
from placement.solver import assign
from placement.tiers.objectives import like_zones, measure
from placement.tiers.seating import Descent, Hosts
from placement.tiers.step_clock import RESOLUTION, step_clock
from placement.workload.request import UNSEARCHED, Limits, Objective, Request
from placement.workload.traffic import Pattern

Option = TypeVar("Option")
MOST_PAIRS = 40  # of zones that are sliced anew
MOST_ZONES = 1_000  # beyond that they are not exchanged


@struct(frozen=True, slots=True)
class Hint:
    """An old placement, near which a gang is placed: its hosts in block order; -1 for a host that
    no longer exists.

    `slack`: share by which the cut may exceed the best one found if fewer blocks move.
    """

    hosts: Hosts
    slack: float = 0.0

    def check(self, gang: int, fabric: Fabric) -> None:
        """Refuse a hint that is no placement of `gang` blocks on the fabric. Raises: BadInput."""
        if len(self.hosts) != gang:
            raise BadInput(
                "near", f"the old placement is of {len(self.hosts):,}, the job of {gang:,} hosts"
            )
        known = [host for host in self.hosts if host >= 0]
        if len(set(known)) != len(known):
            raise BadInput("near", "the old placement names a host twice")
        if max(known, default=0) >= fabric.host_count:
            raise BadInput(
                "near", f"the old placement names a host that {fabric.name} does not have"
            )
        if not self.slack >= 0:
            raise BadInput("near", f"slack must not be negative, is {self.slack}")

    def count_moved(self, hosts: Hosts) -> int:
        """Count the blocks that are on another host now."""
        return sum(new != old for new, old in zip(hosts, self.hosts, strict=True))


class Near:
    """Finds layouts of one gang near an old one. `free`: host indices, ascending."""

    def __init__(self, fabric: Fabric, request: Request, free: Ints, hint: Hint) -> None:
        self._fabric = fabric
        self._request = request
        self._free = free
        self._old = np.asarray(hint.hosts, dtype=np.int64)
        self._is_here: Mask = np.isin(self._old, free)
        self._zone_of = np.zeros(fabric.host_count, dtype=np.int64)
        self._zones = 1
        if fabric.tiers:
            self._zone_of = fabric.tiers[0].domain_by_host
            self._zones = len(fabric.tiers[0].domains)
        self._room = np.bincount(self._zone_of[free], minlength=self._zones)
        self._old_zone = np.where(self._is_here, self._zone_of[self._old], -1)
        self._grid = block_grid(request, fabric.gpus_per_host)
        self._kind = like_zones(fabric, request)
        self._slack = hint.slack
        self._moved = hint.count_moved

    @cached_property
    def swapped(self) -> Hosts | None:
        """The old hosts, with each lost host swapped for the free one that adds the least cut."""
        lost = np.flatnonzero(~self._is_here)
        stays = self._old[self._is_here]
        if not len(stays):
            return None
        others = hostset.of(np.setdiff1d(self._free, stays).tolist())
        now = self._with_stand_ins()
        swaps = choose_swaps(
            self._fabric, self._request, now.tolist(), lost.tolist(), hostset.of(()), others
        )
        if swaps is None:
            return None
        for block, host in swaps.joined:
            now[block] = host
        return tuple(now.tolist())

    def options(self, fresh: Sequence[Ints], bound: int, limits: Limits) -> list[Hosts]:
        """Return placements near the old one that tie on moves and, within `slack`, on the
        objective.

        `fresh`: the zone of each block in the best layouts with no regard to the old one; `bound`:
        bytes over the outermost tier that no placement cuts fewer than.
        """
        swapped = self.swapped
        if swapped is None:
            choices = self._chosen([self._renamed(zones) for zones in fresh])
            return [self.seated(zones) for zones in choices]
        if self._request.objective is Objective.CUT and self._cut(swapped) <= bound:
            return [swapped]
        zones = self._zone_of[list(swapped)]
        layouts = [zones, *self._polished(zones, limits), *map(self._renamed, fresh)]
        chosen = self._chosen(layouts)
        return [swapped if z is zones else self.seated(z) for z in chosen]

    def in_time(self, fresh: Sequence[Hosts], limits: Limits) -> list[Hosts]:
        """Return options for the step time, for which hosts inside zones count. `fresh`: the best
        placements with no regard to the old one; empty: none where no swap can be had."""
        clock, swapped = step_clock(self._fabric, self._request), self.swapped
        candidates = [] if swapped is None else [swapped]
        if swapped is not None and clock.excess(swapped):
            polished = list(self._polished(self._zone_of[list(swapped)], limits))
            candidates += map(self.seated, polished[-1:])
        elif swapped is not None:
            return candidates
        for hosts in fresh:
            candidates += [self.seated(self._renamed(self._zone_of[list(hosts)])), hosts]
        delays, moves = [clock.excess(h) for h in candidates], [self._moved(h) for h in candidates]
        most = (RESOLUTION + min(delays)) * (1 + self._slack) - RESOLUTION
        return _fewest_moves(candidates, moves, delays, max(most, min(delays)))

    def _chosen(self, layouts: Sequence[Ints]) -> list[Ints]:
        """The options that move the fewest blocks, of those whose cut, or whatever else is
        minimised, is the least or allowed."""
        values = [self._value(zones) for zones in layouts]
        moves = [int((zones != self._old_zone).sum()) for zones in layouts]
        most = min(values) + self._slack * min(values) if self._slack else min(values)
        return _fewest_moves(layouts, moves, values, most)

    def _value(self, zone_by_block: Ints) -> float | int:
        """Return the value of the objective, which hosts inside the zones do not change."""
        some_host = np.zeros(self._zones, dtype=np.int64)
        some_host[self._zone_of[self._free]] = self._free
        hosts = some_host[zone_by_block].tolist()
        cuts = cut(self._fabric, self._request, hosts)
        return measure(self._fabric, self._request, hosts, cuts)

    def _cut(self, hosts: Hosts) -> int:
        cuts = cut(self._fabric, self._request, hosts)
        return cuts[0].bytes_per_step if cuts else 0

    def notes(self, hosts: Hosts) -> list[str]:
        """Say how much worse the objective would be than on `hosts` if no more than the lost blocks
        moved."""
        if self.swapped is None or self._moved(self.swapped) == self._moved(hosts):
            return []
        moved = self._moved(self.swapped)
        lost = "the lost host" if moved == 1 else f"the {moved:,} lost hosts"
        change = f"swapping {lost} alone" if moved else "keeping every host"
        if self._request.objective is Objective.TIME:
            clock = step_clock(self._fabric, self._request)
            slower = clock.step(self.swapped).seconds / clock.step(hosts).seconds - 1
            return [f"{change} would make a step {100 * slower:.1f} % longer"]
        now, then = self._cut(hosts), self._cut(self.swapped)
        ratio = f"{then / now:.3g} times as much" if now else "more than nothing"
        return [f"{change} would cut {ratio}"]

    def _with_stand_ins(self) -> Ints:
        """A host that no longer exists counts as its neighbour's until it is swapped."""
        exists = np.flatnonzero(self._old >= 0)
        at = np.searchsorted(exists, np.arange(len(self._old)), side="right") - 1
        return np.where(self._old >= 0, self._old, self._old[exists[np.maximum(at, 0)]])

    def _polished(self, zone_by_block: Ints, limits: Limits) -> Iterator[Ints]:
        """Ever smaller cuts, two zones at a time, the longest boundaries first."""
        grid = self._grid
        if grid is None or not limits.trees:
            return
        layout: Layout = zone_by_block[grid.block]
        best = Incumbent(layout, layout_cost(grid, layout), 0)
        for pair in _neighbours(layout, self._zones)[:MOST_PAIRS]:
            other = self._sliced_anew(grid, best.layout, pair, limits.trees // MOST_PAIRS)
            before, best = best, best.offer(other, layout_cost(grid, other))
            if best is not before:
                yield grid.by_block(best.layout)

    def _sliced_anew(
        self, grid: BlockGrid, layout: Layout, pair: tuple[int, int], tries: int
    ) -> Layout:
        region = np.isin(layout, pair)
        room = [int(n) if z in pair else 0 for z, n in enumerate(self._room)]
        part = slice_grid(grid, room, tries, 0, region=region)
        return np.asarray(np.where(region, part, layout))

    def _renamed(self, zone: Ints) -> Ints:
        """Turned and with zones exchanged to meet the old ones."""
        if self._zones > MOST_ZONES:
            return zone
        axes = block_axes(self._request, self._fabric.gpus_per_host) or ()
        kept, best = self._exchanged(zone)
        for axis in sorted(axes, key=lambda a: (-a.size, a.axis)):
            turns = [_turned(zone, axis, turn) for turn in _turns(axis)]
            most = [self._overlap(other).max(axis=1).sum() for other in turns]
            for i in np.argsort(-np.array(most), kind="stable"):
                if most[i] <= kept:
                    break
                renamed, exchanged = self._exchanged(turns[i])
                if renamed > kept:
                    kept, best, zone = renamed, exchanged, turns[i]
        return best

    def _overlap(self, zone: Ints) -> Ints:
        """Blocks by new zone and old zone. Shape: (zones, zones)."""
        key = zone * self._zones + self._old_zone
        key = key[self._is_here]
        return np.bincount(key, minlength=self._zones**2).reshape(self._zones, self._zones)

    def _exchanged(self, zone: Ints) -> tuple[int, Ints]:
        """Blocks that find their old zone, and the zones so named."""
        used = np.bincount(zone, minlength=self._zones)
        parts = np.flatnonzero(used)
        overlap = self._overlap(zone)[parts]
        fits = (used[parts, None] <= self._room[None, :]) & (
            self._kind[parts, None] == self._kind[None, :]
        )
        stays = parts[:, None] == np.arange(self._zones)[None, :]
        to = np.arange(self._zones)
        chosen = assign(np.where(fits, -2 * overlap - stays, 2 * len(zone) ** 2))
        if chosen is not None:
            to[parts] = chosen
        named = to[zone]
        return int((named == self._old_zone).sum()), np.asarray(named)

    def seated(self, zone_by_block: Ints) -> Hosts:
        """Return hosts for the blocks: their old hosts where the zone is the same, else hosts
        beside these."""
        stays = self._is_here & (zone_by_block == self._old_zone)
        grid = self._grid or BlockGrid.shapeless(len(stays))
        descent = Descent(self._fabric, grid, UNSEARCHED, self._request)
        others = np.setdiff1d(self._free, self._old[stays], assume_unique=True)
        depth = min(1, len(self._fabric.tiers))
        for zone in np.unique(zone_by_block[~stays]):
            region = (~stays & (zone_by_block == zone))[grid.block]
            descent.into(region, others[self._zone_of[others] == zone], depth)
        return tuple(np.where(stays, self._old, grid.by_block(descent.host)).tolist())


@with_gang_view
def placed_near(
    fabric: Fabric, request: Request, room: HostSet, hint: Hint, limits: Limits
) -> Hosts | None:
    """Place the gang on hosts of `room`, near where it was: hosts that are gone are swapped, and
    zones sliced anew two at a time. Nothing is proved of it; `place` looks further. None when too
    few hosts can be had for a swap."""
    stays = hostset.of(host for host in hint.hosts if host >= 0) & room
    room &= joinable(fabric, request.where, stays)
    near = Near(fabric, request, hostset.indices(room), hint)
    if near.swapped is None or request.where.has_segments:
        return near.swapped  # zones are sliced block by block, which parts segments
    is_by_time = request.objective is Objective.TIME
    return (near.in_time((), limits) if is_by_time else near.options((), 0, limits))[0]


@with_gang_view
def swapped_near(fabric: Fabric, request: Request, room: HostSet, hint: Hint) -> Hosts | None:
    """Return the hosts of the hint with those that are gone swapped for others of `room`, where
    least is cut; no block moves. None when too few hosts can be had."""
    return Near(fabric, request, hostset.indices(room), hint).swapped


@with_gang_view
def seated_near(
    fabric: Fabric, request: Request, room: HostSet, hint: Hint, zone_by_block: Ints
) -> Hosts:
    """Return the hosts of the gang with each block in this zone, out of `room`: on its old host
    where that is in the zone."""
    return Near(fabric, request, hostset.indices(room), hint).seated(zone_by_block)


def _fewest_moves(
    options: Sequence[Option], moves: Sequence[int], values: Sequence[float], most: float
) -> list[Option]:
    """The options that move the fewest blocks, of those whose value is at most so much."""
    may = [i for i, value in enumerate(values) if value <= most]
    fewest = min(moves[i] for i in may)
    return [options[i] for i in may if moves[i] == fewest]


def _neighbours(layout: Layout, zones: int) -> list[tuple[int, int]]:
    """Pairs of zones that touch, those with the longest boundary first."""
    length = np.zeros((zones, zones), dtype=np.int64)
    for left, right in ((layout[1:], layout[:-1]), (layout[:, 1:], layout[:, :-1])):
        np.add.at(length, (left, right), 1)
    length += length.T
    touching = [(a, b) for a, b in combinations(range(zones), 2) if length[a, b]]
    return sorted(touching, key=lambda pair: (-length[pair], pair))


def _turns(axis: BlockAxis) -> Sequence[tuple[int, bool]]:
    """(steps on, whether backwards) that leave the traffic along the axis as it is."""
    steps = [0] if axis.pattern is Pattern.CHAIN else range(axis.size)
    return [(step, back) for back in (False, True) for step in steps]


def _turned(zone: Ints, axis: BlockAxis, turn: tuple[int, bool]) -> Ints:
    block = np.arange(len(zone))
    at = block // axis.stride % axis.size
    step, is_back = turn
    to = ((axis.size - 1 - at if is_back else at) + step) % axis.size
    return np.asarray(zone[block + (to - at) * axis.stride])
