"""The referee, against an edge list counted by networkx and against published tables."""

from random import Random

import numpy as np
import pytest

from placement.fabric.reader import preset
from placement.fabric.tree import Fabric, Hardware
from placement.objective.cut import cut, cut_by_axis, egress
from placement.workload.request import Batch, Collective, Request
from tests.build import EVERY_PATTERN, fabric, flat, gang, llama3, request, two_tiers

HIERARCHICAL = Collective.HIERARCHICAL


def test_each_tier_is_counted() -> None:
    """Two zones of two racks: a chain of four hosts crosses zones once, racks three times."""
    small = fabric(2, 2, 2, gpus=1)
    req = request(pp=4, traffic={"pp": 10})
    zone, rack = cut(small, req, (0, 2, 4, 6))
    assert (zone.tier, zone.bytes_per_step, zone.by_axis) == ("zone", 10, (("pp", 10),))
    assert (rack.tier, rack.bytes_per_step) == ("rack", 30)


def test_blocks_are_runs_of_ranks() -> None:
    """TP inside a host never crosses; the order of hosts is the order of blocks."""
    small = fabric(2, 1, 2, gpus=8)
    req = gang(4, dp_bytes=10)
    assert cut(small, req, (0, 1, 2, 3))[0].by_axis == (("dp", 8 * 2 * 10),)
    assert cut(small, req, (0, 2, 1, 3))[0].by_axis == (("dp", 8 * 4 * 10),)


def test_a_fabric_without_tiers_has_no_cut() -> None:
    has = Hardware(np.array([1, 1]), np.array([400.0, 400.0]), np.array([3600.0, 3600.0]))
    alone = Fabric("x", "roce", 1, 400, (), ("a", "b"), {}, has)
    req = request(dp=2, traffic={"dp": 5})
    assert cut(alone, req, (0, 1)) == ()
    assert egress(alone, req, (0, 1)) == ()


def test_ten_ranks_in_a_ring_on_racks_of_four() -> None:
    """Racks of 4 + 4 + 4: three crossings at best (docs/engine.md, "The problem")."""
    req = request(dp=10, traffic={"dp": 1})
    assert cut(flat(4, 4, 4), req, range(10))[0].bytes_per_step == 3


def test_a_ring_of_two_counts_both_edges() -> None:
    req = request(dp=2, traffic={"dp": 5})
    assert cut(flat(1, 1), req, (0, 1))[0].bytes_per_step == 10


def test_a_chain_wraps_when_stages_are_virtual() -> None:
    plain = request(pp=4, traffic={"pp": 12})
    interleaved = request(pp=4, traffic={"pp": 12}, batch=Batch(4, virtual_stages=4))
    racks = flat(2, 2)
    assert cut(racks, plain, range(4))[0].bytes_per_step == 12
    assert cut(racks, interleaved, range(4))[0].bytes_per_step == 12 + 9


