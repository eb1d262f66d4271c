"""Which jobs a gang may lie beside: alone in its racks, away from some, near another.

Both sides keep a wish: a gang that is alone in its racks is not joined, and a job that
others avoid avoids them. What that leaves depends on the gangs that hold hosts at a moment,
so the same functions serve decisions, reservations, commits and swaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from muster.structs import struct
from placement import BadInput
from placement.fabric.constraints import around, tier_of
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.names import stated_tenant


@struct(frozen=True, slots=True)
class Affinity:
    """Rules about the jobs that a gang may lie beside. `exclusive`: the tier whose domains are
    shared with no other job. `avoid`: by tier, names of jobs, or patterns such as `eval-*`, that no
    domain is shared with. `near`: the job whose zones are preferred."""

    exclusive: str = ""
    avoid: tuple[tuple[str, tuple[str, ...]], ...] = ()
    near: str = ""


ANYBODY = Affinity()


@struct(frozen=True, slots=True)
class Occupant:
    """A job as others see it: its name, what it wants of them, the hosts it holds."""

    name: str
    wants: Affinity
    hosts: HostSet = 0


def check(fabric: Fabric, wants: Affinity) -> None:
    """Refuse affinity that cannot be met. Raises: BadInput when a tier does not exist, or when a
    job that shall be near is also avoided."""
    if wants.exclusive:
        tier_of(fabric, wants.exclusive, "constraints.exclusive")
    for tier, names in wants.avoid:
        field = f"constraints.avoid.{tier}"
        depth = tier_of(fabric, tier, field)
        if wants.near and depth == 0 and matches(names, wants.near):
            raise BadInput(field, f"{wants.near} cannot be avoided there and be near")


def separating_tier(fabric: Fabric, occupant: Occupant, other: Occupant) -> int | None:
    """Return the outermost tier of which the two jobs share no domain; None when they may share
    all."""
    tiers = [
        tier_of(fabric, tier, "constraints")
        for a, b in ((occupant, other), (other, occupant))
        for tier in _separation_tiers(a.wants, b.name)
    ]
    return min(tiers, default=None)


def _separation_tiers(wants: Affinity, name: str) -> Iterable[str]:
    if wants.exclusive:
        yield wants.exclusive
    yield from (tier for tier, names in wants.avoid if matches(names, name))


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether `name` is one of these names or patterns, all of them full names: a pattern is for
    jobs of one tenant."""
    return any(
        name == pattern
        or (stated_tenant(name) == stated_tenant(pattern) and fnmatchcase(name, pattern))
        for pattern in patterns
    )


def closed_by(fabric: Fabric, job: Occupant, neighbours: Iterable[Occupant]) -> dict[str, HostSet]:
    """Return the hosts that `job` must not use because of each of the `neighbours`, by name. Cost:
    O(neighbours)."""
    closed = {}
    for neighbour in neighbours:
        if (
            neighbour.name != job.name
            and (tier := separating_tier(fabric, job, neighbour)) is not None
        ):
            closed[neighbour.name] = around(fabric, tier, neighbour.hosts)
    return closed
