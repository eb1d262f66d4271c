"""Where a gang may go, by its owner's word: hosts of a kind, one domain, few zones.

Hosts without the labels, or of another kind, are out before anything else. `same` and
`max_zones` bound the gang together with its spares, for a spare that may not be swapped in is
none. So do uplinks that are down: a gang keeps to one side of them (links.py).

Theory of operation. Only sizes of zones decide what is cut between them, and a zone with
more room takes what a smaller one takes. So among all choices of N zones the N with most
room cut the least, and a bound for these holds for every other choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import barred_links, barred_text, islands
from placement.fabric.tree import masks, of_built, view_for_gpus

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric

P = ParamSpec("P")
Room = Callable[[HostSet], int]  # how many hosts of a gang, spares included, a set can take
Result = TypeVar("Result")


@struct(frozen=True, slots=True)
class RoleConstraints:
    """Constraints on the hosts of one role of a gang, its spares aside.

    `same`, `within`, `segment`: as of a gang. `beside`: tiers, and roles that one domain of the
    tier holds together with this one. `avoid`: tiers, and roles with which it shares no domain.
    """

    role: str
    same: str = ""
    within: tuple[tuple[str, str], ...] = ()
    segment: int = 0
    beside: tuple[tuple[str, tuple[str, ...]], ...] = ()
    avoid: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def is_any(self) -> bool:
        """Whether the role is bound in any way."""
        return self != RoleConstraints(self.role)

    @property
    def named_roles(self) -> Iterator[tuple[str, str]]:
        """Yield each other role that it names, after the key that does so."""
        for key, by_tier in (("beside", self.beside), ("avoid", self.avoid)):
            for tier, roles in by_tier:
                yield from ((f"{key}.{tier}", role) for role in roles)


@struct(frozen=True, slots=True)
class Constraints:
    """Constraints on the hosts of a gang and its spares.

    `max_zones`: outermost domains at most, 0 = any number. `same`: a tier of which one
    domain holds everything. `labels`: what every host is labelled with. `within`: axes, and
    the tier of which one domain holds each of their groups. `segment`: so many consecutive
    hosts lie in one innermost domain, 0 = each by itself. `roles`: of a gang of roles, those of
    each role that has some.
    """

    max_zones: int = 0
    same: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    within: tuple[tuple[str, str], ...] = ()
    segment: int = 0
    roles: tuple[RoleConstraints, ...] = ()

    @property
    def is_shape(self) -> bool:
        """Whether hosts are bound to each other, rather than each chosen by itself."""
        return bool(self.max_zones or self.same)

    @property
    def has_segments(self) -> bool:
        """Whether blocks of the gang are bound to each other (workload/segments.py)."""
        return bool(self.within or self.segment or self.roles)

    def of_role(self, name: str) -> Constraints:
        """Return what a role of the gang has to keep by itself."""
        for own in self.roles:
            if own.role == name:
                same = own.same or self.same
                return replace(self, same=same, within=own.within, segment=own.segment, roles=())
        return replace(self, roles=()) if self.roles else self


ANYWHERE = Constraints()


def tier_of(fabric: Fabric, name: str, field: str) -> int:
    """Return the tier that a name means: `zone` is also the outermost and `rack` the
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


@of_built
@lru_cache(maxsize=8192)
def around(fabric: Fabric, tier: int, hosts: HostSet) -> HostSet:
    """Return all hosts of the domains that `hosts` lie in. Cost: O(hosts), once."""
    domains = fabric.tiers[tier].domain_by_host[hostset.members(hosts)]
    members = masks(fabric, tier)
    return _union(members[domain] for domain in set(domains.tolist()))


def _union(parts: Iterable[HostSet]) -> HostSet:
    union = 0
    for part in parts:
        union |= part
    return union


def check(fabric: Fabric, wanted: Constraints) -> None:
    """Refuse constraints with a tier or a label that this fabric does not have. Raises:
    BadInput."""
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
    """Return those of `hosts` that have every label, and as many GPUs as hosts of the gang have."""
    if fabric.is_mixed:
        hosts &= _with_gpus(fabric, gpus_wanted(fabric, wanted))
    return _with_labels(fabric, wanted, hosts)


