"""Which single domain takes a gang that fits into one."""

from __future__ import annotations

from collections.abc import Sequence

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
    when no single domain holds the gang.
    """
    if not fabric.tiers:
        return [(free, 0)]
    domains = [tier.domain_by_host[free] for tier in fabric.tiers]
    free_in = [np.bincount(d)[d] for d in domains]  # per free host, of its own domain
    for depth in range(len(domains) - 1, -1, -1):
        fits = free_in[depth] >= gang
        if not fits.any():
            continue
        has_room = fits & (free_in[0] >= room)
        candidates = np.flatnonzero(has_room if has_room.any() else fits)
        candidates = candidates[_order(fabric, free, domains, free_in, depth, candidates)]
        chosen = list(dict.fromkeys(domains[depth][candidates].tolist()))
        chosen = chosen[: 1 if depth + 1 == len(domains) else MOST_COMPARED]
        inside = [free[domains[depth] == domain] for domain in chosen]
        return [(hosts, depth + 1) for hosts in _least_parted(fabric, inside, depth + 1, gang)]
    return []


def _order(
    fabric: Fabric,
    free: Ints,
    domains: Sequence[Ints],
    free_in: Sequence[Ints],
    depth: int,
    candidates: Ints,
) -> Ints:
    """Candidates sorted by what would be broken, then by what is free around them."""
    whole = []
    for tier, domain, count in zip(fabric.tiers, domains, free_in, strict=True):
        whole.append(count == np.bincount(tier.domain_by_host)[domain])
    keys = [domains[depth]]
    keys += [free_in[k] for k in range(depth, -1, -1)]
    keys += [whole[k] for k in range(depth, -1, -1)]
    return np.lexsort([key[candidates] for key in keys])


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
