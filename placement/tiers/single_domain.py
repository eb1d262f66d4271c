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
    if fabric.is_undivided:
        return [(free, len(fabric.tiers))] if len(free) >= gang else []
    levels = _levels(fabric)
    counts = _counts(fabric, levels, free)
    for depth in range(len(counts) - 1, -1, -1):
        level, count = levels[depth], counts[depth]
        candidates = (count >= gang).nonzero()[0]
        if not len(candidates):
            continue
        if room > gang:
            roomy = candidates[counts[0][level.outermost[candidates]] >= room]
            candidates = roomy if len(roomy) else candidates
        if depth + 1 == len(counts):  # the first one, without a sort
            # What is around a broken domain is broken as well, so those are first.
            broken = candidates[count[candidates] < level.sizes[candidates]]
            candidates = broken if len(broken) else candidates
            chosen = [int(candidates[_keys(levels, counts, depth, candidates).argmin()])]
        else:
            keys = _keys(levels, counts, depth, candidates)
            chosen = candidates[keys.argsort(kind="stable")[:MOST_COMPARED]].tolist()
        inside = [_inside(fabric, free, depth, number) for number in chosen]
        return [(hosts, depth + 1) for hosts in _least_parted(fabric, inside, depth + 1, gang)]
    return []


class _Weight(NamedTuple):
    """What a domain of one tier adds to the keys inside it, if it is wholly free and for each host
    that is free in it."""

    whole: int
    free: int


class _Level(NamedTuple):
    """One tier of a fabric. By domain: the domain outside it that is in `parents` on the next tier
    and in `outermost` on the first, and its hosts. `firsts`: of each domain of the tier above, its
    first domain here. `weights`: of the tiers down to here, the outermost first."""

    parents: Ints
    outermost: Ints
    sizes: Ints
    firsts: Ints
    weights: tuple[_Weight, ...]


@of_built
@lru_cache(maxsize=64)
def _levels(fabric: Fabric) -> tuple[_Level, ...]:
    sizes = [sizes_of(tier) for tier in fabric.tiers]
    radices = [int(hosts.max()) + 1 for hosts in sizes]
    levels = []
    for depth, hosts in enumerate(sizes):
        outside = above(fabric, depth)
        parents = outside[depth - 1] if depth else np.zeros_like(hosts)
        weights = tuple(
            _Weight(prod(radices[: depth + 1]) << depth - k, prod(radices[k + 1 : depth + 1]))
            for k in range(depth + 1)
        )
        firsts = np.flatnonzero(np.diff(parents, prepend=-1))
        levels.append(_Level(parents, outside[0], hosts, firsts, weights))
    return tuple(levels)


def _counts(fabric: Fabric, levels: Sequence[_Level], free: Ints) -> list[Ints]:
    """Free hosts of each domain, tier by tier. Hosts are numbered in the order of the tree, so
    what a domain has is what the next domains below it have together."""
    counts = [fabric.tiers[-1].count(free)]
    for level in levels[:0:-1]:
        counts.append(np.add.reduceat(counts[-1], level.firsts))
    return counts[::-1]


def _inside(fabric: Fabric, free: Ints, depth: int, number: int) -> Ints:
    """The free hosts of one domain of tier `depth`; `free` ascends, as the domains do."""
    first = fabric.tiers[depth].domain_by_host.searchsorted([number, number + 1])
    begin, end = free.searchsorted(first)
    return free[begin:end]


def _keys(levels: Sequence[_Level], counts: Sequence[Ints], depth: int, candidates: Ints) -> Ints:
    """What these domains of tier `depth` are compared by, as one number each: whether whole
    domains would be broken, then what is free around them, both tier by tier."""
    weights = levels[depth].weights
    # Python's own integers where those of the machine are too short.
    kind = np.int64 if 2 * weights[0].whole < 1 << 63 else object
    keys: Ints = np.zeros(1, dtype=kind)
    for k, weight in enumerate(weights):
        own, level = candidates if k == depth else slice(None), levels[k]
        count = counts[k][own].astype(kind, copy=False)
        is_whole = (count == level.sizes[own]).astype(kind)
        keys = keys[level.parents[own]] + is_whole * weight.whole + count * weight.free
    return keys


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
