"""Which hosts to hold as spares beside a gang: same zone first, not two under one ToR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fabric import Fabric, Ints
from placement.hostset import Mask
from placement.request import Request
from placement.spares import size_spares


@dataclass(frozen=True, slots=True)
class Holding:
    """`wished`: what the rule asks for. `elsewhere`: spares outside the gang's zones."""

    spares: tuple[int, ...]
    wished: int
    elsewhere: int


def reserve_by_zone(
    request: Request, capacities: list[int], gang: int, most_spares: int
) -> list[int]:
    """Spares that each zone should keep if the gang fills it, before it is placed."""
    return [
        min(capacity, most_spares, _wish(request, min(capacity, gang), gang))
        for capacity in capacities
    ]


def _wish(request: Request, hosts: int, gang: int) -> int:
    """Spares for `hosts` hosts of the gang in one zone."""
    rule = request.spares
    if rule.is_auto:
        return size_spares(hosts)
    return -(-rule.required(gang) * hosts // gang)


def hold_spares(
    fabric: Fabric, request: Request, free: Ints, hosts: tuple[int, ...], most_spares: int
) -> Holding:
    """Spares for a gang on `hosts`, out of the `free` hosts it leaves.

    Each zone of the gang holds its own; what a zone lacks is held in the gang's other
    zones, then in other zones with most room, wholly free ones last. Order: zone by zone,
    then by host.
    """
    gang = np.asarray(hosts, dtype=np.int64)
    zone_of = fabric.tiers[0].domain_by_host if fabric.tiers else np.zeros(fabric.host_count, int)
    zones = len(fabric.tiers[0].domains) if fabric.tiers else 1
    used = np.bincount(zone_of[gang], minlength=zones)
    wishes = _wishes(request, used, len(hosts))
    if not sum(wishes):
        return Holding((), 0, 0)
    left = np.setdiff1d(free, gang, assume_unique=True)
    total = min(sum(wishes), most_spares)
    left_in = np.bincount(zone_of[left], minlength=zones)
    is_whole = left_in == np.bincount(zone_of, minlength=zones)
    held = _shared(wishes, total, used, left_in, is_whole)
    queue = _by_preference(fabric, left)
    spares: list[int] = []
    for zone in range(zones):
        spares += queue[zone_of[queue] == zone][: held[zone]].tolist()
    elsewhere = sum(held[zone] for zone in range(zones) if not used[zone])
    return Holding(tuple(spares), sum(wishes), elsewhere)


def _wishes(request: Request, used: Ints, gang: int) -> list[int]:
    """Spares wished for in each zone; an exact number is shared out by hosts used."""
    if request.spares.is_auto:
        return [size_spares(int(n)) if n else 0 for n in used]
    total = request.spares.required(gang)
    shares = [total * int(n) // gang for n in used]
    by_remainder = sorted(range(len(used)), key=lambda z: (-(total * int(used[z]) % gang), z))
    for zone in by_remainder[: total - sum(shares)]:
        shares[zone] += 1
    return shares


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


def _by_preference(fabric: Fabric, left: Ints) -> Ints:
    """`left` reordered: one host per ToR before any second one, crowded ToRs first.

    A rack with one host free serves no pair of ranks, so it is spent first; a wholly free
    one serves the next gang best, so it is spent last.
    """
    if len(fabric.tiers) < 2 or not len(left):
        return left
    rack = fabric.tiers[-1].domain_by_host[left]
    free_in_rack = np.bincount(rack)[rack]
    is_whole = free_in_rack == np.bincount(fabric.tiers[-1].domain_by_host)[rack]
    first_of_rack = np.searchsorted(rack, rack)
    nth_in_rack = np.arange(len(left)) - first_of_rack
    return left[np.lexsort((left, free_in_rack, is_whole, nth_in_rack))]
