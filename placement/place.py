"""place(): the package's only entry point."""

from __future__ import annotations

from placement import hostset
from placement.cut import cut
from placement.fabric import Fabric
from placement.hostset import HostSet
from placement.request import (
    Answer,
    Infeasible,
    Insufficient,
    Limits,
    Placement,
    Request,
)


def impossible(fabric: Fabric, request: Request) -> Infeasible | None:
    """Proof that `request` never fits `fabric`, however empty; None if it may.

    Raises: BadInput when the ranks do not fill whole hosts.
    """
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    if gang + required <= fabric.host_count:
        return None
    spares = f" and {required:,} spares" if required else ""
    return Infeasible(
        f"needs {gang:,} hosts{spares}; {fabric.name} has {fabric.host_count:,} in all"
    )


def place(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    limits: Limits | None = None,
    *,
    most_spares: int | None = None,
) -> Answer:
    """Hosts in block order and spares, with the cut and how far from optimal it can be.

    `most_spares` caps what an *auto* rule may hold.

    Raises: BadInput when the ranks do not fill whole hosts.
    """
    never = impossible(fabric, request)
    if never is not None:
        return never
    gang = request.hosts_needed(fabric.gpus_per_host)
    hosts = tuple(hostset.members(free)[:gang])
    if len(hosts) < gang + request.spares.required(gang):
        return Insufficient(gang, len(hosts), (), "too few")
    return Placement(hosts, (), cut(fabric, request, hosts))
