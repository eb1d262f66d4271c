"""Blocks that must lie in one domain: groups of an axis within a tier, segments within a rack.

`within: {ep: rack}` keeps every group of an axis in one domain of a tier, `segment: 16` so many
consecutive hosts in one rack. Either cuts the gang into *segments*, equal parts of it that lie
in one domain each: two groups that share a block lie in one domain with it, so that groups of
several axes make one segment. Segments of an inner tier lie whole in those of an outer one.

Theory of operation. Bytes depend on the groups of axes, not on the numbers of ranks. So ranks
are renumbered with the axes that are held together fastest, and every segment is a run of them.
A domain with n free hosts holds n // s segments of s hosts, whatever else is asked; the gang on
these segments, each of them one large host, is a smaller problem of the same kind, whose
answers and bounds are those of the gang (tiers/shape.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache, partial
from math import lcm

import numpy as np

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import (
    Room,
    broken,
    gpus_wanted,
    labelled,
    room_text,
    tier_of,
    usable,
    wish_text,
)
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints, masks
from placement.workload import role_domains
from placement.workload.parallelism import AXES, Parallelism
from placement.workload.request import Request
from placement.workload.role_domains import RoleRules

HOST = "host"


@struct(frozen=True, slots=True)
class SegmentLevel:
    """Segments of `blocks` blocks, each of which lies in one domain of the tier at `depth`."""

    depth: int
    blocks: int


@struct(frozen=True, slots=True)
class Segments:
    """How a gang is divided into segments that stay together. `order`: of axes, in which every
    segment is a run of ranks. `levels`: innermost first."""

    order: str
    levels: tuple[SegmentLevel, ...]

    @property
    def inner(self) -> SegmentLevel:
        return self.levels[0]


def segments_of(fabric: Fabric, request: Request) -> Segments | None:
    """Return the segments that a request asks for; None where every block may lie by itself, and of
    a gang of roles. Raises: BadInput naming the key that cannot be met: no such axis or tier, a
    tier too small, a segment that does not divide the gang."""
    if not request.where.has_segments or role_rules(fabric, request) is not None:
        return None
    return _segments(fabric, request)


def role_rules(fabric: Fabric, request: Request) -> RoleRules | None:
    """Return the constraints of the roles of a gang; None where they bind no role.

    Raises: BadInput as `segments_of`, of a role.
    """
    return _role_rules(fabric, request) if request.where.roles else None


@lru_cache(maxsize=1024)
def _role_rules(fabric: Fabric, request: Request) -> RoleRules | None:
    segments: list[tuple[int, int] | None] = []
    for number, role in enumerate(request.roles):
        try:
            own = segments_of(fabric, role.request)
            if own is not None and len(own.levels) > 1:
                raise BadInput("constraints.within", "must name one tier alone in a role")
        except BadInput as error:
            field = error.field.removeprefix("constraints.")
            raise BadInput(f"roles.{number}.{field}", error.message) from None
        segments.append((own.inner.depth, own.inner.blocks) if own else None)
    rules = role_domains.resolve(fabric, request, segments)
    return rules if rules.bound else None


@lru_cache(maxsize=1024)
def hosts_for_roles(fabric: Fabric, request: Request, hosts: HostSet) -> HostSet:
    """Return hosts that the roles with constraints may take, of these; none of other gangs, and
    where there is no room. Cost: up to a second, once."""
    rules = role_rules(fabric, request)
    reserved = role_domains.reserve_hosts(fabric, rules, hosts) if rules is not None else None
    return sum(reserved.values()) if reserved else 0  # roles share no host


@lru_cache(maxsize=1024)
def _segments(fabric: Fabric, request: Request) -> Segments | None:
    p, gpus = request.parallelism, gpus_wanted(fabric, request.where)
    gang, depth_of = request.hosts_needed(gpus), dict(_depths(fabric, request, gpus))
    order = _order(p, gpus, depth_of)
    sizes: dict[int, int] = {}
    for depth in sorted(set(depth_of.values()), reverse=True):
        held = {axis for axis, tier in depth_of.items() if tier >= depth}
        sizes[depth] = _blocks(p, order, gpus, held)
    if request.where.segment:
        _add_segment(fabric, request, gang, order, sizes)
    levels = [SegmentLevel(depth, sizes[depth]) for depth in sorted(sizes, reverse=True)]
    levels = [level for level in levels if level.blocks > 1]
    inside = 1
    for i, level in enumerate(levels):
        levels[i] = level = SegmentLevel(level.depth, lcm(level.blocks, inside))
        inside = level.blocks
        _check_room(fabric, request, level, depth_of)
    return Segments("-".join(order), tuple(levels)) if levels else None


def _depths(fabric: Fabric, request: Request, gpus: int) -> Iterator[tuple[str, int]]:
    """The tier of each axis that is held together beyond its hosts."""
    p = request.parallelism
    for axis, name in request.where.within:
        field = f"constraints.within.{axis}"
        if axis not in AXES:
            raise BadInput(field, f"unknown axis; axes are {', '.join(AXES)}")
        span = p.stride(axis) * p.size(axis) if p.size(axis) > 1 else 1
        if name in (HOST, fabric.host_tier):
            if gpus % span:
                raise BadInput(field, f"a group spans {span} ranks, a host has {gpus} GPUs")
        elif gpus % span:  # else it lies in its host, and that in one domain
            yield axis, tier_of(fabric, name, field)
        else:
            tier_of(fabric, name, field)


def _order(p: Parallelism, gpus: int, depth_of: dict[str, int]) -> tuple[str, ...]:
    """Axes inside hosts first, then those held together, the innermost tier first."""
    if not depth_of:
        return p.axes
    inside, ranks = [], 1
    for axis in p.axes:
        if ranks == gpus:
            break
        field = f"constraints.within.{next(iter(depth_of))}"
        if gpus % ranks or (gpus // ranks % p.size(axis) and p.size(axis) % (gpus // ranks)):
            raise BadInput(field, f"hosts of {gpus} GPUs end inside groups of {axis}")
        ranks *= p.size(axis)
        if ranks > gpus:  # a host ends inside its groups
            if depth_of.get(axis, -1) < max(depth_of.values()):
                raise BadInput(
                    field,
                    f"hosts of {gpus} GPUs hold parts of groups of {axis}: say within which tier"
                    f" {axis} lies as well",
                )
            ranks = gpus
        inside.append(axis)
    held = sorted(
        (axis for axis in p.axes if axis in depth_of and axis not in inside),
        key=lambda axis: (-depth_of[axis], p.axes.index(axis)),
    )
    rest = [axis for axis in p.axes if axis not in inside and axis not in depth_of]
    return (*inside, *held, *rest)


def _blocks(p: Parallelism, order: Sequence[str], gpus: int, held: Collection[str]) -> int:
    """Blocks of the groups of these axes that hang together."""
    ranks = 1
    for axis in order:
        if ranks * p.size(axis) > gpus and axis not in held:
            break
        ranks *= p.size(axis)
    return max(1, ranks // gpus)


def _add_segment(
    fabric: Fabric, request: Request, gang: int, order: Sequence[str], sizes: dict[int, int]
) -> None:
    """`segment: N` beside what `within` holds together."""
    field, blocks = "constraints.segment", request.where.segment
    if not fabric.tiers:
        raise BadInput(field, f"{fabric.name} has no tier above its hosts")
    if gang % blocks:
        raise BadInput(field, f"{blocks:,} hosts do not divide the {gang:,} of the gang")
    if tuple(order) != request.parallelism.axes:
        raise BadInput(
            field,
            "is of consecutive hosts, and the groups named by `within` are not, in this order of"
            f" axes: {request.parallelism.order}; {'-'.join(order)} would do",
        )
    rack = len(fabric.tiers) - 1
    sizes[rack] = lcm(blocks, sizes.get(rack, 1))
    if gang % sizes[rack]:
        raise BadInput(field, f"with `within`, {sizes[rack]:,} hosts do not divide {gang:,}")


def _check_room(
    fabric: Fabric, request: Request, level: SegmentLevel, depth_of: dict[str, int]
) -> None:
    """Raises: BadInput when no domain of the tier has so many hosts of the gang's kind."""
    kind = labelled(fabric, request.where, hostset.full(fabric.host_count))
    most = max((kind & mask).bit_count() for mask in masks(fabric, level.depth))
    if level.blocks <= most:
        return
    axis = next((axis for axis, depth in depth_of.items() if depth >= level.depth), "")
    tier = fabric.tiers[level.depth].name
    raise BadInput(
        f"constraints.within.{axis}" if axis else "constraints.segment",
        f"{level.blocks:,} hosts must lie in one {tier}; {fabric.name} has {most:,} in its largest",
    )


