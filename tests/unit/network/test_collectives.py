"""Counted schedules against the closed forms of the literature.

Bytes over zones are in payloads (kappa), for n ranks in z zones; times in alpha and beta.
"""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from placement.objective.cut import cut_by_axis
from placement.workload.request import Collective
from placement.workload.trees import tree_parents
from scripts.published.collectives import busiest_share, kappa
from tests.build import request
from tests.cases import case

AR, AG, RS = Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER
SHAPES = [(8, 2), (64, 2), (64, 4), (64, 8), (128, 16)]


def contiguous(n: int, z: int) -> Ints:
    return np.repeat(np.arange(z), n // z)


def made(operation: Operation, algorithm: Algorithm, zones: Ints) -> Schedule:
    return schedule_of(operation, algorithm, zones)


def one(operation: Operation, algorithm: Algorithm, n: int) -> Schedule:
    return made(operation, algorithm, np.zeros(n, dtype=np.int64))


# --- what a schedule does ----------------------------------------------------------


def blocks_known(plan: Schedule) -> list[set[int]]:
    """Play an all-gather: who ends up knowing whose block, however little is sent."""
    known = [{rank} for rank in range(plan.size)]
    for messages in plan.rounds:
        for _ in range(messages.steps):  # a ring passes on what the last step brought
            before = [set(k) for k in known]
            for src, dst in zip(messages.src, messages.dst, strict=True):
                known[dst] |= before[src]
    return known


@pytest.mark.parametrize("algorithm", algorithms(AG))
def test_every_rank_receives_the_blocks_it_lacks(algorithm: Algorithm) -> None:
    """All of them in the end, and n-1 blocks each, neither more nor less, folded or not."""
    for n in [2, 3, 5, 8, 12, 13, 64]:
        with case(n=n):
            plan = made(AG, algorithm, np.arange(n) // 4)
            received = np.zeros(n, dtype=np.int64)
            for messages in plan.rounds:
                np.add.at(received, messages.dst, messages.units)
            assert received.tolist() == [n - 1] * n
            assert all(len(known) == n for known in blocks_known(plan))


@pytest.mark.parametrize("n", [2, 3, 7, 8, 64, 100])
def test_both_trees_span_all_ranks_and_no_rank_is_inner_in_both(n: int) -> None:
    """Sent: half the vector up and to two children, half up as a leaf: 2 S in all."""
    plan = one(AR, Algorithm.TREE, n)
    assert sum(int(m.units.sum()) for m in plan.rounds) == 2 * 2 * (n - 1)
    assert busiest_share(plan) <= 2


def test_the_tree_is_nccls() -> None:
    """The picture in trees.cc: 0 - 8, 8 - 4 and 12, 12 - 10 and 13, with 14 ranks."""
    assert tree_parents(14).tolist() == [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12]


# --- bytes over zones --------------------------------------------------------------


# By operation and algorithm: payloads over zones, of n ranks in z zones one after the other.
CROSSED: dict[tuple[Operation, Algorithm], Callable[[int, int], Fraction | int]] = {
    (AR, Algorithm.RING): lambda n, z: z * Fraction(2 * (n - 1), n),
    (AG, Algorithm.RING): lambda n, z: z * Fraction(n - 1, n),
    (AR, Algorithm.HIERARCHICAL): lambda n, z: 2 * (z - 1),
    (AG, Algorithm.HIERARCHICAL): lambda n, z: z - 1,
    (AR, Algorithm.NEAR): lambda n, z: 2 * (z - 1),
    (AG, Algorithm.NEAR): lambda n, z: z - 1,
    (AR, Algorithm.FAR): lambda n, z: 2 * n * (1 - Fraction(1, z)),
    (AG, Algorithm.FAR): lambda n, z: n * (1 - Fraction(1, z)),
}


@pytest.mark.parametrize(("operation", "algorithm"), CROSSED)
def test_zones_send_what_the_closed_form_says(operation: Operation, algorithm: Algorithm) -> None:
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            plan, crossed = made(operation, algorithm, zones), CROSSED[operation, algorithm](n, z)
            assert kappa(plan, zones) == crossed
            assert [Fraction(int(u), plan.parts) for u in leaving(plan, zones, z)] == [
                Fraction(crossed) / z
            ] * z


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40).map(np.array))
def test_wherever_ranks_lie_the_hierarchy_meets_the_bound_and_nothing_crosses_less(
    zones: Ints,
) -> None:
    """The referee counts rings and hierarchies the same: an edge of w bytes is a payload of
    w n / 2(n-1)."""
    n, bound = len(zones), 2 * (len(np.unique(zones)) - 1)
    crossed = {each: kappa(made(AR, each, zones), zones) for each in algorithms(AR)}
    assert crossed[Algorithm.HIERARCHICAL] == bound == min(crossed.values())
    for used in (Algorithm.RING, Algorithm.HIERARCHICAL):
        traffic, collectives = {"dp": 2 * (n - 1) * 1_000}, {"dp": Collective[used.name]}
        job = request(dp=n, traffic=traffic, collectives=collectives)
        assert dict(cut_by_axis(job, 1, zones)).get("dp", 0) == crossed[used] * 1_000 * n
    for algorithm in algorithms(AG):
        gather, scatter = (kappa(made(half, algorithm, zones), zones) for half in (AG, RS))
        assert gather == scatter


