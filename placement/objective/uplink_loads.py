"""What a gang sends over each uplink, and which uplinks gangs wait for each other on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from placement.fabric.tree import Fabric, Uplink
from placement.objective.cut import egress_by_axis
from placement.workload.request import Request

ROUNDING = 1 + 1e-9


def is_narrow(fabric: Fabric, uplink: Uplink) -> bool:
    """Whether the hosts behind it send more than it carries; on another one nobody waits."""
    depth, number = uplink
    injected = _injected(fabric.as_built, depth)[number]
    return bool(injected > fabric.tiers[depth].uplink_bytes_per_s[number] * ROUNDING)


@lru_cache(maxsize=64)
def _injected(fabric: Fabric, depth: int) -> list[float]:
    """Bytes a second that the hosts of each domain send at most."""
    tier = fabric.tiers[depth]
    sums = np.bincount(tier.domain_by_host, fabric.injection_bytes_per_s, len(tier.domains))
    return [float(each) for each in sums]


def busy_shares(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], step_s: float
) -> dict[Uplink, float]:
    """The part of each narrow uplink that a gang with steps so long keeps busy on average."""
    shares = {}
    for uplink, sent in _sent(fabric.as_built, request, hosts):
        capacity = float(fabric.tiers[uplink[0]].uplink_bytes_per_s[uplink[1]])
        if capacity and is_narrow(fabric, uplink):
            shares[uplink] = sent / step_s / capacity
    return shares


@lru_cache(maxsize=2_048)
def _sent(
    fabric: Fabric, request: Request, hosts: tuple[int, ...]
) -> tuple[tuple[Uplink, float], ...]:
    """Bytes of a step over each uplink that the gang crosses. Cost: 10 ms for 2,048 ranks, once."""
    loads, chosen = [], np.asarray(hosts, dtype=np.int64)
    gpus = request.parallelism.world_size // len(hosts)
    for depth, tier in enumerate(fabric.tiers):
        domain = tier.domain_by_host[chosen]
        if (domain == domain[0]).all():
            continue
        leaving = egress_by_axis(request, gpus, domain, len(tier.domains))
        total = sum((out for _, out in leaving), np.zeros(len(tier.domains)))
        loads += [((depth, int(n)), float(total[n])) for n in np.flatnonzero(total)]
    return tuple(loads)
