"""What a gang leaves free, in large pieces, and which hosts it takes where its cut is the same.

The harm of a placement, spares included, is compared after its cut on every tier, never
before: first the domains that were wholly free and are not any more, outermost tier
first; then how far the free hosts are scattered (the sum of squares of what each domain
has left, which is large when a few domains hold it all). Domains that carry parts of
equal cut are exchanged so that the harm is least, an assignment problem.

Some hosts are preferred, others come last. The cut counts which blocks share a domain, not which
domain it is. So whole parts of the gang change places with free domains of the same parent, tier by
tier, and inside the innermost domains the best hosts are taken: every cut stays what it was. The
largest part is dealt out first, each to the domain where it gains most: exact where parts have one
shape.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet, Mask
from placement.fabric.tree import Fabric, Ints, above, sizes_of
from placement.solver import assign

MOST_DOMAINS = 400  # in one assignment; beyond that parts stay where they are
Hosts = tuple[int, ...]
Shape = tuple[object, ...]  # nested: how many blocks lie in each domain below


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


@struct(frozen=True, slots=True)
class Preference:
    """Hosts to take `first`, and those to take `last`."""

    first: HostSet = 0
    last: HostSet = 0

    def __bool__(self) -> bool:
        return bool(self.first or self.last)

    def cost(self, hosts: Sequence[int]) -> int:
        """Count hosts to take last, less those to take first: smaller is better."""
        taken = hostset.of(hosts)
        return (taken & self.last).bit_count() - (taken & self.first).bit_count()


NO_PREFERENCE = Preference()


def move_to_preferred(
    fabric: Fabric, free: Ints, hosts: Hosts, preference: Preference
) -> list[Hosts]:
    """Move the gang to hosts that it prefers: inside its outermost domains, and across them.

    Every tier's cut is that of `hosts`. Cost: O(blocks + domains x shapes).
    """
    deal = _Deal(fabric, free, hosts, preference)
    options = [deal.inside(), deal.across()]
    better = [option for option in options if preference.cost(option) < preference.cost(hosts)]
    return list(dict.fromkeys(better))


def _score(preference: Preference, host: int) -> int:
    return int(hostset.has(preference.first, host)) - int(hostset.has(preference.last, host))


class _Domain:
    """A domain with the free hosts in it, best first, and the domains below."""

    def __init__(self, at: int, hosts: list[int], below: list[_Domain]) -> None:
        self.at, self.hosts, self.below = at, hosts, below


class _Deal:
    """One gang. A part is a tuple of blocks that share a domain."""

    def __init__(self, fabric: Fabric, free: Ints, hosts: Hosts, preference: Preference) -> None:
        self._now = hosts
        self._of = [tier.domain_by_host.tolist() for tier in fabric.tiers]
        usable = sorted({*free.tolist(), *hosts})
        self._score = {h: _score(preference, h) for h in usable}
        self._root = self._domain(-1, 0, sorted(usable, key=lambda h: (-self._score[h], h)))
        self._known: dict[tuple[int, int, Shape], int | None] = {}
        self._new = list(hosts)

    def inside(self) -> Hosts:
        """Each part stays in its outermost domain."""
        if not self._of:
            return self.across()
        by_domain = {domain.at: domain for domain in self._root.below}
        for part in self._parts(tuple(range(len(self._now))), 0):
            self._place(part, by_domain[self._of[0][self._now[part[0]]]], 1)
        return tuple(self._new)

    def across(self) -> Hosts:
        self._new = list(self._now)
        self._place(tuple(range(len(self._now))), self._root, 0)
        return tuple(self._new)

    def _domain(self, at: int, level: int, hosts: list[int]) -> _Domain:
        if level == len(self._of):
            return _Domain(at, hosts, [])
        inner: dict[int, list[int]] = {}
        for host in hosts:
            inner.setdefault(self._of[level][host], []).append(host)
        below = [self._domain(a, level + 1, inner[a]) for a in sorted(inner)]
        return _Domain(at, hosts, below)

    def _parts(self, part: Hosts, level: int) -> list[Hosts]:
        """The parts of `part` in the domains of a tier, the largest first."""
        parts: dict[int, list[int]] = {}
        for block in part:
            parts.setdefault(self._of[level][self._now[block]], []).append(block)
        return sorted(map(tuple, parts.values()), key=lambda p: (-len(p), p))

    def _shape(self, part: Hosts, level: int) -> Shape:
        if level == len(self._of):
            return (len(part),)
        below = [self._shape(inner, level + 1) for inner in self._parts(part, level)]
        return (len(part), *sorted(below, key=repr, reverse=True))

    def _gain(self, part: Hosts, shape: Shape, domain: _Domain, level: int) -> int | None:
        """The best score of a part in a domain; None where it does not fit."""
        if len(domain.hosts) < len(part):
            return None
        if level == len(self._of):
            return sum(self._score[host] for host in domain.hosts[: len(part)])
        key = (level, domain.at, shape)
        if key not in self._known:
            dealt = self._dealt(part, domain, level)
            gains = None if dealt is None else [gain for _, _, gain in dealt]
            self._known[key] = None if gains is None else sum(gains)
        return self._known[key]

    def _dealt(
        self, part: Hosts, domain: _Domain, level: int
    ) -> list[tuple[Hosts, _Domain, int]] | None:
        """Choose the domain below for each part, and return what each gains there."""
        left, parts = list(domain.below), []
        for inner in self._parts(part, level):
            shape, home = self._shape(inner, level + 1), self._of[level][self._now[inner[0]]]
            best: tuple[int, bool, int] | None = None
            for place, child in enumerate(left):
                gain = self._gain(inner, shape, child, level + 1)
                if gain is not None:
                    key = (gain, child.at == home, -place)
                    best = key if best is None or key > best else best
            if best is None:
                return None
            parts.append((inner, left.pop(-best[2]), best[0]))
        return parts

    def _place(self, part: Hosts, domain: _Domain, level: int) -> None:
        """Give the part hosts of the domain; it stays where it is when it cannot be dealt."""
        if level == len(self._of):
            chosen = domain.hosts[: len(part)]
            stays = {b for b in part if self._now[b] in chosen}
            rest = [h for h in chosen if h not in {self._now[b] for b in stays}]
            for block in part:
                self._new[block] = self._now[block] if block in stays else rest.pop(0)
            return
        for inner, child, _ in self._dealt(part, domain, level) or ():
            self._place(inner, child, level + 1)
