"""Advice on collectives: cuts against the referee, times against the uplinks."""

from dataclasses import replace

import pytest

from network.collectives.recommend import Advice, advice
from network.collectives.schedules import Algorithm, Operation
from placement.fabric.reader import preset
from placement.objective.cut import cut
from placement.workload.request import Collective, Request
from placement.workload.training import ContextParallel, DataParallel, Training
from placement.workload.volumes import axis_of
from tests.build import fabric, gang, llama3, request

ROCE = preset("roce-24k")
WHOLE_REPLICAS = list(range(2_048))  # 24 in each of five zones, 8 in the sixth
POWERS = [384 * zone + i for zone in range(8) for i in range(256)]  # 16 in each of eight


def dp_advice(req: Request, hosts: list[int]) -> Advice:
    return next(found for found in advice(ROCE, req, hosts) if found.axis == "dp")


@pytest.mark.parametrize("collective", list(Collective))
@pytest.mark.parametrize("hosts", [WHOLE_REPLICAS, POWERS], ids=["uneven", "even"])
def test_the_cut_of_what_is_used_is_the_referees(collective: Collective, hosts: list[int]) -> None:
    kind = DataParallel.DDP if collective is Collective.TREE else DataParallel.FSDP
    req = llama3(2, collectives=(("dp", collective),), training=Training(data_parallel=kind))
    found = dp_advice(req, hosts)
    mine = found.of(found.used)
    assert mine is not None
    by_axis = cut(ROCE, req, hosts)[0].by_axis
    crossed = sum(sent for axis, sent in by_axis if axis_of(axis) == "dp")
    # Each round is in whole bytes of an edge.
    assert mine.cut_bytes == pytest.approx(crossed, rel=1e-8 if collective.is_in_rounds else 0)


def test_where_zones_are_no_powers_of_two_the_hierarchy_cuts_least() -> None:
    found = dp_advice(llama3(2), WHOLE_REPLICAS)
    near = found.of(Algorithm.NEAR)
    assert found.best.algorithm is Algorithm.HIERARCHICAL
    assert near is not None
    assert near.cut_bytes > 1.5 * found.best.cut_bytes
    assert found.best.seconds <= 1.1 * min(choice.seconds for choice in found.choices)


def test_sums_may_go_by_trees_what_is_gathered_and_scattered_may_not() -> None:
    ddp = llama3(2, training=Training(data_parallel=DataParallel.DDP))
    trees = {Algorithm.TREE, Algorithm.RECURSIVE_DOUBLING}
    summed, gathered = dp_advice(ddp, POWERS), dp_advice(llama3(2), POWERS)
    assert summed.operation is Operation.ALL_REDUCE
    assert trees <= {choice.algorithm for choice in summed.choices}
    assert not trees & {choice.algorithm for choice in gathered.choices}


def test_no_advice_where_nothing_is_to_be_chosen() -> None:
    f = fabric(zones=2, racks=2, hosts=2)
    assert [a.axis for a in advice(f, gang(8, pp=4, dp=2), range(8))] == ["dp"]  # tp stays inside
    assert advice(f, gang(8, dp=8, dp_bytes=0), range(8)) == ()
    assert advice(f, request(ep=64, traffic={"ep": 5}), range(8)) == ()
    # Ring attention is its own algorithm.
    long = llama3(3)
    ring = replace(long, training=Training(context_parallel=ContextParallel.RING))
    assert {a.axis for a in advice(ROCE, long, WHOLE_REPLICAS)} == {"cp", "dp"}
    assert {a.axis for a in advice(ROCE, ring, WHOLE_REPLICAS)} == {"dp"}


def test_an_axis_of_whole_hosts_goes_over_all_their_cards() -> None:
    """Tensor groups of two hosts: 30/16 S on NVLink and the same over eight cards a host."""
    f = fabric(zones=1, racks=2, hosts=2)
    payload = 16_000_000_000
    req = request(tp=16, dp=2, traffic={"tp": 2 * 15 * payload // 16})
    ring = advice(f, req, range(4))[0].of(Algorithm.RING)
    assert ring is not None
    assert ring.seconds == pytest.approx(2 * 15 / 16 * payload / (8 * 50e9), rel=0.01)