# --- time --------------------------------------------------------------------------

ALPHA, RATE, PAYLOAD = 1e-5, 50e9, float(1 << 30)
LINK = Link(ALPHA, RATE)


def alphas_and_betas(operation: Operation, algorithm: Algorithm, n: int) -> tuple[float, float]:
    """Time as (messages in turn, payloads in turn)."""
    plan = one(operation, algorithm, n)
    steps = schedule_seconds(plan, 0, Link(1.0, 1.0))
    return steps, schedule_seconds(plan, 1, Link(0.0, 1.0))


@pytest.mark.parametrize("n", [2, 4, 64, 128, 2_048])
def test_alpha_beta_table(n: int) -> None:
    log, rest = log2(n), (n - 1) / n
    close = pytest.approx
    for half in (AG, RS):
        assert alphas_and_betas(half, Algorithm.RING, n) == close((n - 1, rest))
        assert alphas_and_betas(half, Algorithm.NEAR, n) == close((log, rest))
        assert alphas_and_betas(half, Algorithm.FAR, n) == close((log, rest))
        assert alphas_and_betas(half, Algorithm.BRUCK, n) == close((log, rest))
    assert alphas_and_betas(AR, Algorithm.RING, n) == close((2 * (n - 1), 2 * rest))
    assert alphas_and_betas(AR, Algorithm.RECURSIVE_DOUBLING, n) == close((log, log))
    assert alphas_and_betas(AR, Algorithm.NEAR, n) == close((2 * log, 2 * rest))


@pytest.mark.parametrize("n", [3, 5, 100])
def test_counts_that_are_no_power_of_two(n: int) -> None:
    assert alphas_and_betas(AG, Algorithm.BRUCK, n) == pytest.approx((ceil(log2(n)), (n - 1) / n))
    steps, _ = alphas_and_betas(AR, Algorithm.RECURSIVE_DOUBLING, n)
    assert steps == int(log2(n)) + 2  # folding in and out


@pytest.mark.parametrize("n", [4, 64, 128, 2_048])
def test_double_binary_tree_is_pipelined(n: int) -> None:
    assert alphas_and_betas(AR, Algorithm.TREE, n) == pytest.approx((2 * log2(n), 2))


@pytest.mark.parametrize(("q", "hosts"), [(8, 2), (8, 16), (4, 3)])
def test_two_levels(q: int, hosts: int) -> None:
    """q ranks a host at one speed, N hosts at another."""
    zones = contiguous(q * hosts, hosts)
    inside, across = Link(1e-6, 450e9), Link(ALPHA, RATE)
    plan = made(AR, Algorithm.HIERARCHICAL, zones)
    expected = (
        2 * (q - 1) * inside.alpha_s
        + 2 * (q - 1) / q * PAYLOAD / inside.bytes_per_s
        + 2 * (hosts - 1) * across.alpha_s
        + 2 * (hosts - 1) / hosts * PAYLOAD / (q * across.bytes_per_s)
    )
    assert schedule_seconds(plan, PAYLOAD, inside, across, zones) == pytest.approx(expected)


def test_the_ranks_of_a_host_share_its_cards() -> None:
    """A ring of 16 over two hosts leaves each by one rank; all eight cards carry it."""
    hosts = contiguous(16, 2)
    ring = one(AR, Algorithm.RING, 16)
    inside, outside = Link(0.0, 900e9), Link(0.0, RATE)
    assert schedule_seconds(ring, PAYLOAD, inside, outside, hosts) == pytest.approx(
        max(30 / 16 * PAYLOAD / 900e9, 30 / 16 * PAYLOAD / (8 * RATE))
    )
    alone = np.arange(16)  # every rank on a host of its own
    assert schedule_seconds(ring, PAYLOAD, inside, outside, alone) == pytest.approx(
        schedule_seconds(ring, PAYLOAD, outside)
    )
