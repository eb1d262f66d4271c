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
    algorithms,
    busiest_share,
    kappa,
    schedule_of,
    schedule_seconds,
)
from placement.fabric.tree import Ints
from scripts.published import Evidence, Row, Tolerance, Value, exactly, near

RANKS = 64
ZONES = (2, 4, 8)
LINK = Link(alpha_s=10e-6, bytes_per_s=50e9)
MIB, GIB = 1 << 20, 1 << 30
REDUCE, GATHER = Operation.ALL_REDUCE, Operation.ALL_GATHER


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


def as_printed(*published: float) -> Tolerance:
    """Every number to the digits that the source prints, 0.3 %."""

    def holds(ours: Value) -> bool:
        pairs = zip(ours, published, strict=True)  # type: ignore[arg-type]
        return all(abs(float(a) - b) <= 0.003 * b for a, b in pairs)

    return Tolerance("± 0.3 %", holds)


def bus_factor(operation: Operation, n: int) -> Fraction:
    """Bus bandwidth / algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md."""
    return Fraction(n - 1, n) * (2 if operation is Operation.ALL_REDUCE else 1)


def factors() -> Value:
    """Return payloads that the busiest of 8 ranks sends, where nccl-tests' factor agrees."""
    one_zone = np.zeros(8, dtype=np.int64)
    sent = {op: busiest_share(schedule_of(op, Algorithm.RING, one_zone)) for op in Operation}
    return tuple(float(sent[op]) for op in sent if sent[op] == bus_factor(op, 8))


ROWS = (
    Row(
        "30",
        "All-reduce, 64 ranks in 2, 4, 8 zones: least cut of all algorithms",
        "2(Z-1): 2 / 6 / 14",
        lambda: least_cuts(REDUCE),
        exactly((2.0, 6.0, 14.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30b",
        "... ring",
        "3.938 / 7.875 / 15.75",
        lambda: cuts(Algorithm.RING),
        exactly((3.938, 7.875, 15.75)),
        Evidence.DERIVED,
    ),
    Row(
        "30c",
        "... hierarchical",
        "2 / 6 / 14",
        lambda: cuts(Algorithm.HIERARCHICAL),
        exactly((2.0, 6.0, 14.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30d",
        "... near-first halving, farthest-first doubling",
        "2 / 6 / 14",
        lambda: cuts(Algorithm.NEAR),
        exactly((2.0, 6.0, 14.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30e",
        "... the other direction: ranks per zone times as much",
        "64 / 96 / 112",
        lambda: cuts(Algorithm.FAR),
        exactly((64.0, 96.0, 112.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30f",
        "... double binary tree (NCCL)",
        "4 / 10 / 22",
        lambda: cuts(Algorithm.TREE),
        exactly((4.0, 10.0, 22.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30g",
        "... ring in random order, 4 zones, mean of 200 seeds",
        "96",
        random_ring,
        near(96, 0.01),
        Evidence.DERIVED,
    ),
    Row(
        "30h",
        "All-gather, the same: least cut of all algorithms",
        "Z-1: 1 / 3 / 7",
        lambda: least_cuts(GATHER),
        exactly((1.0, 3.0, 7.0)),
        Evidence.DERIVED,
    ),
    Row(
        "30i",
        "... farthest-first doubling (NCCLX: wins on oversubscribed networks)",
        "1 / 3 / 7",
        lambda: cuts(Algorithm.NEAR, GATHER),
        exactly((1.0, 3.0, 7.0)),
        Evidence.INDEPENDENT,
    ),
    Row(
        "30j",
        "All-reduce by ring, ms: 128 ranks 1 MiB, 1 GiB, 2,048 ranks the same",
        "2.58 / 45.15 / 40.98 / 83.87",
        lambda: all_reduce_ms(Algorithm.RING),
        as_printed(2.58, 45.15, 40.98, 83.87),
        Evidence.FORMULA,
    ),
    Row(
        "30k",
        "... by halving and doubling",
        "0.182 / 42.75 / 0.262 / 43.15",
        lambda: all_reduce_ms(Algorithm.NEAR),
        as_printed(0.182, 42.75, 0.262, 43.15),
        Evidence.FORMULA,
    ),
    Row(
        "30l",
        "... by recursive doubling",
        "0.217 / 150.4 / 0.341 / 236.3",
        lambda: all_reduce_ms(Algorithm.RECURSIVE_DOUBLING),
        as_printed(0.217, 150.4, 0.341, 236.3),
        Evidence.FORMULA,
    ),
    Row(
        "30m",
        "... by double binary tree",
        "0.182 / 43.09 / 0.262 / 43.17",
        lambda: all_reduce_ms(Algorithm.TREE),
        as_printed(0.182, 43.09, 0.262, 43.17),
        Evidence.FORMULA,
    ),
    Row(
        "33",
        "Bus-bandwidth factors of 8 ranks: AR, AG, RS",
        "1.75 / 0.875 / 0.875",
        factors,
        exactly((1.75, 0.875, 0.875)),
        Evidence.FORMULA,
    ),
)