@pytest.mark.parametrize(
    ("zones", "ring", "hierarchical"), [(2, 3.938, 2), (4, 7.875, 6), (8, 15.750, 14)]
)
def test_all_reduce_of_64_ranks(zones: int, ring: float, hierarchical: float) -> None:
    """Contiguous ring and hierarchical all-reduce of S bytes, in units of S.

    Cho et al. 2019 and the connectivity metric: Z 2(n-1)/n and 2(Z-1).
    """
    s = 64_000
    w = {"dp": s * 2 * 63 // 64}
    racks = flat(*[64 // zones] * zones)
    flat_ring = cut(racks, request(dp=64, traffic=w), range(64))[0].bytes_per_step
    layered = request(dp=64, traffic=w, collectives={"dp": HIERARCHICAL})
    assert flat_ring / s == pytest.approx(ring, abs=6e-4)
    assert cut(racks, layered, range(64))[0].bytes_per_step == hierarchical * s


@pytest.mark.parametrize("order", ["contiguous", "scattered"])
def test_hierarchical_counts_domains_not_order(order: str) -> None:
    """w n/(n-1) (lambda - 1) summed over groups, lambda = domains that a group touches."""
    req = request(
        pp=3, dp=8, traffic={"dp": 70}, collectives={"dp": HIERARCHICAL}, order="tp-pp-dp"
    )
    random = Random(7)
    domains = sorted(random.choices(range(5), k=24))
    if order == "scattered":
        random.shuffle(domains)
    touched = [len({domains[r] for r in group}) for group in req.parallelism.groups("dp")]
    expected = sum((spread - 1) * 70 * 8 // 7 for spread in touched)
    assert expected
    assert cut_by_axis(req, 1, np.array(domains)) == (("dp", expected),)


@pytest.mark.parametrize("parts", [(4, 4), (1, 7), (2, 3, 3), (1,) * 8])
def test_all_to_all_crosses_n_squared_less_what_stays(parts: tuple[int, ...]) -> None:
    req = request(ep=8, traffic={"ep": 3})
    expected = 3 * (64 - sum(p * p for p in parts))
    assert cut(flat(*parts), req, range(8))[0].bytes_per_step == expected


@pytest.mark.parametrize("req", EVERY_PATTERN.values(), ids=EVERY_PATTERN)
def test_egress_adds_up_to_the_cut(req: Request) -> None:
    zones = two_tiers([2, 3], [4, 1], [2, 8, 4])
    hosts = list(range(24))
    Random(3).shuffle(hosts)
    hosts = hosts[: req.parallelism.world_size]
    assert sum(egress(zones, req, hosts)) == cut(zones, req, hosts)[0].bytes_per_step


def test_egress_by_pattern() -> None:
    """Six ranks, three in the first zone, two in the second, one in the third."""
    zones = flat(3, 2, 1)

    def leaving(**job: object) -> tuple[int, ...]:
        return egress(zones, request(**job), range(6))  # type: ignore[arg-type]

    assert leaving(dp=6, traffic={"dp": 10}) == (10, 10, 10)
    assert leaving(pp=6, traffic={"pp": 10}) == (5, 10, 5)
    assert leaving(ep=6, traffic={"ep": 1}) == (9, 8, 5)
    layered = {"dp": HIERARCHICAL}
    assert leaving(dp=6, traffic={"dp": 10}, collectives=layered) == (8, 8, 8)


@pytest.fixture(scope="module")
def roce() -> Fabric:
    return preset("roce-24k")


def llama3_hosts() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """2,048 hosts on six zones: 24 replicas of 16 hosts in five zones, 8 in the sixth."""
    return np.arange(2_048)


def test_llama3_contiguous_egress(roce: Fabric) -> None:
    """DP outermost, contiguous: 2.42 TB leave each zone, 0.11 s at 21.94 TB/s."""
    out = egress(roce, llama3(2), tuple(llama3_hosts()))
    used = [b for b in out if b]
    assert len(used) == 6
    assert used == pytest.approx([2.42e12] * 6, rel=2e-3)
    uplink = roce.tiers[0].uplink_bytes_per_s[0]
    assert used[0] / uplink == pytest.approx(0.110, abs=1e-3)


def test_llama3_hierarchical_egress(roce: Fabric) -> None:
    """The same hosts, reduced inside the zone first: 2.03 TB."""
    out = egress(roce, llama3(2, collectives=(("dp", HIERARCHICAL),)), tuple(llama3_hosts()))
    assert [b for b in out if b] == pytest.approx([2.03e12] * 6, rel=2e-3)


def test_llama3_random_order_egress(roce: Fabric) -> None:
    """The same hosts in random DP order: 47.5 TB leave a full zone."""
    req = llama3(2)
    stages, replicas = 16, 128
    by_replica = llama3_hosts().reshape(replicas, stages)
    shuffled = list(range(replicas))
    Random(1).shuffle(shuffled)
    out = egress(roce, req, tuple(by_replica[shuffled].ravel()))
    assert sum(out[:5]) / 5 == pytest.approx(47.5e12, rel=0.05)
    assert egress(roce, req, tuple(llama3_hosts()))[0] * 15 < out[0]


def test_pipeline_outermost_crosses_between_stages(roce: Fabric) -> None:
    """Megatron's default order: three stages in a zone, two edges of 128 hosts leave it.

    1.10 TB for v = 1 (plain 1F1B), a direction each way over the two boundaries.
    """
    megatron = llama3(2)
    req = Request(
        parallelism=type(megatron.parallelism)(tp=8, pp=16, dp=128, order="tp-cp-ep-dp-pp"),
        model=megatron.model,
        batch=megatron.batch,
    )
    out = egress(roce, req, tuple(llama3_hosts()))
    assert out[1] == pytest.approx(1.10e12, rel=2e-3)
    assert out[0] == out[5] == out[1] / 2


def test_groups_that_stay_inside_are_not_reported() -> None:
    req = gang(4, pp=2, dp_bytes=10, pp_bytes=3)
    (rack,) = cut(flat(2, 2, gpus=8), req, range(4))
    assert dict(rack.by_axis) == {"dp": 8 * 2 * 2 * 10}


def test_many_groups_over_many_domains_fit_in_memory() -> None:
    """100,000 racks, 100,000 groups: a table of group by domain would take 80 GB."""
    req = request(ep=2, dp=100_000, traffic={"ep": 1})
    racks = np.repeat(np.arange(100_000), 2)
    assert cut_by_axis(req, 1, racks) == ()
    assert cut_by_axis(req, 1, np.roll(racks, 1)) == (("ep", 200_000),)
