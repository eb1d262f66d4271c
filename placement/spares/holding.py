"""Which hosts to hold as spares beside a gang: same zone first, not two under one ToR or behind one
power feed."""

from __future__ import annotations

import numpy as np

from muster.structs import struct
from placement.fabric.hostset import Mask, members
from placement.fabric.labels import POWER
from placement.fabric.tree import Fabric, Ints, nth_of_each, sizes_of
from placement.spares.sizing import BY_DEFAULT, Sizing
from placement.workload.request import Request


@struct(frozen=True, slots=True)
class Holding:
    """Spares of a gang. `elsewhere`: spares outside the gang's zones."""

    spares: tuple[int, ...]
    wished: int
    elsewhere: int

    @property
    def lacking(self) -> int:
        """Number of spares that the gang's zones lack."""
        return self.wished - len(self.spares) + self.elsewhere


def wished_spares(
    request: Request, gang: int, most_spares: int, sizing: Sizing, blocks: int, zone: int | None
) -> int:
    """Return how many spares a zone with so many blocks of the gang should keep, whole racks
    aside. `zone`: None where it may be any."""
    if request.spares.is_auto:
        return min(most_spares, sizing.spares_needed(blocks, zone))
    return min(most_spares, -(-request.spares.required(gang) * blocks // gang))


def reserve_by_zone(
    request: Request,
    capacities: list[int],
    gang: int,
    most_spares: int,
    sizing: Sizing = BY_DEFAULT,
) -> list[int]:
    """Return the spares that each zone should keep if the gang fills it, before it is placed.
    `capacities`: of every zone, or of one that may be any."""
    if request.spares.hosts == 0:
        return [0] * len(capacities)
    zones = range(len(capacities)) if len(capacities) > 1 else [None]
    return [
        min(room, wished_spares(request, gang, most_spares, sizing, min(room, gang), zone))
        for zone, room in zip(zones, capacities, strict=True)
    ]


def standing_by(
    fabric: Fabric, request: Request, free: Ints, gang: int, most_spares: int, sizing: Sizing
) -> Ints:
    """Return the free hosts that each zone keeps as spares, however large the part of the gang
    that it takes. Shape: (hosts,).

    Whole racks that the sizing asks for are kept from the last one on, single hosts where a rack
    has few free.
    """
    zone_of = fabric.tiers[0].domain_by_host if fabric.tiers else np.zeros(fabric.host_count, int)
    room = np.bincount(zone_of[free], minlength=int(zone_of.max()) + 1)
    wishes = reserve_by_zone(request, room.tolist(), gang, most_spares, sizing)
    racks = _choose_racks(fabric, free, zone_of, np.ones_like(room), sizing, is_last=True)
    kept = [host for hosts in racks.values() for host in hosts]
    others = _by_preference(fabric, np.setdiff1d(free, kept), np.empty(0, dtype=np.int64))
    for zone in np.flatnonzero(room).tolist():
        kept += others[zone_of[others] == zone][: wishes[zone]].tolist()
    return np.array(kept, dtype=np.int64)


def hold_spares(
    fabric: Fabric,
    request: Request,
    free: Ints,
    hosts: tuple[int, ...],
    most_spares: int,
    sizing: Sizing = BY_DEFAULT,
    at: int = 0,
) -> Holding:
    """Choose spares for a gang on `hosts`, out of the `free` hosts that it leaves.

    Each zone of the gang holds its own; what a zone lacks is held in the gang's other zones, then
    in other zones with most room, wholly free ones last. Order: zone by zone, whole racks that are
    asked for first. `at`: the tier whose domains are such zones: that of its segments, where a gang
    has some, for a spare elsewhere can replace no host of them.
    """
    nothing = Holding((), 0, 0)
    if request.spares.hosts == 0:
        return nothing
    gang = np.asarray(hosts, dtype=np.int64)
    zone_of = fabric.tiers[at].domain_by_host if fabric.tiers else np.zeros(fabric.host_count, int)
    hosts_in = np.bincount(zone_of)
    used = np.bincount(zone_of[gang], minlength=len(hosts_in))
    left = np.setdiff1d(free, gang, assume_unique=True)
    is_auto = request.spares.is_auto
    racks = _choose_racks(fabric, left, zone_of, used, sizing) if is_auto and not at else {}
    wishes = _wishes(request, used, len(hosts), sizing, is_outer=not at)
    for zone, rack in racks.items():
        wishes[zone] += len(rack)
    if not sum(wishes):
        return nothing
    left_in = np.bincount(zone_of[left], minlength=len(hosts_in))
    if at and is_auto:  # a spare serves its own domain and no other
        left_in = np.where(used, np.minimum(left_in, wishes), 0)
    held = _shared(wishes, min(sum(wishes), most_spares), used, left_in, left_in == hosts_in)
    queue = _by_preference(fabric, left, gang)
    spares: list[int] = []
    for zone, count in enumerate(held):
        first = racks.get(zone, [])
        rest = queue[(zone_of[queue] == zone) & ~np.isin(queue, first)].tolist()
        spares += [*first, *rest][:count]
    elsewhere = sum(count for count, n in zip(held, used, strict=True) if not n)
    return Holding(tuple(spares), sum(wishes), elsewhere)


def _wishes(
    request: Request, used: Ints, gang: int, sizing: Sizing, is_outer: bool = True
) -> list[int]:
    """Spares wished for in each zone; an exact number is shared out by hosts used. `is_outer`:
    zones are those that share their spares with other gangs."""
    if request.spares.is_auto:
        zones = enumerate(used)
        return [sizing.spares_needed(int(n), z if is_outer else None) if n else 0 for z, n in zones]
    total = request.spares.required(gang)
    shares = [total * int(n) // gang for n in used]
    by_remainder = sorted(range(len(used)), key=lambda z: (-(total * int(used[z]) % gang), z))
    for zone in by_remainder[: total - sum(shares)]:
        shares[zone] += 1
    return shares


def _choose_racks(
    fabric: Fabric, left: Ints, zone_of: Ints, used: Ints, sizing: Sizing, *, is_last: bool = False
) -> dict[int, list[int]]:
    """By zone of the gang, the hosts of wholly free racks that the sizing asks for, as many
    as there are: the first, or the last."""
    if not sizing.racks or len(fabric.tiers) < 2:
        return {}
    rack_of = fabric.tiers[-1].domain_by_host
    size, free = np.bincount(rack_of), np.bincount(rack_of[left], minlength=rack_of.max() + 1)
    whole = left[(free == size)[rack_of[left]]]
    hosts_by_zone = {}
    for zone in np.flatnonzero(used).tolist():
        here = whole[zone_of[whole] == zone]
        racks = np.unique(rack_of[here])
        racks = racks[-sizing.racks :] if is_last else racks[: sizing.racks]
        hosts_by_zone[zone] = here[np.isin(rack_of[here], racks)].tolist()
    return hosts_by_zone


def _shared(wishes: list[int], total: int, used: Ints, left_in: Ints, is_whole: Mask) -> list[int]:
    """Spares held in each zone: its wish if it can, the rest where there is room."""
    held = [0] * len(wishes)
    missing = total
    for zone, wish in enumerate(wishes):
        held[zone] = min(wish, int(left_in[zone]), missing)
        missing -= held[zone]
    by_room = np.lexsort((np.arange(len(wishes)), np.array(held) - left_in, is_whole, used == 0))
    for zone in by_room.tolist():
        more = min(missing, int(left_in[zone]) - held[zone])
        held[zone] += more
        missing -= more
    return held


def _by_preference(fabric: Fabric, left: Ints, gang: Ints) -> Ints:
    """`left` reordered: one host per ToR before any second one, crowded ToRs first; and in each
    zone one behind each power feed before a second one, for what a feed takes with it needs
    spares that it does not take.

    A rack with one host free serves no pair of ranks, so it is spent first; a wholly free
    one serves the next gang best, so it is spent last. On an NVLink rack those that the gang
    is in come before all others: elsewhere a spare is reached over network cards alone.
    """
    if len(fabric.tiers) < 2 or not len(left):
        return left
    tier = fabric.tiers[-1]
    rack, nth_in_rack = tier.domain_by_host[left], tier.nth(left)
    free_in_rack = tier.count(left)[rack]
    is_whole = free_in_rack == sizes_of(tier)[rack]
    is_apart = np.zeros(len(left), dtype=bool)
    if fabric.has_scale_up_tier:
        is_apart = ~np.isin(rack, tier.domain_by_host[gang])
    order = np.lexsort((left, free_in_rack, is_whole, nth_in_rack, is_apart))
    return _by_feed(fabric, left[order], is_apart[order])


def _by_feed(fabric: Fabric, queue: Ints, is_apart: Mask) -> Ints:
    """The queue with the feeds of each zone in turns; unlabelled hosts are behind one feed."""
    if POWER not in fabric.labels:
        return queue
    feed_of = np.zeros(fabric.host_count, dtype=np.int64)
    for feed, hosts in enumerate(fabric.labels[POWER].values(), 1):
        feed_of[list(members(hosts))] = feed
    zone = fabric.tiers[0].domain_by_host[queue]
    group = zone * (int(feed_of.max()) + 1) + feed_of[queue]
    turn = np.empty(len(queue), dtype=np.int64)
    by_group = np.argsort(group, kind="stable")
    turn[by_group] = nth_of_each(group[by_group])
    return queue[np.lexsort((np.arange(len(queue)), turn, is_apart))]