def _with_labels(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> HostSet:
    for key, value in wanted.labels:
        hosts &= fabric.labels.get(key, {}).get(value, 0)
    return hosts


@of_built
@lru_cache(maxsize=64)
def _with_gpus(fabric: Fabric, gpus: int) -> HostSet:
    return hostset.of((fabric.by_host.gpus == gpus).nonzero()[0].tolist())


@of_built
@lru_cache(maxsize=4096)
def gpus_wanted(fabric: Fabric, wanted: Constraints) -> int:
    """Return the GPUs of each host that a gang lies on: the fabric's own number, unless the labels
    leave only hosts of another one.

    Raises: BadInput when they leave hosts of several other numbers.
    """
    if not fabric.is_mixed:
        return fabric.gpus_per_host
    fit = _with_labels(fabric, wanted, hostset.full(fabric.host_count))
    numbers = sorted(set(fabric.by_host.gpus[hostset.members(fit)].tolist()))
    if not numbers or fabric.gpus_per_host in numbers:
        return fabric.gpus_per_host
    if len(numbers) > 1:
        known = ", ".join(map(str, numbers))
        raise BadInput(
            "constraints.hosts",
            f"hosts with {labels_text(wanted)} have {known} GPUs, and a gang needs hosts with"
            " one number: name a label that only these have",
        )
    return int(numbers[0])


def view_for_gang(fabric: Fabric, wanted: Constraints) -> Fabric:
    """Return the fabric as a gang with these constraints sees it: `gpus_per_host` is that of its
    hosts."""
    return view_for_gpus(fabric, gpus_wanted(fabric, wanted)) if fabric.is_mixed else fabric


def with_gang_view(
    function: Callable[Concatenate[Fabric, P], Result],
) -> Callable[Concatenate[Fabric, P], Result]:
    """Decorate a function so that it gets the fabric with `gpus_per_host` of the request's
    hosts."""

    @wraps(function)
    def wrapper(fabric: Fabric, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if fabric.is_mixed:
            given = (getattr(each, "where", None) for each in (*args, *kwargs.values()))
            fabric = view_for_gang(fabric, next(w for w in given if isinstance(w, Constraints)))
        return function(fabric, *args, **kwargs)

    return wrapper


def usable(
    fabric: Fabric, wanted: Constraints, hosts: HostSet, count: int, room: Room = int.bit_count
) -> HostSet:
    """Return those of `hosts` on which `count` hosts may lie; fewer than `count` only when the
    constraints cannot be kept."""
    hosts = labelled(fabric, wanted, hosts)
    sides = [_shaped(fabric, wanted, hosts & side, count, room) for side in islands(fabric)]
    return _enough(sides, count, room)


def _enough(parts: Sequence[HostSet], count: int, room: Room) -> HostSet:
    """All parts that have room for `count` hosts; the roomiest where none has."""
    whole = [part for part in parts if room(part) >= count]
    return _union(whole) if whole else max(parts, key=room)


def _shaped(fabric: Fabric, wanted: Constraints, hosts: HostSet, count: int, room: Room) -> HostSet:
    if wanted.same:
        parts = _parts(fabric, tier_of(fabric, wanted.same, "constraints.same"), hosts)
        return _enough(parts, count, room)
    if wanted.max_zones and fabric.tiers:
        most = fullest(fabric, hosts, wanted.max_zones, room)
        return hosts if room(most) >= count else most
    return hosts


def fullest(fabric: Fabric, hosts: HostSet, zones: int, room: Room = int.bit_count) -> HostSet:
    """Return those of `hosts` in the `zones` outermost domains with most `room`, earlier ones on a
    tie."""
    parts = _parts(fabric, 0, hosts)
    return _union(sorted(parts, key=room, reverse=True)[:zones])


def _parts(fabric: Fabric, tier: int, hosts: HostSet) -> list[HostSet]:
    return [hosts & mask for mask in masks(fabric, tier)]


def joinable(fabric: Fabric, wanted: Constraints, gang: HostSet) -> HostSet:
    """Return the hosts that may join a gang on these hosts without breaking its constraints."""
    allowed = labelled(fabric, wanted, hostset.full(fabric.host_count))
    if fabric.barred and gang:
        allowed &= _union(island for island in islands(fabric) if island & gang)
    if wanted.same and gang:
        allowed &= around(fabric, tier_of(fabric, wanted.same, "constraints.same"), gang)
    if wanted.max_zones and fabric.tiers and zones_of(fabric, gang) >= wanted.max_zones:
        allowed &= around(fabric, 0, gang)
    return allowed


def zones_of(fabric: Fabric, hosts: HostSet) -> int:
    """Count the outermost domains that `hosts` lie in; 1 on a fabric without tiers."""
    return sum(bool(part) for part in _parts(fabric, 0, hosts)) if fabric.tiers else 1


def broken(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> list[str]:
    """Return a sentence for each constraint that `hosts` do not keep."""
    wrong = []
    if outside := hosts & ~labelled(fabric, wanted, hosts):
        names = ", ".join(fabric.names(hostset.members(outside))[:4])
        said = f"without the labels {labels_text(wanted)}" if wanted.labels else "of another kind"
        wrong.append(f"hosts {said}: {names}")
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        lies_in = sum(bool(part) for part in _parts(fabric, tier, hosts))
        if lies_in > 1:
            wrong.append(f"lies in {lies_in} of {fabric.tiers[tier].name}, must be in one")
    if wanted.max_zones and (zones := zones_of(fabric, hosts)) > wanted.max_zones:
        wrong.append(f"lies in {zones} {zone_name(fabric)}s, may lie in {wanted.max_zones}")
    if barred := barred_text(fabric, hosts):
        wrong.append(f"crosses {barred}")
    return wrong


def room_text(fabric: Fabric, wanted: Constraints, hosts: HostSet) -> str:
    """Say in words what the constraints leave of `hosts`: `12 with gpu=h100, at most 4 of them
    in one rack`."""
    fit, kind = labelled(fabric, wanted, hosts), _kind_text(fabric, wanted)
    said = [f"{fit.bit_count():,}{kind}"] if kind else []
    of_them = " of them" if kind else ""
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        most = max(part.bit_count() for part in _parts(fabric, tier, fit))
        said.append(f"at most {most:,}{of_them} in one {fabric.tiers[tier].name}")
    elif wanted.max_zones and fabric.tiers:
        most = fullest(fabric, fit, wanted.max_zones).bit_count()
        said.append(f"at most {most:,}{of_them} in {_zones_text(fabric, wanted.max_zones)}")
    if fabric.barred:
        most = max((fit & island).bit_count() for island in islands(fabric))
        count = "" if said else f"{fit.bit_count():,} in all, "
        said.append(f"{count}at most {most:,} on one side of {barred_links(fabric)}")
    return ", ".join(said)


def wish_text(fabric: Fabric, wanted: Constraints) -> str:
    """Say in words what the constraints ask of hosts: ` with gpu=h100 in one rack`."""
    said = _kind_text(fabric, wanted) + _segments_text(wanted)
    if wanted.same:
        tier = tier_of(fabric, wanted.same, "constraints.same")
        return f"{said} in one {fabric.tiers[tier].name}"
    if wanted.max_zones and fabric.tiers:
        return f"{said} in at most {_zones_text(fabric, wanted.max_zones)}"
    return said


def _kind_text(fabric: Fabric, wanted: Constraints) -> str:
    """` of 4 GPUs with gpu=gb200`: what each host must be like."""
    gpus = f" of {gpus_wanted(fabric, wanted)} GPUs" if fabric.is_mixed else ""
    return gpus + (f" with {labels_text(wanted)}" if wanted.labels else "")


def _segments_text(wanted: Constraints) -> str:
    """` in segments of 16 in one rack, with groups of ep in one rack`."""
    segment = f" in segments of {wanted.segment:,} in one rack" if wanted.segment else ""
    groups = [f"groups of {axis} in one {tier}" for axis, tier in wanted.within]
    return segment + (f", with {', '.join(groups)}" if groups else "")


def labels_text(wanted: Constraints) -> str:
    return ", ".join(f"{key}={value}" for key, value in wanted.labels)


def zone_name(fabric: Fabric) -> str:
    return fabric.tiers[0].name if fabric.tiers else "zone"


def _zones_text(fabric: Fabric, count: int) -> str:
    name = zone_name(fabric)
    return f"one {name}" if count == 1 else f"{count:,} {name}s"
