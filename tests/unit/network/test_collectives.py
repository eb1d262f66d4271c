"""Counted schedules against the closed forms of the literature.

Table numbers are those of docs/validation.md: bytes over zones in payloads (kappa), for n
ranks in Z zones; times in alpha and beta.
"""

from fractions import Fraction
from itertools import permutations
from math import ceil, log2

import numpy as np
import pytest

from network.collectives.schedules import (
    Algorithm,
    Link,
    Operation,
    Schedule,
    algorithms,
    busiest_share,
    kappa,
    leaving,
    schedule_of,
    schedule_seconds,
)
from placement.fabric.tree import Ints
from placement.workload.trees import tree_parents
from scripts.published.collectives import bus_factor
from tests.cases import case

AR, AG, RS = Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER
SHAPES = [(8, 2), (64, 2), (64, 4), (64, 8), (128, 16)]
UNEVEN = [(3, 2), (5, 5, 1), (24, 24, 24, 24, 24, 8), (1, 1, 6, 7)]


def contiguous(n: int, z: int) -> Ints:
    return np.repeat(np.arange(z), n // z)


def uneven(*sizes: int) -> Ints:
    return np.repeat(np.arange(len(sizes)), sizes)


def made(operation: Operation, algorithm: Algorithm, zones: Ints) -> Schedule:
    return schedule_of(operation, algorithm, zones)


def egress(operation: Operation, algorithm: Algorithm, zones: Ints) -> list[Fraction]:
    plan = made(operation, algorithm, zones)
    units = leaving(plan, zones, int(zones.max()) + 1)
    return [Fraction(int(u), plan.parts) for u in units]


def kappa_of(operation: Operation, algorithm: Algorithm, zones: Ints) -> Fraction:
    return kappa(made(operation, algorithm, zones), zones)


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
def test_every_block_reaches_every_rank(algorithm: Algorithm) -> None:
    for n in [2, 3, 5, 8, 12, 13]:
        with case(n=n):
            zones = np.arange(n) // 4
            assert all(len(known) == n for known in blocks_known(made(AG, algorithm, zones)))


@pytest.mark.parametrize("algorithm", algorithms(AG))
def test_every_rank_receives_the_blocks_it_lacks(algorithm: Algorithm) -> None:
    """n-1 blocks each, neither more nor less, folded or not."""
    for n in [2, 3, 5, 8, 12, 13, 64]:
        with case(n=n):
            zones = np.arange(n) // 4
            received = np.zeros(n, dtype=np.int64)
            for messages in made(AG, algorithm, zones).rounds:
                np.add.at(received, messages.dst, messages.units)
            assert received.tolist() == [n - 1] * n


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


@pytest.mark.parametrize("algorithm", algorithms(AR))
def test_no_all_reduce_beats_the_lower_bound(algorithm: Algorithm) -> None:
    for n, z in SHAPES:
        with case(n=n, z=z):
            assert kappa_of(AR, algorithm, contiguous(n, z)) >= 2 * (z - 1)


def test_flat_ring_all_reduce() -> None:
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            assert kappa_of(AR, Algorithm.RING, zones) == z * Fraction(2 * (n - 1), n)
            assert egress(AR, Algorithm.RING, zones) == [Fraction(2 * (n - 1), n)] * z


def test_flat_ring_half() -> None:
    for n, z in SHAPES:
        for operation in [AG, RS]:
            with case(n=n, z=z, operation=operation):
                zones = contiguous(n, z)
                assert kappa_of(operation, Algorithm.RING, zones) == z * Fraction(n - 1, n)
                assert egress(operation, Algorithm.RING, zones) == [Fraction(n - 1, n)] * z


@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 2, 2), (3, 2, 1)])
def test_flat_ring_in_random_order(sizes: tuple[int, ...]) -> None:
    """The mean over every order of the ranks, not a sample of them."""
    n, zones = sum(sizes), uneven(*sizes)
    orders = zones[np.array(list(permutations(range(n))))]
    plan = one(AR, Algorithm.RING, n)
    out = sum(leaving(plan, order, len(sizes)) for order in orders)
    mean = Fraction(int(np.sum(out)), plan.parts * len(orders))
    same = sum(Fraction(k, n) * Fraction(k - 1, n - 1) for k in sizes)
    assert mean == n * (1 - same) * Fraction(2 * (n - 1), n)
    for k, units in zip(sizes, out, strict=True):
        expected = Fraction(k * (n - k), n - 1) * Fraction(2 * (n - 1), n)
        assert Fraction(int(units), plan.parts * len(orders)) == expected


def test_hierarchical_all_reduce() -> None:
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            assert kappa_of(AR, Algorithm.HIERARCHICAL, zones) == 2 * (z - 1)
            assert egress(AR, Algorithm.HIERARCHICAL, zones) == [Fraction(2 * (z - 1), z)] * z


