"""What is free: whole zones, racks, hosts, or what a replayed mix of gangs leaves."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from placement.fabric import hostset
from placement.fabric.hostset import HostSet, Mask
from placement.fabric.tree import Fabric, Ints

CAPACITIES = ("zones", "racks", "hosts", "replay")


def free_hosts(fabric: Fabric, kind: str, wanted: int, rng: random.Random) -> HostSet:
    """Draw at least `wanted` free hosts, or few more."""
    wanted = min(wanted, fabric.host_count)
    make = {
        "zones": _free_zones,
        "racks": _free_racks,
        "hosts": _free_hosts,
        "replay": _free_after_replay,
    }[kind]
    return hostset.from_mask(make(fabric, wanted, rng))


def _zone_tier(fabric: Fabric) -> Ints:
    """Domains that count as zones: the ones with racks below them."""
    return fabric.tiers[max(0, len(fabric.tiers) - 2)].domain_by_host


def _free_zones(fabric: Fabric, wanted: int, rng: random.Random) -> Mask:
    """Whole zones in random order, the last one in whole racks only as far as needed."""
    zone = _zone_tier(fabric)
    free = np.zeros(fabric.host_count, dtype=np.bool_)
    for z in rng.sample(range(int(zone.max()) + 1), int(zone.max()) + 1):
        free |= zone == z
        if free.sum() >= wanted:
            break
    return free


def _free_racks(fabric: Fabric, wanted: int, rng: random.Random) -> Mask:
    return _by_group(fabric, fabric.tiers[-1].domain_by_host, wanted, rng)


def _free_hosts(fabric: Fabric, wanted: int, rng: random.Random) -> Mask:
    return _by_group(fabric, np.arange(fabric.host_count), wanted, rng)


def _by_group(fabric: Fabric, group: Ints, wanted: int, rng: random.Random) -> Mask:
    """Groups of hosts in random order; in half of the cases some zones are fuller than others.

    The order is that of exponential clocks, faster in zones of larger weight.
    """
    domain = fabric.tiers[0].domain_by_host
    zone = _zone_tier(fabric)
    spread = rng.choice((0.0, 1.5))
    of_domain = np.exp([rng.gauss(0, spread / 2) for _ in range(int(domain.max()) + 1)])
    of_zone = np.exp([rng.gauss(0, spread) for _ in range(int(zone.max()) + 1)])
    clock = np.array([rng.expovariate(1.0) for _ in range(int(group.max()) + 1)])
    when = clock[group] / (of_zone[zone] * of_domain[domain])
    order = np.lexsort((group, when))
    last = int(np.flatnonzero(group[order] == group[order[wanted - 1]])[-1])
    free = np.zeros(fabric.host_count, dtype=np.bool_)
    free[order[: last + 1]] = True
    return free


def _free_after_replay(fabric: Fabric, wanted: int, rng: random.Random) -> Mask:
    """Gangs of 1 to 512 hosts come and go, placed by best fit on zones, else by first fit.

    Ends when the free hosts have come down to `wanted` and have churned for a while.
    """
    zone = _zone_tier(fabric)
    free = np.ones(fabric.host_count, dtype=np.bool_)
    gangs: list[npt.NDArray[np.int64]] = []
    churned = 0
    while churned < 40:
        room = int(free.sum()) - wanted
        size = min(int(2 ** rng.uniform(0, 9)), max(room, 0))
        if size:
            hosts = _first_fit(free, zone, size)
            free[hosts] = False
            gangs.append(hosts)
        if room <= size:
            churned += 1
            if gangs and churned < 40:
                free[gangs.pop(rng.randrange(len(gangs)))] = True
        elif gangs and rng.random() < 0.3:
            free[gangs.pop(rng.randrange(len(gangs)))] = True
    return free


def _first_fit(free: Mask, zone: Ints, size: int) -> npt.NDArray[np.int64]:
    by_zone = np.bincount(zone[free], minlength=int(zone.max()) + 1)
    fitting = np.flatnonzero(by_zone >= size)
    among = free
    if len(fitting):
        among = free & (zone == fitting[np.argmin(by_zone[fitting])])
    return np.flatnonzero(among)[:size]
