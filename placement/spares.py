"""Spares: how many, which ones, and the swap that adds the least cut.

A zone of n hosts that fail at rate r and take time T to repair has Poisson(n r T)
of them out at any moment (Palm's theorem, M/G/inf). The zone holds the smallest k
that this exceeds with probability at most epsilon: 5 for 384 hosts at the Llama 3
rate, one day of repair and 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, lgamma, log

import numpy as np

from placement import hostset
from placement.cut import cut, cut_by_axis
from placement.fabric import Fabric
from placement.hostset import HostSet
from placement.request import Request, TierCut

FAILURES_PER_HOST_DAY = 3.79e-3  # Llama 3 405B: 419 interruptions of 2,048 hosts in 54 days
REPAIR_DAYS = 1.0
EPSILON = 0.01


def size_spares(
    hosts: int,
    failures_per_host_day: float = FAILURES_PER_HOST_DAY,
    repair_days: float = REPAIR_DAYS,
    epsilon: float = EPSILON,
) -> int:
    """Smallest k with P(Poisson(hosts x rate x repair) > k) <= epsilon.

    Terms are taken from logarithms: exp(-mean) is 0 from a mean of 745 on. Sums of
    them are good to about 1e-12, and an epsilon below 1e-9 counts as that.
    """
    mean = hosts * failures_per_host_day * repair_days
    if mean <= 0:
        return 0
    k, below = 0, exp(-mean)
    while 1 - below > max(epsilon, 1e-9):
        k += 1
        below += exp(k * log(mean) - mean - lgamma(k + 1))
    return k


@dataclass(frozen=True, slots=True)
class Swaps:
    """(block, host that takes it over) per failed block, and the cuts that result."""

    joined: tuple[tuple[int, int], ...]
    cuts: tuple[TierCut, ...]


def choose_swaps(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    blocks: Sequence[int],
    own: HostSet,
    free: HostSet,
) -> Swaps | None:
    """Hosts for the `blocks` that lost theirs, or None when too few can be had.

    Order: the least cut over the outermost tier, then a spare of one's own before a
    free host, then the least cut over the inner tiers, then the lowest host number.
    Blocks are served one after the other. Cost: one referee count per domain tried.
    """
    now = list(hosts)
    joined = []
    for block in blocks:
        best = _best_host(fabric, request, now, block, own, free)
        if best is None:
            return None
        now[block] = best
        joined.append((block, best))
        own &= ~(1 << best)
        free &= ~(1 << best)
    return Swaps(tuple(joined), cut(fabric, request, now))


def _best_host(
    fabric: Fabric, request: Request, hosts: list[int], block: int, own: HostSet, free: HostSet
) -> int | None:
    """Walk down the tree: on each tier keep the domains of the least cut."""
    candidates = hostset.members(own | free)
    if not candidates:
        return None
    for depth in range(len(fabric.tiers)):
        if depth == 1 and any(hostset.has(own, host) for host in candidates):
            candidates = [host for host in candidates if hostset.has(own, host)]
        candidates = _cheapest(fabric, request, hosts, block, candidates, depth)
    spares = [host for host in candidates if hostset.has(own, host)]
    return (spares or candidates)[0]


def _cheapest(
    fabric: Fabric,
    request: Request,
    hosts: list[int],
    block: int,
    candidates: list[int],
    depth: int,
) -> list[int]:
    """Those candidates whose domain on tier `depth` cuts least, with the block there."""
    domain_by_host = fabric.tiers[depth].domain_by_host
    by_domain = [
        (domain, list(members))
        for domain, members in groupby(candidates, key=lambda h: int(domain_by_host[h]))
    ]
    if len(by_domain) == 1:
        return candidates
    domain_by_block = domain_by_host[np.asarray(hosts)].copy()
    costs = []
    for domain, _ in by_domain:
        domain_by_block[block] = domain
        costs.append(sum(b for _, b in cut_by_axis(request, fabric.gpus_per_host, domain_by_block)))
    least = min(costs)
    return [
        h for (_, members), c in zip(by_domain, costs, strict=True) if c == least for h in members
    ]
