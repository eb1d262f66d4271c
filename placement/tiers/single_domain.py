"""Which single domain takes a gang that fits into one. See docs/engine.md, "The tiers"."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from placement.fabric.tree import Fabric, Ints, above, of_built, sizes_of

MOST_COMPARED = 64  # domains that are looked into
MOST_TRIED = 2  # domains whose inner cut is compared


def single_domains(fabric: Fabric, free: Ints, gang: int, room: int) -> list[tuple[Ints, int]]:
    """Return the free hosts of each domain that may take the whole gang, with the tier below it.

    On the deepest tier that has such a domain. Domains in a zone without `room` hosts for the gang
    and its spares are left out, if others are left; of these only those that need the fewest
    domains of the next tier, which decides what is cut there. Order: broken domains before wholly
    free ones, fewest free hosts first, tier by tier, then by name. Empty when no single domain
    holds the gang. Cost: O(free hosts).
    """
    if not fabric.tiers:
        return [(free, 0)]
    if fabric.is_undivided:
        return [(free, len(fabric.tiers))] if len(free) >= gang else []
    counts = _counts(fabric, free)
    for depth in range(len(counts) - 1, -1, -1):
        outside = above(fabric, depth)
        candidates = (counts[depth] >= gang).nonzero()[0]
        if not len(candidates):
            continue
        if room > gang:
            roomy = candidates[counts[0][outside[0][candidates]] >= room]
            candidates = roomy if len(roomy) else candidates
        wholes = [n == sizes_of(tier) for n, tier in zip(counts, fabric.tiers, strict=True)]
        keys = [*zip(wholes, outside, strict=False), *zip(counts, outside, strict=False)]
        if depth + 1 == len(counts):  # the first one, without a sort
            for key, domain in keys:
                values = key[domain[candidates]]
                candidates = candidates[values == values.min()]
            candidates = candidates[:1]
        else:
            candidates = candidates[np.lexsort([key[d[candidates]] for key, d in keys[::-1]])]
        inside = [_inside(fabric, free, depth, int(n)) for n in candidates[:MOST_COMPARED]]
        return [(hosts, depth + 1) for hosts in _fewest_children(fabric, inside, depth + 1, gang)]
    return []


@of_built
@lru_cache(maxsize=64)
def _firsts(fabric: Fabric) -> tuple[Ints, ...]:
    """On each tier but the first, the first domain inside each domain of the tier above."""
    depths = range(1, len(fabric.tiers))
    return tuple(np.flatnonzero(np.diff(above(fabric, k)[k - 1], prepend=-1)) for k in depths)


def _counts(fabric: Fabric, free: Ints) -> list[Ints]:
    """Free hosts of each domain, tier by tier. Hosts are numbered in the order of the tree, so
    what a domain has is what the next domains below it have together."""
    counts = [fabric.tiers[-1].count(free)]
    for firsts in reversed(_firsts(fabric)):
        counts.append(np.add.reduceat(counts[-1], firsts))
    return counts[::-1]


def _inside(fabric: Fabric, free: Ints, depth: int, number: int) -> Ints:
    """The free hosts of one domain of tier `depth`; `free` ascends, as the domains do."""
    first = fabric.tiers[depth].domain_by_host.searchsorted([number, number + 1])
    begin, end = free.searchsorted(first)
    return free[begin:end]


def _fewest_children(fabric: Fabric, inside: list[Ints], tier: int, gang: int) -> list[Ints]:
    """The first few, of different make, among those that part the gang the least."""
    if tier >= len(fabric.tiers):
        return inside[:1]
    domain = fabric.tiers[tier].domain_by_host
    makes: dict[tuple[int, ...], Ints] = {}
    for hosts in inside:
        children = domain[hosts]
        makes.setdefault(parts(np.bincount(children - children[0]), gang), hosts)
    fewest = min(map(len, makes))
    return [hosts for make, hosts in makes.items() if len(make) == fewest][:MOST_TRIED]


def parts(free_by_child: Ints, gang: int) -> tuple[int, ...]:
    """Return how many hosts each child takes when the fewest children, the fullest first, hold the
    gang. Largest first."""
    fullest = np.sort(free_by_child)[::-1]
    held = fullest.cumsum()
    last = int(held.searchsorted(gang))
    return (*fullest[:last].tolist(), gang - (int(held[last - 1]) if last else 0))
