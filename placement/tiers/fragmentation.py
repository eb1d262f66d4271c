"""What a gang leaves free, and how to leave it in large pieces.

The harm of a placement, spares included, is compared after its cut on every tier, never
before: first the domains that were wholly free and are not any more, outermost tier
first; then how far the free hosts are scattered (the sum of squares of what each domain
has left, which is large when a few domains hold it all). Domains that carry parts of
equal cut are exchanged so that the harm is least, an assignment problem.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.structs import struct
from placement.fabric.hostset import Mask
from placement.fabric.tree import Fabric, Ints, above, sizes_of
from placement.solver import assign

MOST_DOMAINS = 400  # in one assignment; beyond that parts stay where they are


@struct(frozen=True, slots=True)
class FreeTier:
    """How much of one tier is free: domains that are wholly free, and the most free hosts in one
    domain."""

    tier: str
    whole: int
    largest: int


def count_free_domains(fabric: Fabric, free: Ints, taken: Sequence[int]) -> tuple[FreeTier, ...]:
    """Count the free domains of each tier once the hosts `taken` are in use."""
    left = _without(fabric, free, taken)
    unused = []
    for tier in fabric.tiers:
        count = tier.count(left)
        unused.append(FreeTier(tier.name, int((count == sizes_of(tier)).sum()), int(count.max())))
    return tuple(unused)


def rate_harm(fabric: Fabric, free: Ints, taken: Sequence[int]) -> tuple[int, ...]:
    """Rate how much a placement fragments the free hosts, less is better: whole domains broken by
    tier, then scattering."""
    left = _without(fabric, free, taken)
    broken, scattered = [], []
    for tier in fabric.tiers:
        before, after = tier.count(free), tier.count(left)
        broken.append(int(((before == sizes_of(tier)) & (after < before)).sum()))
        scattered.append(-int((after**2).sum()))
    return (*broken, *scattered)


def choose_domains(used: Ints, free: Ints, size: Ints, kept: Ints, kind: Ints) -> Ints:
    """Return for each domain the one to which its part of the gang should go, or itself.

    `used`: hosts of the part in each domain, 0 for none; `free` and `size`: of the domain
    before. `kept`: spares beside the part, which its new domain must hold as well. Parts
    move between domains of one `kind` only. Shapes: (domains,).
    """
    parts, places = _movable(used, free, size, kept)
    to = np.arange(len(used))
    if not len(parts) or len(places) > MOST_DOMAINS:
        return to
    left = free[None, places] - used[parts, None]
    scattering = free[None, places] ** 2 - left**2
    below = 1 + int((free**2).sum())  # outweighs all scattering
    cost = 2 * (scattering + below * (free == size)[None, places])
    cost += parts[:, None] != places[None, :]  # at equal harm nothing moves
    fits = (left >= kept[parts, None]) & (kind[parts, None] == kind[None, places])
    never = 1 + 4 * len(parts) * below
    chosen = assign(np.where(fits, cost, never))
    if chosen is not None:
        to[parts] = places[chosen]
    return to


def _movable(used: Ints, free: Ints, size: Ints, kept: Ints) -> tuple[Ints, Ints]:
    """Parts that may be better off elsewhere, and the domains that they may go to.

    A part that fills a broken domain to the last host is in its best place: whatever
    takes that place would rather take the other one. One that fills a whole domain can
    only go to a broken one with more room.
    """
    is_full = used + kept == free
    is_broken = free < size
    roomy = int(free[is_broken & (~is_full | (used == 0))].max(initial=0))
    is_stuck = is_full & (is_broken | (roomy < used + kept))
    parts = np.flatnonzero((used > 0) & ~is_stuck)
    return parts, np.flatnonzero((free > 0) & ((used == 0) | ((used > 0) & ~is_stuck)))


def rehoused(fabric: Fabric, free: Ints, hosts: tuple[int, ...]) -> tuple[int, ...]:
    """Exchange the parts in innermost domains so that the gang fragments the free hosts least.

    Parts stay whole and within the domain above, so that no tier's cut changes.
    """
    if len(fabric.tiers) < 2:
        return hosts
    tier = fabric.tiers[-1]
    gang = np.asarray(hosts, dtype=np.int64)
    domain = tier.domain_by_host[gang]
    used = np.bincount(domain, minlength=len(tier.domains))
    parent = above(fabric, len(fabric.tiers) - 1)[-2]
    to = choose_domains(used, tier.count(free), sizes_of(tier), np.zeros_like(used), parent)
    moved = np.flatnonzero(to[domain] != domain)
    new = to[domain[moved]]
    for number in np.unique(new):
        blocks = moved[new == number]
        gang[blocks] = free[tier.domain_by_host[free] == number][: len(blocks)]
    return tuple(gang.tolist())


def spare_domains(fabric: Fabric, free: Ints, hosts: Sequence[int]) -> Ints:
    """Return the free hosts without whole innermost domains that the gang can do without.

    Each domain above keeps what is free in broken ones, and as few whole ones as hold the rest of
    its part, large ones first; unless its part then needs more domains than before. Equal to `free`
    when nothing can be spared.
    """
    if len(fabric.tiers) < 2:
        return free
    tier, outer = fabric.tiers[-1], fabric.tiers[-2]
    domain, parent = tier.domain_by_host[free], outer.domain_by_host[free]
    count, size = tier.count(free), sizes_of(tier)
    is_kept = np.ones(len(free), dtype=np.bool_)
    needed = outer.count(np.asarray(hosts, dtype=np.int64))
    for number in np.flatnonzero(needed):
        inside = np.unique(domain[parent == number])
        keep = fewest_whole(count[inside], size[inside], int(needed[number]))
        if not keep.all() and _parts(count[inside][keep], needed[number]) <= _parts(
            count[inside], needed[number]
        ):
            is_kept &= (parent != number) | np.isin(domain, inside[keep])
    return np.asarray(free[is_kept])


def fewest_whole(count: Ints, size: Ints, needed: int) -> Mask:
    """Return all broken domains, and the fewest whole ones that hold the rest of `needed`. Shapes:
    (domains,)."""
    keep = count < size
    missing = needed - int(count[keep].sum())
    for i in np.argsort(-count, kind="stable"):
        if not keep[i] and missing > 0:
            keep[i] = True
            missing -= int(count[i])
    return keep


def _parts(count: Ints, needed: int) -> int:
    """Domains that `needed` hosts take up at least."""
    return int(np.searchsorted(np.cumsum(np.sort(count)[::-1]), needed)) + 1


def _without(fabric: Fabric, free: Ints, taken: Sequence[int]) -> Ints:
    is_left: Mask = np.zeros(fabric.host_count, dtype=np.bool_)
    is_left[free] = True
    is_left[list(taken)] = False
    return np.flatnonzero(is_left).astype(np.int64)
