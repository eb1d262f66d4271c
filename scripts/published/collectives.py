"""Collectives as published: bytes over zones, times, bus-bandwidth factors.

Counted from message schedules (network.collectives). Zones are equal and contiguous
unless a row says otherwise; kappa is bytes over zone boundaries in payloads.
"""

from __future__ import annotations

from fractions import Fraction
from statistics import fmean

import numpy as np

from network.collectives.schedules import (
    Algorithm,
    Link,
    Operation,
    Schedule,
    algorithms,
    leaving,
    schedule_of,
    schedule_seconds,
)
from placement.fabric.tree import Ints
from scripts.published import Value

RANKS = 64
ZONES = (2, 4, 8)
LINK = Link(alpha_s=10e-6, bytes_per_s=50e9)
MIB, GIB = 1 << 20, 1 << 30
REDUCE, GATHER = Operation.ALL_REDUCE, Operation.ALL_GATHER


def kappa(schedule: Schedule, zones: Ints) -> Fraction:
    """Return how many payloads cross zone boundaries, in both directions (in papers: bytes / S)."""
    return Fraction(int(leaving(schedule, zones, int(zones.max()) + 1).sum()), schedule.parts)


def busiest_share(schedule: Schedule) -> Fraction:
    """Return the bytes that the busiest rank sends, as a share of the payload."""
    return Fraction(
        int(leaving(schedule, np.arange(schedule.size), schedule.size).max()), schedule.parts
    )


def contiguous(zones: int) -> Ints:
    return np.repeat(np.arange(zones), RANKS // zones)


def cuts(algorithm: Algorithm, operation: Operation = REDUCE) -> Value:
    """Kappa for 64 ranks in 2, 4 and 8 zones."""
    layouts = (contiguous(zones) for zones in ZONES)
    return tuple(
        round(float(kappa(schedule_of(operation, algorithm, where), where)), 3) for where in layouts
    )


def least_cuts(operation: Operation) -> Value:
    """The smallest kappa of all algorithms known for an operation."""
    every = (cuts(algorithm, operation) for algorithm in algorithms(operation))
    return tuple(min(column) for column in zip(*every, strict=True))  # type: ignore[arg-type]


def random_ring(seeds: int = 200) -> float:
    """Kappa of a ring in random order over 4 zones, mean over seeds 0, 1, 2, ..."""
    ring = schedule_of(REDUCE, Algorithm.RING, contiguous(4))
    orders = (np.random.default_rng(seed).permutation(contiguous(4)) for seed in range(seeds))
    return fmean(float(kappa(ring, order)) for order in orders)


def all_reduce_ms(algorithm: Algorithm) -> Value:
    """128 ranks, then 2,048; 1 MiB, then 1 GiB."""
    return tuple(
        round(
            1e3 * schedule_seconds(schedule_of(REDUCE, algorithm, np.zeros(n, int)), payload, LINK),
            3,
        )
        for n in (128, 2_048)
        for payload in (MIB, GIB)
    )


def bus_factor(operation: Operation, n: int) -> Fraction:
    """Bus bandwidth / algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md."""
    return Fraction(n - 1, n) * (2 if operation is Operation.ALL_REDUCE else 1)


def factors() -> Value:
    """Return payloads that the busiest of 8 ranks sends, where nccl-tests' factor agrees."""
    one_zone = np.zeros(8, dtype=np.int64)
    sent = {op: busiest_share(schedule_of(op, Algorithm.RING, one_zone)) for op in Operation}
    return tuple(float(sent[op]) for op in sent if sent[op] == bus_factor(op, 8))


OURS = {
    "30": lambda: least_cuts(REDUCE),
    "30b": lambda: cuts(Algorithm.RING),
    "30c": lambda: cuts(Algorithm.HIERARCHICAL),
    "30d": lambda: cuts(Algorithm.NEAR),
    "30e": lambda: cuts(Algorithm.FAR),
    "30f": lambda: cuts(Algorithm.TREE),
    "30g": random_ring,
    "30h": lambda: least_cuts(GATHER),
    "30i": lambda: cuts(Algorithm.NEAR, GATHER),
    "30j": lambda: all_reduce_ms(Algorithm.RING),
    "30k": lambda: all_reduce_ms(Algorithm.NEAR),
    "30l": lambda: all_reduce_ms(Algorithm.RECURSIVE_DOUBLING),
    "30m": lambda: all_reduce_ms(Algorithm.TREE),
    "33": factors,
}
