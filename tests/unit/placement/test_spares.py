"""How many spares, and which host takes a failed one's place."""

from random import Random

import pytest

from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.replace.swaps import Swaps, choose_swaps
from placement.spares.sizing import Sizing
from placement.workload.request import Request
from tests.build import fabric, gang, request, two_tiers

HOUR = 1 / 24


@pytest.mark.parametrize(
    ("sizing", "hosts", "spares"),
    [
        pytest.param(Sizing(), 384, 5, id="a day of repair"),
        pytest.param(Sizing(clumping=1e-9), 384, 5, id="hardly clumped is Poisson"),
        pytest.param(Sizing(), 0, 0, id="no hosts"),
        pytest.param(Sizing(failures_per_host_day=0), 100, 0, id="no failures"),
    ],
)
def test_spares_of_a_zone(sizing: Sizing, hosts: int, spares: int) -> None:
    assert sizing.size(hosts) == spares


@pytest.mark.parametrize(
    ("repair_hours", "p99", "p999"),
    [(0.5, 2, 2), (4, 5, 6), (24, 15, 18), (72, 35, 40), (168, 72, 78)],
)
def test_spares_of_2048_hosts(repair_hours: float, p99: int, p999: int) -> None:
    """Poisson(2,048 x 3.79 per 1,000 host-days x repair): P99 and P99.9."""
    for epsilon, spares in ((0.01, p99), (0.001, p999)):
        assert Sizing(3.79e-3, repair_hours * HOUR, epsilon).size(2_048) == spares


def test_a_hundred_thousand_hosts_and_a_tiny_epsilon_end() -> None:
    # exp(-mean) underflows here, and the sum of terms never reached 1.
    mean = 100_000 * 3.79e-3 * 7
    assert mean < Sizing(repair_days=7).size(100_000) < mean + 3 * mean**0.5
    # A tiny epsilon ends.
    assert Sizing(epsilon=0).size(2_048) == Sizing(epsilon=1e-9).size(2_048)


def test_a_number_for_each_zone_stands_whatever_fails() -> None:
    for sizing in (Sizing(per_zone=2), Sizing(0.5, 7, per_zone=2)):
        assert [sizing.size(hosts) for hosts in (0, 1, 384)] == [0, 2, 2]
    beside = Sizing(per_zone=2, others=(10, 10), held=(1, 3))
    assert [beside.spares_needed(4, zone) for zone in (0, 1)] == [1, 0]


def test_hosts_that_fail_together_need_more_spares() -> None:
    """Mean and variance of what is out, summed from the tails: m and m + c m^2."""
    mean, clumping = 384 * 3.79e-3 * 6, 0.5
    sizing = Sizing(repair_days=6, clumping=clumping)
    tails = [sizing.shortage_share(384, k) for k in range(400)]
    second = sum((2 * k + 1) * tail for k, tail in enumerate(tails))
    assert sum(tails) == pytest.approx(mean)
    assert second - mean**2 == pytest.approx(mean + clumping * mean**2)
    k = sizing.size(384)
    assert sizing.shortage_share(384, k) <= sizing.epsilon < sizing.shortage_share(384, k - 1)
    assert k > Sizing(repair_days=6).size(384)


def swapped(
    fabric_: Fabric,
    req: Request,
    hosts: tuple[int, ...],
    blocks: tuple[int, ...],
    own: tuple[int, ...] = (),
    free: tuple[int, ...] = (),
) -> Swaps | None:
    return choose_swaps(fabric_, req, hosts, blocks, hostset.of(own), hostset.of(free))


# z0: hosts 0..3, z1: 4..7, racks of two
SMALL = fabric(2, 2, 2)


@pytest.mark.parametrize(
    ("hosts", "blocks", "own", "free", "joined"),
    [
        # The free host shares the failed block's rack; the spare costs nothing that is free.
        pytest.param((0, 1), (1,), (3,), (2,), ((1, 3),), id="own before free in a zone"),
        pytest.param((0, 1), (1,), (2, 3), (), ((1, 2),), id="the lowest host among equals"),
        pytest.param(
            *((0, 1, 2, 4, 5, 6), (1, 4), (7,), (3,), ((1, 3), (4, 7))),
            id="several blocks get different hosts",
        ),
        pytest.param((0, 1, 4, 5), (), (2,), (), (), id="no block, no change"),
        pytest.param((0, 1, 4, 5), (1,), (), (), None, id="none is left"),
        pytest.param((0, 1, 4, 5), (1, 3), (2,), (), None, id="too few are left"),
    ],
)
def test_hosts_that_join_a_gang(
    hosts: tuple[int, ...],
    blocks: tuple[int, ...],
    own: tuple[int, ...],
    free: tuple[int, ...],
    joined: tuple[tuple[int, int], ...] | None,
) -> None:
    swap = swapped(SMALL, gang(len(hosts)), hosts, blocks, own, free)
    if joined is None:
        assert swap is None
    else:
        after = {**dict(enumerate(hosts)), **dict(joined)}
        assert swap == Swaps(joined, cut(SMALL, gang(len(hosts)), tuple(after.values())))


def test_the_nearer_rack_wins_among_equals() -> None:
    racks = two_tiers([2, 2, 2])
    req = request(dp=3, traffic={"dp": 1})
    # blocks 0 and 1 in rack 0, block 2 failed in rack 1; candidates: rack 1 or rack 2
    swap = swapped(racks, req, (0, 4, 2), (0,), free=(1, 3, 5))
    assert swap is not None
    (block, joined), *_ = swap.joined
    assert block == 0
    options = {h: cut(racks, req, (h, 4, 2))[1].bytes_per_step for h in (1, 3, 5)}
    assert options[joined] == min(options.values())


def test_the_least_zone_cut_over_all_hosts() -> None:
    """Against trying every candidate, on random gangs of a ragged fabric."""
    ragged = two_tiers([2, 3], [1, 2, 2], [4])
    req = request(pp=2, dp=4, traffic={"pp": 7, "dp": 4})
    random = Random(11)
    for _ in range(60):
        order = random.sample(range(14), 14)
        hosts, own, free = tuple(order[:8]), tuple(order[8:10]), tuple(order[10:])
        block = random.randrange(8)
        swap = swapped(ragged, req, hosts, (block,), own=own, free=free)
        assert swap is not None

        def at(host: int, hosts: tuple[int, ...] = hosts, block: int = block) -> int:
            moved = (*hosts[:block], host, *hosts[block + 1 :])
            return cut(ragged, req, moved)[0].bytes_per_step

        least = min(at(h) for h in own + free)
        assert swap.cuts[0].bytes_per_step == least
        if any(at(h) == least for h in own):
            assert swap.joined[0][1] in own
