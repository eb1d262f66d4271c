"""Which single domain takes a gang that fits into one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.fabric import Fabric, Ints
from placement.pack import ranked

MOST_COMPARED = 64  # domains that are looked into
MOST_TRIED = 2  # domains whose inner cut is compared


def single_domains(fabric: Fabric, free: Ints, gang: int, room: int) -> list[tuple[Ints, int]]:
    """Free hosts of the domains that may take the whole gang, and the tier below them.

    On the deepest tier that has such a domain. Only those in a zone with `room` hosts for
    the gang and its spares, if there are any; of these the ones that need the fewest
    domains of the next tier, which decides what is cut there. Order: broken domains
    before wholly free ones, fewest free hosts first, tier by tier, then by name. Empty
    when no single domain holds the gang. Cost: O(free hosts).
    """
    if not fabric.tiers:
        return [(free, 0)]
    if all(len(tier.domains) == 1 for tier in fabric.tiers):
        return [(free, len(fabric.tiers))] if len(free) >= gang else []
    counts = [
        np.bincount(tier.domain_by_host[free], minlength=len(tier.domains)) for tier in fabric.tiers
    ]
    for depth in range(len(counts) - 1, -1, -1):
        fits = counts[depth] >= gang
        if not fits.any():
            continue
        has_room = fits & (counts[0][_above(fabric, depth)[0]] >= room)
        candidates = np.flatnonzero(has_room if has_room.any() else fits)
        is_last = depth + 1 == len(counts)
        chosen = _ordered(fabric, counts, depth, candidates, 1 if is_last else MOST_COMPARED)
        domain = fabric.tiers[depth].domain_by_host[free]
        inside = [free[domain == number] for number in chosen]
        return [(hosts, depth + 1) for hosts in _least_parted(fabric, inside, depth + 1, gang)]
    return []


def _ordered(
    fabric: Fabric, counts: Sequence[Ints], depth: int, candidates: Ints, most: int
) -> list[int]:
    """The first `most` of these domains of tier `depth`, sorted by what would be broken, then
    by what is free around them."""
    above, sizes = _above(fabric, depth), _sizes(fabric)
    whole = [counts[k] == sizes[k] for k in range(depth + 1)]
    keys = [
        key[above[k]] for key_of in (whole, counts) for k, key in enumerate(key_of[: depth + 1])
    ]
    if most == 1:  # what is best by one key after the other: no need to sort the rest
        for key in keys:
            among = key[candidates]
            candidates = candidates[among == among.min()]
        return [int(candidates[0])]
    order = np.lexsort([candidates, *(key[candidates] for key in reversed(keys))])
    found: list[int] = candidates[order[:most]].tolist()
    return found


@lru_cache(maxsize=64)
def _above(fabric: Fabric, depth: int) -> tuple[Ints, ...]:
    """For each tier down to `depth`, the domain there of each domain of tier `depth`."""
    inner = fabric.tiers[depth]
    above = []
    for tier in fabric.tiers[: depth + 1]:
        domain = np.zeros(len(inner.domains), dtype=np.int64)
        domain[inner.domain_by_host] = tier.domain_by_host
        above.append(domain)
    return tuple(above)


@lru_cache(maxsize=16)
def _sizes(fabric: Fabric) -> tuple[Ints, ...]:
    """Hosts of each domain, tier by tier."""
    return tuple(np.bincount(tier.domain_by_host) for tier in fabric.tiers)


def _least_parted(fabric: Fabric, inside: list[Ints], tier: int, gang: int) -> list[Ints]:
    """The first few, of different make, among those that part the gang the least."""
    if tier >= len(fabric.tiers):
        return inside[:1]
    makes: dict[tuple[int, ...], Ints] = {}
    for hosts in inside:
        counts = np.unique(fabric.tiers[tier].domain_by_host[hosts], return_counts=True)[1]
        filled = tuple(sorted((hosts for _, hosts in ranked(counts, gang)), reverse=True))
        makes.setdefault(filled, hosts)
    fewest = min(len(filled) for filled in makes)
    return [hosts for filled, hosts in makes.items() if len(filled) == fewest][:MOST_TRIED]
