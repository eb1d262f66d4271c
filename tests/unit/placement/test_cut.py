"""The referee, against an edge list counted by networkx and by hand."""

from itertools import permutations
from random import Random

import networkx as nx
import numpy as np
import pytest

from placement.fabric.tree import Fabric, Hardware
from placement.objective.cut import cut, cut_by_axis, egress
from placement.workload.request import Collective, Request
from tests.build import EVERY_PATTERN, fabric, flat, request, two_tiers

HIERARCHICAL = Collective.HIERARCHICAL


def edges(req: Request) -> dict[str, list[tuple[int, int, int]]]:
    """(from, to, bytes) by axis, written out from the definition (docs/traffic.md).

    Rings, chains and all-to-all only; bytes are given explicitly.
    """
    sent = dict(req.traffic)
    chunks = req.batch.virtual_stages if req.batch else 1
    made: dict[str, list[tuple[int, int, int]]] = {}
    for axis in req.parallelism.axes:
        w = sent.get(axis, 0)
        mine = made.setdefault(axis, [])
        for group in req.parallelism.groups(axis):
            n = len(group)
            if n == 1:
                continue
            if axis == "pp":
                mine += [(group[i], group[i + 1], w) for i in range(n - 1)]
                mine.append((group[-1], group[0], w * (chunks - 1) // chunks))
            elif axis == "ep":
                mine += [(a, b, w) for a, b in permutations(group, 2)]
            else:
                mine += [(group[i], group[(i + 1) % n], w) for i in range(n)]
    return made


def networkx_cut(req: Request, gpus: int, domain_by_block: list[int]) -> dict[str, int]:
    """Bytes by axis: half the sum over domains of the edges that leave one."""
    counted = {}
    for axis, made in edges(req).items():
        graph = nx.MultiGraph()
        graph.add_nodes_from(range(req.parallelism.world_size))
        graph.add_edges_from((a, b, {"weight": w}) for a, b, w in made)
        domain_by_rank = [d for d in domain_by_block for _ in range(gpus)]
        leaving = sum(
            nx.cut_size(graph, {r for r, d in enumerate(domain_by_rank) if d == z}, weight="weight")
            for z in set(domain_by_rank)
        )
        assert leaving % 2 == 0
        if leaving:
            counted[axis] = int(leaving) // 2
    return counted


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("req", EVERY_PATTERN.values(), ids=EVERY_PATTERN)
def test_referee_agrees_with_networkx(req: Request, gpus: int) -> None:
    random = Random(f"{req.parallelism}")
    blocks = req.parallelism.world_size // gpus
    for domains in (1, 2, 3, blocks):
        for _ in range(5):
            domain_by_block = [random.randrange(domains) for _ in range(blocks)]
            found = dict(cut_by_axis(req, gpus, np.array(domain_by_block)))
            assert found == networkx_cut(req, gpus, domain_by_block)


def test_each_tier_is_counted() -> None:
    """Two zones of two racks: a chain of four hosts crosses zones once, racks three times."""
    small = fabric(2, 2, 2, gpus=1)
    req = request(pp=4, traffic={"pp": 10})
    zone, rack = cut(small, req, (0, 2, 4, 6))
    assert (zone.tier, zone.bytes_per_step, zone.by_axis) == ("zone", 10, (("pp", 10),))
    assert (rack.tier, rack.bytes_per_step) == ("rack", 30)


def test_a_fabric_without_tiers_has_no_cut() -> None:
    has = Hardware(np.array([1, 1]), np.array([400.0, 400.0]), np.array([3600.0, 3600.0]))
    alone = Fabric("x", "roce", 1, 400, (), ("a", "b"), {}, has)
    req = request(dp=2, traffic={"dp": 5})
    assert cut(alone, req, (0, 1)) == ()
    assert egress(alone, req, (0, 1)) == ()


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


def test_many_groups_over_many_domains_fit_in_memory() -> None:
    """100,000 racks, 100,000 groups: a table of group by domain would take 80 GB."""
    req = request(ep=2, dp=100_000, traffic={"ep": 1})
    racks = np.repeat(np.arange(100_000), 2)
    assert cut_by_axis(req, 1, racks) == ()
    assert cut_by_axis(req, 1, np.roll(racks, 1)) == (("ep", 200_000),)
