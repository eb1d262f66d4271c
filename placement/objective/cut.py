"""The referee: the bytes per step that cross the boundaries of each tier.

It knows ranks, axes and domains, and nothing of how a placement was found. The ranks
of a group lie a stride apart; an edge is cut when its two ends lie in different domains. So it
says as well what a gang sends over each uplink, and on which uplinks gangs wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric, Floats, Ints, Uplink, of_built
from placement.workload.request import Request, TierCut
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.trees import tree_edges

FIRST, LAST = slice(0, 1), slice(-1, None)
ROUNDING = 1 + 1e-9


@with_gang_view
def cut(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[TierCut, ...]:
    """Count the bytes over each tier, outermost first, for the host of each block.

    Units: bytes per step, each byte counted once. Cost: O(ranks x axes), 0.1 ms a tier for 16,384
    ranks; sorted for hierarchical and all-to-all axes, 0.5 ms.
    """
    if len(hosts) == 1 or fabric.is_undivided:
        return no_cuts(fabric)
    cuts, chosen = [], np.asarray(hosts, dtype=np.int64)
    for tier in fabric.tiers:
        if len(tier.domains) == 1:  # there is nothing to cross
            cuts.append(TierCut(tier.name, 0))
            continue
        domain_by_block = tier.domain_by_host[chosen]
        by_axis = cut_by_axis(request, fabric.gpus_per_host, domain_by_block)
        cuts.append(TierCut(tier.name, sum(b for _, b in by_axis), by_axis))
    return tuple(cuts)


@of_built
@lru_cache(maxsize=64)
def no_cuts(fabric: Fabric) -> tuple[TierCut, ...]:
    """Return the cuts of a gang that crosses no uplink, such as a gang of one host."""
    return tuple(TierCut(tier.name, 0) for tier in fabric.tiers)


def cut_by_axis(
    request: Request, gpus_per_host: int, domain_by_block: Ints
) -> tuple[tuple[str, int], ...]:
    """Return (axis, bytes) of the axes that cross domains at all, in rank order."""
    if not np.count_nonzero(domain_by_block != domain_by_block[0]):  # as .all(), in a fifth
        return ()
    by_rank = np.repeat(domain_by_block, gpus_per_host)
    crossing = []
    for traffic in axis_traffic(request, gpus_per_host):
        crossed = _crossing(traffic, groups_of(by_rank, traffic))
        if crossed:
            crossing.append((traffic.axis, crossed))
    return tuple(crossing)


@with_gang_view
def egress(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[int, ...]:
    """Count the bytes per step that leave each domain of the outermost tier.

    A hierarchical collective over Z domains leaves each of them equally.
    """
    if not fabric.tiers:
        return ()
    tier = fabric.tiers[0]
    domains = tier.domain_by_host[np.asarray(hosts, dtype=np.int64)]
    gpus = request.ranks_per_host(fabric.gpus_per_host)
    return tuple(round(b) for b in _egress(request, gpus, domains, len(tier.domains)))


def _egress(request: Request, gpus_per_host: int, domain_by_block: Ints, domains: int) -> Floats:
    by_axis = egress_by_axis(request, gpus_per_host, domain_by_block, domains)
    return sum((leaves for _, leaves in by_axis), np.zeros(domains))


def egress_by_axis(
    request: Request, gpus_per_host: int, domain_by_block: Ints, domains: int, per_host: int = 0
) -> tuple[tuple[AxisTraffic, Floats], ...]:
    """Return for each axis the bytes per step that leave each domain. Shape: (domains,).
    `per_host`: ranks of a host, where blocks are not those of hosts."""
    by_rank = np.repeat(domain_by_block, gpus_per_host)
    return tuple(
        (traffic, leaving(traffic, groups_of(by_rank, traffic), domains))
        for traffic in axis_traffic(request, per_host or gpus_per_host)
    )


def egress_by_host(
    request: Request, gpus_per_host: int, hosts: Ints, domain_by_block: Ints, host_count: int
) -> tuple[Floats, ...]:
    """Return for each axis the bytes per step with which each host takes part in what leaves its
    domain. `hosts`, `domain_by_block`: of each block. Shape: (host_count,).

    Each rank sends its own edges; what a hierarchical collective sends out of a domain is
    shared by the members there.
    """
    host, domain = np.repeat(hosts, gpus_per_host), np.repeat(domain_by_block, gpus_per_host)
    return tuple(
        leaving(t, groups_of(domain, t), host_count, groups_of(host, t))
        for t in axis_traffic(request, gpus_per_host)
    )


def is_narrow(fabric: Fabric, uplink: Uplink) -> bool:
    """Return whether the hosts behind an uplink can send more than it carries; on other uplinks no
    gang waits."""
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
    """Return the part of the time for which a gang with steps so long keeps each narrow uplink
    busy."""
    shares = {}
    for uplink, sent in _over_uplinks(fabric.as_built, request, hosts):
        capacity = float(fabric.tiers[uplink[0]].uplink_bytes_per_s[uplink[1]])
        if capacity and is_narrow(fabric, uplink):
            shares[uplink] = sent / step_s / capacity
    return shares


@lru_cache(maxsize=2_048)
def _over_uplinks(
    fabric: Fabric, request: Request, hosts: tuple[int, ...]
) -> tuple[tuple[Uplink, float], ...]:
    """Bytes of a step over each uplink that the gang crosses. Cost: 10 ms for 2,048 ranks, once."""
    loads, chosen = [], np.asarray(hosts, dtype=np.int64)
    gpus = request.parallelism.world_size // len(hosts)
    for depth, tier in enumerate(fabric.tiers):
        domain = tier.domain_by_host[chosen]
        if (domain == domain[0]).all():
            continue
        total = _egress(request, gpus, domain, len(tier.domains))
        loads += [((depth, int(n)), float(total[n])) for n in np.flatnonzero(total)]
    return tuple(loads)


def _crossing(traffic: AxisTraffic, groups: Ints) -> int:
    """Bytes of one axis that cross domains."""
    w, n = traffic.edge_bytes, traffic.size
    match traffic.pattern:
        case Pattern.RING | Pattern.CHAIN:
            last = w if traffic.pattern is Pattern.RING else traffic.wrap_bytes
            wraps = int(np.count_nonzero(groups[:, -1] != groups[:, 0]))
            steps = int(np.count_nonzero(groups[:, 1:] != groups[:, :-1]))
            return w * steps + last * wraps
        case Pattern.HIERARCHICAL:
            extra = len(_parts(groups)[1]) - len(groups)
            return -(-w * extra * n // (n - 1))  # whole bytes, never fewer than cross
        case Pattern.ALL_TO_ALL:
            return w * int(groups.size * n - np.sum(_parts(groups)[1] ** 2))
        case Pattern.PAIRS:
            near, far = np.split(groups[0], [traffic.ranks])
            there = np.bincount(far, minlength=int(near.max()) + 1)
            return w * int(np.sum(len(far) - there[near]))
        case Pattern.TREE:
            tail, head, parts = tree_edges(n, traffic.node)
            sent = int(np.sum((groups[:, tail] != groups[:, head]) * parts))
            return ceil(sent * traffic.tree_part)


def _parts(groups: Ints) -> tuple[Ints, Ints, Ints]:
    """Every (group, domain) that meet: domain, ranks there, domains the group touches.

    Sorted instead of tabled: 100,000 groups x 100,000 domains have no table.
    """
    domains = int(groups.max()) + 1
    keys, ranks = np.unique(groups + np.arange(len(groups))[:, None] * domains, return_counts=True)
    group, domain = np.divmod(keys, domains)
    return domain, ranks, np.bincount(group)[group]


def leaving(traffic: AxisTraffic, groups: Ints, units: int, unit: Ints | None = None) -> Floats:
    """Return the bytes that leave each domain along one axis. `unit`: of each rank, what its share
    is counted to; its domain where nothing is given. Shape: (units,)."""
    w, n = traffic.edge_bytes, traffic.size
    if traffic.pattern is Pattern.HIERARCHICAL:
        domain, inside, spread = _parts(groups)
        each = w * n / (n - 1) * (spread - 1) / spread
        if unit is None:
            return np.asarray(np.bincount(domain, each, units), dtype=np.float64)
        return _by_unit(unit, _of_ranks(groups, each / inside), units)
    if traffic.pattern is Pattern.ALL_TO_ALL:
        domain, inside, _ = _parts(groups)
        if unit is None:
            pairs = np.bincount(domain, inside * (n - inside), units)
            return np.asarray(pairs * float(w), dtype=np.float64)
        return _by_unit(unit, _of_ranks(groups, (n - inside) * float(w)), units)
    unit = groups if unit is None else unit
    if traffic.pattern is Pattern.PAIRS:
        near, far = np.split(groups[0], [traffic.ranks])
        there = np.bincount(far, minlength=int(near.max()) + 1)
        return _by_unit(unit[0, : traffic.ranks], (len(far) - there[near]) * float(w), units)
    if traffic.pattern is Pattern.TREE:
        senders, receivers, parts = tree_edges(n, traffic.node)
        is_out = groups[:, senders] != groups[:, receivers]
        sent = is_out * (parts * float(traffic.tree_part))
        return _by_unit(unit[:, senders], sent, units)
    if traffic.pattern is Pattern.RING:
        return _bytesleaving(groups, np.roll(groups, -1, axis=1), unit, w, units)
    # A chain edge carries as much forwards as back: each end sends half.
    total = np.zeros(units)
    ways = ((slice(None, -1), slice(1, None)), w), ((LAST, FIRST), traffic.wrap_bytes)
    for one_way, edge in ways:
        for tail, head in (one_way, one_way[::-1]):
            total += _bytesleaving(groups[:, tail], groups[:, head], unit[:, tail], edge, units) / 2
    return total


def _of_ranks(groups: Ints, of_part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a value of each (group, domain) that meet, in the order of `_parts`, for each rank."""
    domains = int(groups.max()) + 1
    keys = groups + np.arange(len(groups))[:, None] * domains
    return np.asarray(of_part[np.unique(keys, return_inverse=True)[1].reshape(groups.shape)])


def _by_unit(unit: Ints, sent: npt.NDArray[Any], units: int) -> Floats:
    return np.asarray(np.bincount(unit.ravel(), sent.ravel(), units), dtype=np.float64)


def _bytesleaving(tail: Ints, head: Ints, unit: Ints, edge_bytes: int, units: int) -> Floats:
    """Bytes of the edges tail -> head that leave a domain, by the unit of the tail."""
    return np.asarray(np.bincount(unit[tail != head], minlength=units) * float(edge_bytes))