def usable_for(fabric: Fabric, request: Request, hosts: HostSet, count: int) -> HostSet:
    """Return those of `hosts` on which the gang and its spares, `count` hosts, may lie; fewer only
    when the constraints cannot be kept."""
    room = room_for(fabric, request, count)
    found = usable(fabric, request.where, hosts, count, room)
    return found if room(found) >= count else hostset.of(hostset.first(found, room(found)))


def room_for(fabric: Fabric, request: Request, count: int) -> Room:
    """Return how many of `count` hosts, of the gang and its spares, a set can take; spares need no
    segments."""
    if (rules := role_rules(fabric, request)) is not None:
        return partial(_room_for_roles, fabric, request, rules, count)
    segments = segments_of(fabric, request)
    if segments is None:
        return int.bit_count
    spares = count - request.hosts_needed(gpus_wanted(fabric, request.where))

    def room(hosts: HostSet) -> int:
        return min(hosts.bit_count(), spares + _in_segments(fabric, segments, hosts).bit_count())

    return room


def _room_for_roles(
    fabric: Fabric, request: Request, rules: RoleRules, count: int, hosts: HostSet
) -> int:
    """Return one host too few where some role has no room among the hosts."""
    if hosts.bit_count() < count:
        return hosts.bit_count()
    return hosts.bit_count() if _have_room(fabric, request, rules, hosts) else count - 1


