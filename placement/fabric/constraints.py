"""Where a gang may go, by its owner's word: hosts of a kind, one domain, few zones.

Hosts without the labels are out before anything else. `same` and `max_zones` bound the
gang together with its spares, for a spare that may not be swapped in is none.

Theory of operation. Only sizes of zones decide what is cut between them, and a zone with
more room takes what a smaller one takes. So among all choices of N zones the N with most
room cut the least, and a bound for these holds for every other choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.hostset import HostSet

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric


@dataclass(frozen=True, slots=True)
class Constraints:
    """On which hosts the gang and its spares may lie.

    `max_zones`: outermost domains at most, 0 = any number. `same`: a tier of which one
    domain holds everything. `labels`: what every host is labelled with.
    """

    max_zones: int = 0
    same: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def is_shape(self) -> bool:
        """Whether hosts are bound to each other, not each by itself."""
        return bool(self.max_zones or self.same)


ANYWHERE = Constraints()


def tier_of(fabric: Fabric, name: str, field: str) -> int:
    """Which tier is meant: by its name; `zone` is also the outermost and `rack` the
    innermost above the hosts, whatever they are called.

    Raises: BadInput naming `field` when there is no such tier.
    """
    names = [tier.name for tier in fabric.tiers]
    if name in names:
        return names.index(name)
    if names and name in ("zone", "rack"):
        return 0 if name == "zone" else len(names) - 1
    known = ", ".join(names) or "none"
    raise BadInput(field, f"{fabric.name} has no tier {name!r}; there are {known}")


@lru_cache(maxsize=64)
def masks(fabric: Fabric, tier: int) -> tuple[HostSet, ...]:
    """The hosts of each domain of a tier."""
    found = [0] * len(fabric.tiers[tier].domains)
    for host, domain in enumerate(fabric.tiers[tier].domain_by_host.tolist()):
        found[domain] |= 1 << host
    return tuple(found)


@lru_cache(maxsize=8192)
def around(fabric: Fabric, tier: int, hosts: HostSet) -> HostSet:
    """All hosts of the domains that `hosts` lie in. Cost: O(hosts), once."""
    domains = fabric.tiers[tier].domain_by_host[hostset.members(hosts)]
    members = masks(fabric, tier)
    return _union(members[domain] for domain in set(domains.tolist()))


def _union(parts: Iterable[HostSet]) -> HostSet:
    found = 0
    for part in parts:
        found |= part
    return found


def check(fabric: Fabric, wanted: Constraints) -> None:
    """Raises: BadInput when a tier or a label does not exist on this fabric."""
    if wanted.same:
        tier_of(fabric, wanted.same, "constraints.same")
    for key, value in wanted.labels:
        field = f"constraints.hosts.{key}"
        if key not in fabric.labels:
            known = ", ".join(fabric.labels) or "none"
            raise BadInput(field, f"no host of {fabric.name} has such a label; there are {known}")
        if value not in fabric.labels[key]:
            known = ", ".join(fabric.labels[key])
            raise BadInput(field, f"no host is labelled {key}={value}; there are {known}")


def labelled(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> HostSet:
    """Those of `hosts` that have every label."""
    for key, value in wanted.labels:
        hosts &= fabric.labels.get(key, {}).get(value, 0)
    return hosts


def usable(fabric: Fabric, wanted: Constraints, hosts: HostSet, count: int) -> HostSet:
    """Those of `hosts` on which `count` hosts may lie; fewer than `count` only when there
    is no way to keep the constraints."""
    hosts = labelled(fabric, wanted, hosts)
    if wanted.same:
        parts = _parts(fabric, tier_of(fabric, wanted.same, "constraints.same"), hosts)
        whole = [part for part in parts if part.bit_count() >= count]
        return _union(whole) if whole else max(parts, key=int.bit_count)
    if wanted.max_zones and fabric.tiers:
        most = fullest(fabric, hosts, wanted.max_zones)
        return hosts if most.bit_count() >= count else most
    return hosts


def fullest(fabric: Fabric, hosts: HostSet, zones: int) -> HostSet:
    """`hosts` of the `zones` outermost domains with most of them, earlier ones on a tie."""
    parts = _parts(fabric, 0, hosts)
    return _union(sorted(parts, key=int.bit_count, reverse=True)[:zones])


def _parts(fabric: Fabric, tier: int, hosts: HostSet) -> list[HostSet]:
    return [hosts & mask for mask in masks(fabric, tier)]


def joinable(fabric: Fabric, wanted: Constraints, gang: HostSet) -> HostSet:
    """Hosts that may join a gang on these hosts and leave the constraints kept."""
    allowed = labelled(fabric, wanted, hostset.full(fabric.host_count))
    if wanted.same and gang:
        allowed &= around(fabric, tier_of(fabric, wanted.same, "constraints.same"), gang)
    if wanted.max_zones and fabric.tiers and zones_of(fabric, gang) >= wanted.max_zones:
        allowed &= around(fabric, 0, gang)
    return allowed


def zones_of(fabric: Fabric, hosts: HostSet) -> int:
    """Outermost domains that `hosts` lie in; 1 on a fabric without tiers."""
    return sum(bool(part) for part in _parts(fabric, 0, hosts)) if fabric.tiers else 1


def broken(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> list[str]:
    """Sentences, one for each constraint that `hosts` do not keep."""
    wrong = []
    if outside := hosts & ~labelled(fabric, wanted, hosts):
        names = ", ".join(fabric.names(hostset.members(outside))[:4])
        wrong.append(f"hosts without the labels {labels_text(wanted)}: {names}")
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        lies_in = sum(bool(part) for part in _parts(fabric, tier, hosts))
        if lies_in > 1:
            wrong.append(f"lies in {lies_in} of {fabric.tiers[tier].name}, must be in one")
    if wanted.max_zones and (zones := zones_of(fabric, hosts)) > wanted.max_zones:
        wrong.append(f"lies in {zones} {zone_name(fabric)}s, may lie in {wanted.max_zones}")
    return wrong


def room_text(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> str:
    """What of `hosts` the constraints leave, in words: `12 with gpu=h100, at most 4 of them
    in one rack`."""
    fit = labelled(fabric, wanted, hosts)
    said = [f"{fit.bit_count():,} with {labels_text(wanted)}"] if wanted.labels else []
    of_them = " of them" if wanted.labels else ""
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        most = max(part.bit_count() for part in _parts(fabric, tier, fit))
        said.append(f"at most {most:,}{of_them} in one {fabric.tiers[tier].name}")
    elif wanted.max_zones and fabric.tiers:
        most = fullest(fabric, fit, wanted.max_zones).bit_count()
        said.append(f"at most {most:,}{of_them} in {_zones_text(fabric, wanted.max_zones)}")
    return ", ".join(said)


def wish_text(fabric: Fabric, wanted: Constraints) -> str:
    """What is asked of the hosts, in words: ` with gpu=h100 in one rack`."""
    said = f" with {labels_text(wanted)}" if wanted.labels else ""
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        return f"{said} in one {fabric.tiers[tier].name}"
    if wanted.max_zones and fabric.tiers:
        return f"{said} in at most {_zones_text(fabric, wanted.max_zones)}"
    return said


def labels_text(wanted: Constraints) -> str:
    return ", ".join(f"{key}={value}" for key, value in wanted.labels)


def zone_name(fabric: Fabric) -> str:
    return fabric.tiers[0].name if fabric.tiers else "zone"


def _zones_text(fabric: Fabric, count: int) -> str:
    name = zone_name(fabric)
    return f"one {name}" if count == 1 else f"{count:,} {name}s"
