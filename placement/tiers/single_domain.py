"""Which single domain takes a gang that fits into one. See docs/engine.md, "The tiers"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.fabric.tree import Fabric, Ints, above, of_built, sizes_of
from placement.tiers.packing import ranked

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
    counts = _counts(fabric, free)
    for depth in range(len(counts) - 1, -1, -1):
        candidates = (counts[depth] >= gang).nonzero()[0]
        if not len(candidates):
            continue
        if room > gang:
            roomy = candidates[counts[0][above(fabric, depth)[0][candidates]] >= room]
            candidates = roomy if len(roomy) else candidates
        keys = _keys(fabric, counts, depth)
        if depth + 1 == len(counts):  # the first one, without a sort
            for outside, key in keys:
                mine = key[outside[candidates]]
                candidates = candidates[mine == mine.min()]
            chosen = candidates[:1].tolist()
        else:
            order = np.lexsort([candidates, *(key[at[candidates]] for at, key in reversed(keys))])
            chosen = candidates[order[:MOST_COMPARED]].tolist()
        inside = [_inside(fabric, free, depth, number) for number in chosen]
        return [(hosts, depth + 1) for hosts in _least_parted(fabric, inside, depth + 1, gang)]
    return []


def _counts(fabric: Fabric, free: Ints) -> list[Ints]:
    """Free hosts of each domain, tier by tier. Hosts are numbered in the order of the tree, so
    what a domain has is what the next domains below it have together."""
    counts = [fabric.tiers[-1].count(free)]
    for depth in range(len(fabric.tiers) - 1, 0, -1):
        counts.append(np.add.reduceat(counts[-1], _firsts(fabric, depth)))
    return counts[::-1]


def _inside(fabric: Fabric, free: Ints, depth: int, number: int) -> Ints:
    """The free hosts of one domain of tier `depth`; `free` ascends, as the domains do."""
    first = fabric.tiers[depth].domain_by_host.searchsorted([number, number + 1])
    begin, end = free.searchsorted(first)
    return free[begin:end]


def _keys(fabric: Fabric, counts: Sequence[Ints], depth: int) -> list[tuple[Ints, Ints]]:
    """What domains of tier `depth` are compared by: whether whole domains would be broken, then
    what is free around them, tier by tier. Each with the domain outside that it is a key of."""
    outside = above(fabric, depth)[: depth + 1]
    whole = [counts[k] == sizes_of(fabric.tiers[k]) for k in range(depth + 1)]
    return [*zip(outside, whole, strict=True), *zip(outside, counts, strict=False)]


@of_built
@lru_cache(maxsize=64)
def _firsts(fabric: Fabric, depth: int) -> Ints:
    """Of each domain of the tier above `depth`, its first domain of tier `depth`."""
    parents = above(fabric, depth)[depth - 1]
    return np.flatnonzero(np.diff(parents, prepend=-1))


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