def _have_room(fabric: Fabric, request: Request, rules: RoleRules, hosts: HostSet) -> bool | None:
    """Whether all roles have room among the hosts; None where that was not decided."""
    if _role_without_room(fabric, request, rules, hosts) is not None:
        return False
    return rules.are_independent or role_domains.have_room(fabric, rules, hosts)


def is_undecided(fabric: Fabric, request: Request, hosts: HostSet) -> bool:
    """Whether it could not be decided that roles of the gang have room on these hosts."""
    rules = role_rules(fabric, request)
    return rules is not None and _have_room(fabric, request, rules, hosts) is None


def _role_without_room(
    fabric: Fabric, request: Request, rules: RoleRules, hosts: HostSet
) -> int | None:
    """Return the number of the first role for which there is no room, by itself."""
    sizes = [rules.size(role) for role in range(len(rules.names))]
    parts = [role.request for role in request.roles]
    return next(
        (
            number
            for number, (size, part) in enumerate(zip(sizes, parts, strict=True))
            if usable_for(fabric, part, hosts, size).bit_count() < size
        ),
        None,
    )


@lru_cache(maxsize=4096)
def _in_segments(fabric: Fabric, segments: Segments, hosts: HostSet) -> HostSet:
    """As many of `hosts` as whole segments take, level by level."""
    is_free = hostset.to_mask(hosts, fabric.host_count).copy()
    for level in segments.levels:
        tier, free = fabric.tiers[level.depth], np.flatnonzero(is_free)
        room = tier.count(free) // level.blocks * level.blocks
        is_free[free[tier.nth(free) >= room[tier.domain_by_host[free]]]] = False
    return hostset.of(np.flatnonzero(is_free).tolist())


def part_by_block(fabric: Fabric, request: Request, segments: Segments) -> Ints:
    """Return the number of each block in the order in which segments are runs of blocks."""
    p, gpus = request.parallelism, gpus_wanted(fabric, request.where)
    ordered = replace(p, order=segments.order)
    rank = np.arange(0, p.world_size, gpus)
    new = np.zeros_like(rank)
    for axis in p.axes:
        new += rank // p.stride(axis) % p.size(axis) * ordered.stride(axis)
    return new // gpus


