"""Which single domain takes a gang that fits into one. See docs/engine.md, "The tiers"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Fabric, Ints, above, of_built, sizes_of

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
        if depth + 1 == len(counts):  # the first one, without a sort
            # What is around a broken domain is broken as well, so those are first.
            size = sizes_of(fabric.tiers[depth])
            broken = candidates[counts[depth][candidates] < size[candidates]]
            candidates = broken if len(broken) else candidates
            chosen = [int(candidates[_keys(fabric, counts, depth, candidates).argmin()])]
        else:
            keys = _keys(fabric, counts, depth, candidates)
            chosen = candidates[keys.argsort(kind="stable")[:MOST_COMPARED]].tolist()
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


def _keys(fabric: Fabric, counts: Sequence[Ints], depth: int, candidates: Ints) -> Ints:
    """What these domains of tier `depth` are compared by, as one number each: whether whole
    domains would be broken, then what is free around them, both tier by tier."""
    weights = _weights(fabric, depth)
    # Python's own integers where those of the machine are too short.
    kind = np.int64 if 2 * weights[0].whole < 1 << 63 else object
    keys: Ints = np.zeros(1, dtype=kind)
    for k, weight in enumerate(weights):
        own = candidates if k == depth else slice(None)
        is_inside = above(fabric, k)[k - 1][own] if k else 0
        count = counts[k][own].astype(kind, copy=False)
        is_whole = (count == sizes_of(fabric.tiers[k])[own]).astype(kind)
        keys = keys[is_inside] + is_whole * weight.whole + count * weight.free
    return keys


class _Weight(NamedTuple):
    """What a domain of one tier adds to the keys inside it, if it is wholly free and for each host
    that is free in it."""

    whole: int
    free: int


@of_built
@lru_cache(maxsize=64)
def _weights(fabric: Fabric, depth: int) -> tuple[_Weight, ...]:
    """Of each tier down to `depth`: places of digits, the outermost tier first."""
    radices = [int(sizes_of(tier).max()) + 1 for tier in fabric.tiers[: depth + 1]]
    return tuple(
        _Weight(prod(radices) << depth - k, prod(radices[k + 1 :])) for k in range(depth + 1)
    )


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
    domain = fabric.tiers[tier].domain_by_host
    makes: dict[tuple[int, ...], Ints] = {}
    for hosts in inside:
        children = domain[hosts]
        makes.setdefault(parts(np.bincount(children - children[0]), gang), hosts)
    fewest = min(map(len, makes))
    return [hosts for make, hosts in makes.items() if len(make) == fewest][:MOST_TRIED]


def parts(free_by_child: Ints, gang: int) -> tuple[int, ...]:
    """How many hosts the children take that are used up from the fullest on: the fewest hold
    the gang. Largest first."""
    fullest = np.sort(free_by_child)[::-1]
    held = fullest.cumsum()
    last = int(held.searchsorted(gang))
    return (*fullest[:last].tolist(), gang - (int(held[last - 1]) if last else 0))
