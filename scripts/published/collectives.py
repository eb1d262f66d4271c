"""Collectives as published: bytes over zones, bus-bandwidth factors.

Counted by the referee of the cut (placement.objective.cut). Zones are equal and contiguous unless a
row says otherwise; kappa is bytes over zone boundaries in payloads.
"""

from __future__ import annotations

from statistics import fmean

import numpy as np

from placement.fabric.tree import Ints
from placement.objective.cut import cut_by_axis, egress_by_axis
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Request
from scripts.published import Value

RANKS = 64
ZONES = (2, 4, 8)
PAYLOAD = RANKS << 20  # whole blocks of a rank


def all_reduce(used: Collective, ranks: int = RANKS) -> Request:
    """Return a gang whose only axis sums PAYLOAD bytes, 2 (n-1)/n of it over a ring's edge."""
    sent = 2 * (ranks - 1) * PAYLOAD // ranks
    return Request(Parallelism(dp=ranks), traffic=(("dp", sent),), collectives=(("dp", used),))


def kappa(used: Collective, zones: Ints) -> float:
    """Return how many payloads cross zone boundaries, in both directions (in papers: bytes / S)."""
    return sum(sent for _, sent in cut_by_axis(all_reduce(used), 1, zones)) / PAYLOAD


def contiguous(zones: int) -> Ints:
    return np.repeat(np.arange(zones), RANKS // zones)


def cuts(used: Collective) -> Value:
    """Kappa for 64 ranks in 2, 4 and 8 zones."""
    return tuple(round(kappa(used, contiguous(zones)), 3) for zones in ZONES)


def least_cuts() -> Value:
    """The smallest kappa of all collectives."""
    return tuple(min(column) for column in zip(*map(cuts, Collective), strict=True))  # type: ignore[arg-type]


def random_ring(seeds: int = 200) -> float:
    """Kappa of a ring in random order over 4 zones, mean over seeds 0, 1, 2, ..."""
    orders = (np.random.default_rng(seed).permutation(contiguous(4)) for seed in range(seeds))
    return fmean(kappa(Collective.RING, order) for order in orders)


def factors() -> Value:
    """Return payloads that the busiest of 8 ranks sends in a ring: of an all-reduce, and of each of
    its halves. Source: nccl-tests, doc/PERFORMANCE.md."""
    ((_, sent),) = egress_by_axis(all_reduce(Collective.RING, 8), 1, np.arange(8), 8)
    whole = float(sent.max()) / PAYLOAD
    return whole, whole / 2, whole / 2


OURS = {
    "30": least_cuts,
    "30b": lambda: cuts(Collective.RING),
    "30c": lambda: cuts(Collective.HIERARCHICAL),
    "30d": lambda: cuts(Collective.HALVING_DOUBLING),
    "30e": lambda: cuts(Collective.HALVING_DOUBLING_FAR),
    "30f": lambda: cuts(Collective.TREE),
    "30g": random_ring,
    "33": factors,
}
