"""Domains of the roles of a gang: which role lies in one domain, beside which others, and apart
from which.

A role may have to lie in one domain of a tier (`same`), alone or together with others (`beside`),
in equal segments that lie in one domain each, and in no domain with another role (`avoid`).

Theory of operation. How many hosts of each role lie in each domain of the innermost tier that its
constraints name is one integer program, in which no domain gives more hosts than are free. Roles
that are bound to domains further out, and those that are not bound at all, take what these leave:
domains are nested, so that any hosts of a domain will do for them, and counting them there is
enough. So the program has a solution exactly where the gang has room. It is solved on a few domains
first, among which most gangs have room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.constraints import around, gpus_wanted, tier_of
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints, above, masks
from placement.workload.request import Request
from placement.workload.roles import blocks_of_roles

WORK = 1.0  # deterministic time of CP-SAT for one program, about as many seconds
LOOSE = -1  # depth of a role without constraints


@struct(frozen=True, slots=True)
class TierRule:
    """Roles, by number, that one domain of the tier at `depth` holds, or two that share none."""

    depth: int
    roles: tuple[int, ...]


@struct(frozen=True, slots=True)
class RoleRules:
    """The constraints of all roles of a gang, on one fabric.

    `blocks`: of each role. `segments`: by role, the depth of its segments and the blocks of one;
    None of a role without. `together`: what one domain holds; `apart`: pairs that share none.
    """

    names: tuple[str, ...]
    blocks: tuple[range, ...]
    segments: tuple[tuple[int, int] | None, ...]
    together: tuple[TierRule, ...]
    apart: tuple[TierRule, ...]

    def size(self, *roles: int) -> int:
        """Return how many hosts these roles need."""
        return sum(len(self.blocks[role]) for role in roles)

    def part(self, hosts: Sequence[int], role: int) -> Sequence[int]:
        """Return the hosts of a role. `hosts`: of all blocks, or none."""
        return hosts[self.blocks[role].start : self.blocks[role].stop]

    def role_of(self, block: int) -> int:
        """Return the number of the role of a block."""
        return next(role for role, own in enumerate(self.blocks) if block < own.stop)

    def depth(self, role: int) -> int:
        """Return the depth of the innermost tier in whose domains the hosts of a role are counted;
        LOOSE where they need not be."""
        own = self.segments[role]
        rules = chain(self.together, self.apart)
        named = [rule.depth for rule in rules if role in rule.roles]
        return max([LOOSE, *named, *([own[0]] if own else [])])

    def least(self, role: int, depth: int) -> int:
        """Return how many hosts of a role lie together at least in each domain at `depth`."""
        is_whole = any(rule.depth >= depth and role in rule.roles for rule in self.together)
        own = self.segments[role]
        return self.size(role) if is_whole else own[1] if own and own[0] >= depth else 1

    @property
    def bound(self) -> list[int]:
        """Roles with constraints, those of the innermost tiers first."""
        roles = [role for role in range(len(self.names)) if self.depth(role) != LOOSE]
        return sorted(roles, key=self.depth, reverse=True)

    @property
    def are_independent(self) -> bool:
        """Whether there is room for all as soon as there is room for each by itself."""
        return len(self.bound) < 2


def resolve(
    fabric: Fabric, request: Request, segments: Sequence[tuple[int, int] | None]
) -> RoleRules:
    """Return the constraints with tiers by depth and roles by number. Raises: BadInput naming the
    key of a role whose tier is not there."""
    names = tuple(role.name for role in request.roles)
    together, apart = list[TierRule](), list[TierRule]()
    for own in request.where.roles:
        role = names.index(own.role)
        path = f"roles.{role}"
        if own.same:
            together.append(TierRule(tier_of(fabric, own.same, f"{path}.same"), (role,)))
        for name, others in own.beside:
            depth = tier_of(fabric, name, f"{path}.beside.{name}")
            together.append(TierRule(depth, (role, *map(names.index, others))))
        for name, others in own.avoid:
            depth = tier_of(fabric, name, f"{path}.avoid.{name}")
            apart += [TierRule(depth, (role, names.index(other))) for other in others]
    parts = blocks_of_roles(request, gpus_wanted(fabric, request.where))
    blocks = tuple(range(part.start, part.stop) for part in parts)
    return RoleRules(names, blocks, tuple(segments), tuple(together), tuple(apart))


def _dearness(fabric: Fabric, rules: RoleRules, free: Ints, role: int, near: Sequence[int]) -> Ints:
    """Return the cost of a host in each domain of the tier of a role: those of `near` are the
    cheapest, then those in zones with it, then the zones with most room, in these the domains with
    least."""
    tiers, depth = fabric.tiers, rules.depth(role)
    zone, free_in, room = above(fabric, depth)[0], tiers[0].count(free), tiers[depth].count(free)
    rank = np.argsort(np.argsort(-free_in, kind="stable"), kind="stable")[zone]
    own, gang = np.array(rules.part(near, role), int), np.array(near, int)
    attraction = tiers[depth].count(own[own >= 0]) * (len(gang) + 1)
    attraction += tiers[0].count(gang[gang >= 0])[zone]
    dear = (attraction.max() - attraction) * len(free_in) + rank
    return np.asarray(dear * (int(room.max()) + 1) + room)


def _few_hosts(fabric: Fabric, rules: RoleRules, free: Ints, near: Sequence[int]) -> Ints:
    """Return hosts of a few domains that are cheap for each role, in a few zones each, with room
    for twice as many as it needs."""
    inner, many = rules.depth(rules.bound[0]), len(rules.bound) + 1
    tier, zone = fabric.tiers[inner], above(fabric, inner)[0]
    room, chosen = tier.count(free), np.zeros(len(tier.domains), dtype=np.bool_)
    for role in rules.bound:
        dear = _dearness(fabric, rules, free, role, near)
        usable = np.flatnonzero(room >= rules.least(role, inner))
        in_order = usable[np.argsort(dear[above(fabric, inner)[rules.depth(role)]][usable])]
        for number in [*dict.fromkeys(zone[in_order].tolist())][:many]:
            inside = in_order[zone[in_order] == number]
            enough = int(np.searchsorted(room[inside].cumsum(), 2 * rules.size(role)))
            chosen[inside[: max(many, enough + 1)]] = True
    return free[chosen[tier.domain_by_host[free]]]


class _RoleProgram:
    """Hosts of each role by domain, as an integer program. `near`: the hosts of the blocks in a
    placement to come near, or none; None where any solution will do."""

    def __init__(
        self, fabric: Fabric, rules: RoleRules, free: Ints, near: Sequence[int] | None
    ) -> None:
        from placement.solver import IntegerProgram  # most gangs have no such constraints

        self._fabric, self._rules, self._free = fabric, rules, free
        self._program = IntegerProgram()
        self._counts = {role: self._variables(role, near) for role in rules.bound}
        for rule in rules.together:
            self._add_together(rule)
        for role in rules.bound:
            if (segment := rules.segments[role]) is not None:
                self._add_segments(role, *segment)
        for rule in rules.apart:
            self._add_apart(rule)
        for depth in {rules.depth(role) for role in rules.bound}:
            self._add_room(depth)

    def _variables(self, role: int, near: Sequence[int] | None) -> dict[int, int]:
        """Return the number of the variable of each domain that has free hosts."""
        depth, size = self._rules.depth(role), self._rules.size(role)
        room = self._fabric.tiers[depth].count(self._free)
        most, dear = np.minimum(room, size), np.zeros_like(room)
        if near is not None:
            dear = _dearness(self._fabric, self._rules, self._free, role, near)
        counts = {
            int(domain): self._program.variable(int(most[domain]), int(dear[domain]))
            for domain in np.flatnonzero(most)
        }
        self._program.row(size, size, [(count, 1) for count in counts.values()])
        return counts

    def _inside(self, role: int, depth: int) -> dict[int, list[tuple[int, int]]]:
        """Return the entries of a role's hosts in each domain at `depth`."""
        inside = dict[int, list[tuple[int, int]]]()
        up = above(self._fabric, self._rules.depth(role))[depth]
        for domain, count in self._counts[role].items():
            inside.setdefault(int(up[domain]), []).append((count, 1))
        return inside

    def _add_together(self, rule: TierRule) -> None:
        sizes = [self._rules.size(role) for role in rule.roles]
        parts = [self._inside(role, rule.depth) for role in rule.roles]
        room = self._fabric.tiers[rule.depth].count(self._free)
        holds = {
            domain: self._program.variable(1, 0)
            for domain in np.flatnonzero(room >= sum(sizes)).tolist()
        }
        self._program.row(1, 1, [(here, 1) for here in holds.values()])
        for size, part in zip(sizes, parts, strict=True):
            for domain, entries in part.items():
                whole = [(holds[domain], -size)] if domain in holds else []
                self._program.row(0, 0, [*entries, *whole])

    def _add_segments(self, role: int, depth: int, blocks: int) -> None:
        for entries in self._inside(role, depth).values():
            many = self._program.variable(self._rules.size(role) // blocks, 0)
            self._program.row(0, 0, [*entries, (many, -blocks)])

    def _add_apart(self, rule: TierRule) -> None:
        one, other = (self._inside(role, rule.depth) for role in rule.roles)
        sizes = [self._rules.size(role) for role in rule.roles]
        for domain in one.keys() & other.keys():
            is_other = self._program.variable(1, 0)
            self._program.row(None, sizes[0], [*one[domain], (is_other, sizes[0])])
            self._program.row(None, 0, [*other[domain], (is_other, -sizes[1])])

    def _add_room(self, depth: int) -> None:
        """Give no more hosts of a domain than are free."""
        roles = [role for role in self._counts if self._rules.depth(role) >= depth]
        parts = [self._inside(role, depth) for role in roles]
        for domain, room in enumerate(self._fabric.tiers[depth].count(self._free).tolist()):
            entries = [entry for part in parts for entry in part.get(domain, ())]
            if len(entries) > 1:
                self._program.row(0, room, entries)

    def solved(self, work: float) -> dict[int, dict[int, int]] | None:
        """Return the hosts of each role in each domain; none at all where it is proved that there
        is no way, and None where none was found in the deterministic time `work`."""
        values, bound = self._program.solve_with_bound(work)
        if values is None:
            return None if bound is None else {}
        return {
            role: {domain: values[count] for domain, count in counts.items() if values[count]}
            for role, counts in self._counts.items()
        }


@lru_cache(maxsize=4096)
def have_room(fabric: Fabric, rules: RoleRules, hosts: HostSet) -> bool | None:
    """Return whether hosts of these can be shared out among the roles; None where not decided.
    Cost: some milliseconds."""
    free = hostset.indices(hosts)
    few = _few_hosts(fabric, rules, free, ())
    if len(few) < len(free) and _RoleProgram(fabric, rules, few, None).solved(WORK):
        return True
    counts = _RoleProgram(fabric, rules, free, None).solved(WORK)
    return None if counts is None else bool(counts)


def reserve_hosts(
    fabric: Fabric, rules: RoleRules, hosts: HostSet, near: Sequence[int] = ()
) -> dict[int, HostSet] | None:
    """Return hosts for each role with constraints; None where no way was found. `near`: the hosts
    of the blocks in a placement that this should be like, -1 for a host that is gone."""
    free = hostset.indices(hosts)
    few = _few_hosts(fabric, rules, free, near)
    counts = _RoleProgram(fabric, rules, few, near).solved(WORK) or (
        _RoleProgram(fabric, rules, free, None).solved(WORK)
    )
    if not counts:
        return None
    reserved, rack = dict[int, HostSet](), fabric.tiers[-1]
    for role in rules.bound:
        tier, taken = fabric.tiers[rules.depth(role)].domain_by_host, list[int]()
        is_old = np.isin(free, rules.part(near, role))
        in_rack = rack.count(free)[rack.domain_by_host[free]]
        for domain, count in counts[role].items():
            inside = np.lexsort((free, -in_rack, ~is_old, tier[free] != domain))[:count]
            taken += free[inside].tolist()
        reserved[role] = hostset.of(taken)
        free = np.setdiff1d(free, taken, assume_unique=True)
    return reserved


def place_by_role(
    fabric: Fabric,
    rules: RoleRules,
    hosts: HostSet,
    near: Sequence[int],
    place_role: Callable[[int, HostSet], Sequence[int] | None],
) -> tuple[int, ...] | None:
    """Place each role on hosts of its own, those with constraints first; None where no way was
    found. `near`: as of `reserve_hosts`; `place_role`: places a role, by number, on some of these
    hosts."""
    reserved = reserve_hosts(fabric, rules, hosts, near)
    if reserved is None:
        return None
    placed: list[int] = [0] * rules.size(*range(len(rules.names)))
    left = hosts & ~sum(reserved.values())  # roles share no host
    for role in (*reserved, *(r for r in range(len(rules.names)) if r not in reserved)):
        room = reserved.get(role, left)
        if role not in reserved:
            was = hostset.of(host for host in rules.part(near, role) if host >= 0)
            beside = left & around(fabric, 0, was) if was else 0
            room = beside if beside.bit_count() >= rules.size(role) else left
        own = place_role(role, room)
        if own is None:
            return None
        placed[rules.blocks[role].start : rules.blocks[role].stop] = own
        left &= ~hostset.of(own)
    return tuple(placed)


def broken_rules(fabric: Fabric, rules: RoleRules, hosts: Sequence[int]) -> list[str]:
    """Name the constraints between roles that a gang on `hosts`, in block order, does not keep, in
    sentences."""
    wrong = []
    for rule in rules.together:
        parts = (_domains(fabric, rules, hosts, role, rule.depth) for role in rule.roles)
        if (lies_in := len(set(chain(*parts)))) > 1:
            named = f"{_named(rules, rule.roles)} in {lies_in} of {fabric.tiers[rule.depth].name}"
            wrong.append(f"{named}, must be in one")
    for rule in rules.apart:
        one, other = (set(_domains(fabric, rules, hosts, role, rule.depth)) for role in rule.roles)
        if shared := one & other:
            tier = fabric.tiers[rule.depth]
            where = tier.domains[min(shared)]
            wrong.append(f"{_named(rules, rule.roles)} in {where}, must share no {tier.name}")
    return wrong


def _domains(
    fabric: Fabric, rules: RoleRules, hosts: Sequence[int], role: int, depth: int
) -> list[int]:
    own = np.asarray(rules.part(hosts, role), dtype=np.int64)
    domains: list[int] = fabric.tiers[depth].domain_by_host[own].tolist()
    return domains


def _named(rules: RoleRules, roles: Iterable[int]) -> str:
    """`role a lies`, `roles a and b lie`."""
    names = [rules.names[role] for role in roles]
    if len(names) == 1:
        return f"role {names[0]} lies"
    return f"roles {', '.join(names[:-1])} and {names[-1]} lie"


def lacking_text(fabric: Fabric, rules: RoleRules, hosts: HostSet) -> str:
    """Say which constraint between roles has no room on these hosts, each role having some by
    itself."""
    for rule in rules.together:
        room = [(hosts & mask).bit_count() for mask in masks(fabric, rule.depth)]
        if max(room) < (needed := rules.size(*rule.roles)):
            tier, names = fabric.tiers[rule.depth].name, [rules.names[r] for r in rule.roles]
            needs = f"roles {' and '.join(names)} need {needed:,} in one {tier}"
            return f"{needs}, at most {max(room):,} are there"
    return "room for each role, but not for all of them as their constraints ask"


def may_join(
    fabric: Fabric,
    rules: RoleRules,
    hosts: Sequence[int],
    block: int,
    leaving: Collection[int],
    room: HostSet,
) -> HostSet:
    """Return the hosts that may take over a block without breaking a constraint between roles.
    `leaving`: blocks that have no host yet, this one among them; `room`: hosts that these may
    take."""
    allowed, role = hostset.full(fabric.host_count), rules.role_of(block)
    for rule in rules.together:
        if role not in rule.roles:
            continue
        own = [b for r in rule.roles for b in rules.blocks[r]]
        stays = [hosts[b] for b in own if b not in leaving]
        domains = masks(fabric, rule.depth)
        if stays:
            allowed &= domains[int(fabric.tiers[rule.depth].domain_by_host[stays[0]])]
        else:
            roomy = (mask for mask in domains if (mask & room).bit_count() >= len(own))
            allowed &= sum(roomy)  # domains share no host
    for rule in rules.apart:
        if role in rule.roles:
            other = rules.blocks[next(r for r in rule.roles if r != role)]
            stays = [hosts[b] for b in other if b not in leaving]
            taken = set(fabric.tiers[rule.depth].domain_by_host[stays].tolist())
            allowed &= ~sum(masks(fabric, rule.depth)[domain] for domain in taken)
    return allowed
