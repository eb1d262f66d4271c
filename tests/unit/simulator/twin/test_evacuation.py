"""The max-flow of gangs to free hosts elsewhere."""

from __future__ import annotations

import pytest

from placement import BadInput
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.core import JobSpec, SchedulingOptions
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import FabricLoaded, JobStarted, JobSubmitted
from simulator.twin.advice.evacuation import evacuated
from simulator.twin.fork import ClusterFork
from tests.twins import MONDAY_NS, cluster

FABRIC = cluster()


def busy(*free: int) -> ClusterFork:
    """So many hosts of each zone are free; a gang has the others."""
    held = [
        host for zone, n in enumerate(free) for host in FABRIC.hosts[8 * zone : 8 * zone + 8 - n]
    ]
    ring = Request(Parallelism(tp=8, dp=len(held)), (("tp", 0), ("dp", 1000)), spares=NO_SPARES)
    log = (
        FabricLoaded(MONDAY_NS, FABRIC.spec),
        JobSubmitted(MONDAY_NS, "u", JobSpec("wide", ring)),
        JobStarted(MONDAY_NS, "wide", 1, tuple(held), (), (), 0),
    )
    return ClusterFork(replay(log), MONDAY_NS, (), 0, SchedulingOptions(), "test")


@pytest.mark.parametrize(
    ("free", "domain", "expected"),
    [
        ((3, 4), "z0", (5, 4)),  # 5 hosts of a gang, 4 free in the other zone
        ((3, 4), "z1", (4, 3)),
        ((8, 0), "z1", (8, 8)),
        ((8, 0), "z0", (0, 0)),
        ((0, 0), "z0", (8, 0)),
        ((3, 4), "z0-r0", (4, 5)),
    ],
)
def test_as_many_find_a_place_as_are_free_elsewhere(
    free: tuple[int, int], domain: str, expected: tuple[int, int]
) -> None:
    hosts, most = evacuated(busy(*free).state, domain)
    assert (hosts, most) == (expected[0], min(expected[0], max(expected[1], 0)))


def test_what_is_no_domain_is_named() -> None:
    with pytest.raises(BadInput, match="z9 is neither a domain nor a host of"):
        evacuated(busy(1, 1).state, "z9")