def parted(fabric: Fabric, request: Request, hosts: Sequence[int]) -> list[str]:
    """Name the segments of a gang on these hosts that lie in more than one domain, and the roles
    that do not lie as they must, in sentences."""
    if (rules := role_rules(fabric, request)) is not None:
        if len(hosts) != rules.size(*range(len(rules.names))):
            return []
        wrong = [
            f"role {role.name}: {text}"
            for number, role in enumerate(request.roles)
            for text in parted(fabric, role.request, rules.part(hosts, number))
        ]
        return wrong + role_domains.broken_rules(fabric, rules, hosts)
    segments = segments_of(fabric, request)
    if segments is None or len(hosts) != request.hosts_needed(gpus_wanted(fabric, request.where)):
        return []
    number, wrong = part_by_block(fabric, request, segments), []
    for level in segments.levels:
        domain = np.empty(len(hosts), dtype=np.int64)
        tier = fabric.tiers[level.depth]
        domain[number] = tier.domain_by_host[np.asarray(hosts, dtype=np.int64)]
        parts = domain.reshape(-1, level.blocks)
        many = int(np.count_nonzero((parts != parts[:, :1]).any(axis=1)))
        if many:
            named = f"{many:,} segments of {level.blocks} hosts"
            wrong.append(f"{named} lie in more than one {tier.name}")
    return wrong


def misplaced(fabric: Fabric, request: Request, hosts: Sequence[int]) -> list[str]:
    """Name the constraints that a gang on these hosts, in block order, does not keep, in
    sentences."""
    return broken(fabric, request.where, hostset.of(hosts)) + parted(fabric, request, hosts)


def segments_text(fabric: Fabric, request: Request, hosts: HostSet) -> str:
    """Say for how many segments the hosts have room: `room for 12 segments of 16 hosts`; which role
    has no room; "" where a gang has no segments, and where all roles have room."""
    if (rules := role_rules(fabric, request)) is not None:
        return _roles_text(fabric, request, rules, hosts)
    if (segments := segments_of(fabric, request)) is None:
        return ""
    room = room_for(fabric, request, request.hosts_needed(gpus_wanted(fabric, request.where)))
    hosts = usable(fabric, request.where, hosts, fabric.host_count + 1, room)  # the roomiest
    outer = segments.levels[-1].blocks
    many = _in_segments(fabric, segments, hosts).bit_count() // outer
    return f"room for {many:,} segment{'' if many == 1 else 's'} of {outer:,} hosts"


def _roles_text(fabric: Fabric, request: Request, rules: RoleRules, hosts: HostSet) -> str:
    """Say which constraint of a role has no room: `role learner needs 8 hosts in one rack: at most
    6 in one rack`."""
    hosts = usable(fabric, request.where, hosts, fabric.host_count + 1)  # the roomiest
    number = _role_without_room(fabric, request, rules, hosts)
    if number is None:
        if _have_room(fabric, request, rules, hosts):
            return ""
        return role_domains.lacking_text(fabric, rules, hosts)
    part, name = request.roles[number].request, rules.names[number]
    has = (room_text(fabric, part.where, hosts), segments_text(fabric, part, hosts))
    needs = f"role {name} needs {rules.size(number):,} hosts{wish_text(fabric, part.where)}"
    return f"{needs}: {', '.join(filter(None, has))}"


def may_take(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    block: int,
    leaving: Collection[int],
    room: HostSet,
) -> HostSet:
    """Return the hosts that may take over a block: in the domains that the rest of its segments, or
    of its role, is in. `leaving`: blocks that have no host yet, this one among them; `room`: hosts
    that may take them."""
    if (rules := role_rules(fabric, request)) is not None:
        role = rules.role_of(block)
        own, alone = rules.blocks[role], request.roles[role].request
        its = [other - own.start for other in leaving if other in own]
        allowed = role_domains.may_join(fabric, rules, hosts, block, leaving, room)
        hosts = rules.part(hosts, role)
        return allowed & may_take(fabric, alone, hosts, block - own.start, its, room)
    segments, allowed = segments_of(fabric, request), hostset.full(fabric.host_count)
    if segments is None:
        return allowed
    number = part_by_block(fabric, request, segments)
    for level in segments.levels:
        part = np.flatnonzero(number // level.blocks == number[block] // level.blocks)
        stays = [int(other) for other in part if other not in leaving]
        if stays:
            domain = fabric.tiers[level.depth].domain_by_host[hosts[stays[0]]]
            allowed &= masks(fabric, level.depth)[int(domain)]
    return allowed
