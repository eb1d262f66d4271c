"""Which hosts a gang takes where its cut is the same: some first, some last.

The cut counts which blocks share a domain, not which domain it is. So whole parts of the
gang change places with free domains of the same parent, tier by tier, and inside the
innermost domains the best hosts are taken: every cut stays what it was. The largest part is
dealt out first, each to the domain where it gains most: exact where parts have one shape.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints

Hosts = tuple[int, ...]
Shape = tuple[object, ...]  # nested: how many blocks lie in each domain below


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