def test_hierarchical_half() -> None:
    for n, z in SHAPES:
        for operation in [AG, RS]:
            with case(n=n, z=z, operation=operation):
                zones = contiguous(n, z)
                assert kappa_of(operation, Algorithm.HIERARCHICAL, zones) == z - 1
                assert egress(operation, Algorithm.HIERARCHICAL, zones) == [Fraction(z - 1, z)] * z


@pytest.mark.parametrize("sizes", UNEVEN)
def test_hierarchical_needs_no_equal_zones_and_no_order(sizes: tuple[int, ...]) -> None:
    zones = uneven(*sizes)
    mixed = np.random.default_rng(1).permutation(zones)
    for order in (zones, mixed):
        assert kappa_of(AR, Algorithm.HIERARCHICAL, order) == 2 * (len(sizes) - 1)


def test_near_first_reaches_the_lower_bound() -> None:
    """Near-first halving, then farthest-first doubling."""
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            assert kappa_of(AR, Algorithm.NEAR, zones) == 2 * (z - 1)
            assert egress(AR, Algorithm.NEAR, zones) == [Fraction(2 * (z - 1), z)] * z


def test_far_first_costs_ranks_per_zone_times_more() -> None:
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            assert kappa_of(AR, Algorithm.FAR, zones) == 2 * n * (1 - Fraction(1, z))
            assert (
                egress(AR, Algorithm.FAR, zones) == [2 * Fraction(n, z) * (1 - Fraction(1, z))] * z
            )
            near, far = (kappa_of(AR, a, zones) for a in (Algorithm.NEAR, Algorithm.FAR))
            assert far == near * (n // z)


def test_gathering_by_doubling() -> None:
    """The textbook order doubles the distance; farthest first is the reverse."""
    for n, z in SHAPES:
        with case(n=n, z=z):
            zones = contiguous(n, z)
            assert kappa_of(AG, Algorithm.FAR, zones) == n * (1 - Fraction(1, z))
            assert egress(AG, Algorithm.FAR, zones) == [Fraction(n, z) * (1 - Fraction(1, z))] * z
            assert kappa_of(AG, Algorithm.NEAR, zones) == z - 1
            assert egress(AG, Algorithm.NEAR, zones) == [Fraction(z - 1, z)] * z


def test_textbook_doubling_starts_next_door() -> None:
    first, *_, last = one(AG, Algorithm.FAR, 8).rounds
    assert abs(first.dst - first.src).tolist() == [1] * 8
    assert abs(last.dst - last.src).tolist() == [4] * 8


@pytest.mark.parametrize(("z", "trees"), [(2, 4), (4, 10), (8, 22)])
def test_double_binary_tree_over_64_nodes(z: int, trees: int) -> None:
    assert kappa_of(AR, Algorithm.TREE, contiguous(64, z)) == trees


@pytest.mark.parametrize(
    ("z", "ring", "hierarchical", "near", "far", "tree"),
    [(2, 3.938, 2, 2, 64, 4), (4, 7.875, 6, 6, 96, 10), (8, 15.75, 14, 14, 112, 22)],
)
def test_the_table_of_64_ranks(
    z: int, ring: float, hierarchical: int, near: int, far: int, tree: int
) -> None:
    zones = contiguous(64, z)
    counted = [
        float(kappa_of(AR, algorithm, zones))
        for algorithm in (
            Algorithm.RING,
            Algorithm.HIERARCHICAL,
            Algorithm.NEAR,
            Algorithm.FAR,
            Algorithm.TREE,
        )
    ]
    assert counted == pytest.approx([ring, hierarchical, near, far, tree], abs=6e-4)


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


@pytest.mark.parametrize(
    ("n", "payload", "published_ms"),
    [
        (128, 1 << 20, (2.58, 0.217, 0.182, 0.182)),
        (128, 1 << 30, (45.15, 150.4, 42.75, 43.09)),
        (2_048, 1 << 20, (40.98, 0.341, 0.262, 0.262)),
        (2_048, 1 << 30, (83.87, 236.3, 43.15, 43.17)),
    ],
)
def test_the_table_of_times(n: int, payload: int, published_ms: tuple[float, ...]) -> None:
    """Alpha 10 us, 50 GB/s: why rings are left for doubling and halving."""
    ours = [
        1e3 * schedule_seconds(one(AR, algorithm, n), payload, LINK)
        for algorithm in (
            Algorithm.RING,
            Algorithm.RECURSIVE_DOUBLING,
            Algorithm.NEAR,
            Algorithm.TREE,
        )
    ]
    assert ours == pytest.approx(published_ms, rel=3e-3)


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


@pytest.mark.parametrize("n", [2, 8, 127, 128])
@pytest.mark.parametrize("operation", Operation)
def test_bus_bandwidth_factor_is_what_a_rank_sends(operation: Operation, n: int) -> None:
    assert busiest_share(one(operation, Algorithm.RING, n)) == bus_factor(operation, n)
