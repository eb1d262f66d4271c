"""Messages that take time beside their bytes: distance in the step, its bound, its simulation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from network.step_simulation import simulate_step
from placement.fabric import hostset
from placement.fabric.reader import SECONDS_PER_KM
from placement.fabric.tree import Fabric
from placement.objective.step_time import StepTime, step_time
from placement.tiers.step_clock import step_clock
from placement.workload.parallelism import Parallelism
from placement.workload.request import (
    NO_SPARES,
    Collective,
    Objective,
    Placement,
    Request,
)
from placement.workload.training import Batch
from tests.build import place_checked, regular

LATE_S = 3 * SECONDS_PER_KM


def buildings(hosts_us: float = 0.0, racks: int = 2, **latency: float) -> Fabric:
    """Two buildings of two racks, or more, of four hosts, nothing oversubscribed."""
    hosts = {"latency_us": hosts_us} if hosts_us else {}
    return regular(("building", 2, latency), ("rack", racks), ("host", 4, hosts))


def job(pp: int = 4, dp: int = 4, **changes: Any) -> Request:
    """Many small micro-batches: a pipeline's messages are short and many, gradients are few."""
    return Request(
        parallelism=Parallelism(tp=8, pp=pp, dp=dp),
        traffic=(("tp", 10**7), ("pp", 2 * 10**7), ("dp", 5 * 10**7)),
        batch=Batch(64 * dp),
        compute_s=0.02,
        objective=Objective.TIME,
        cut_slack=0.0,
        **changes,
    )


def axis_of(step: StepTime, name: str) -> Any:
    return next(axis for axis in step.axes if axis.load.traffic.axis == name)


WHOLE_STAGES = [4 * stage + replica for replica in range(4) for stage in range(4)]
WHOLE_REPLICAS = list(range(16))


def test_messages_pay_the_time_of_light_in_fibre_for_every_tier_that_they_leave() -> None:
    assert buildings(km=3).tiers[0].latency_s == pytest.approx(14.7e-6)
    assert buildings(latency_us=14.7).tiers[0].latency_s == pytest.approx(14.7e-6)
    assert not buildings().has_latency
    # Messages pay for every tier that they leave.
    two = buildings(km=3)
    ends = np.array([0, 0, 0]), np.array([1, 4, 8])
    assert two.latency_between(*ends).tolist() == [0.0, 0.0, LATE_S]


def test_a_pipeline_waits_for_each_message_of_a_hop_there_and_back() -> None:
    near, far = buildings(), buildings(km=3)
    before, after = (axis_of(step_time(f, job(), WHOLE_STAGES), "pp") for f in (near, far))
    longer = [b - a for a, b in zip(before.load.hops, after.load.hops, strict=True)]
    assert longer == pytest.approx([0.0, 2 * 64 * LATE_S, 0.0])
    assert after.exposed_s > before.exposed_s


def test_a_ring_crosses_at_all_edges_but_one_and_a_hierarchy_once() -> None:
    load = axis_of(step_time(buildings(km=3), job(), WHOLE_REPLICAS), "dp").load
    # Two of four edges cross; of 8 layers parameters are gathered and gradients reduced.
    assert load.latency_s == pytest.approx(2 * 8 * 2 * LATE_S)
    assert axis_of(step_time(buildings(km=3), job(), WHOLE_STAGES), "dp").load.latency_s == 0
    # A hierarchy crosses once where a scattered ring crosses at each edge.
    scattered = [
        stage + 8 * (replica % 2) + 4 * (replica // 2) for replica in range(4) for stage in range(4)
    ]
    ring, parts = job(), job(collectives=(("dp", Collective.HIERARCHICAL),))
    of_ring, of_parts = (
        axis_of(step_time(buildings(km=3), each, scattered), "dp").load.latency_s
        for each in (ring, parts)
    )
    assert of_ring == pytest.approx(2 * 8 * 3 * LATE_S)
    assert of_parts == pytest.approx(2 * 8 * 1 * LATE_S)


@pytest.mark.parametrize("hosts", [WHOLE_REPLICAS, WHOLE_STAGES])
def test_simulation_and_formula_lengthen_alike(hosts: list[int]) -> None:
    near, far = buildings(), buildings(km=30)
    formula_s = step_time(far, job(), hosts).seconds - step_time(near, job(), hosts).seconds
    played_s = (
        simulate_step(far, job(), hosts, 0.02).seconds
        - simulate_step(near, job(), hosts, 0.02).seconds
    )
    assert played_s > 0
    assert 0.65 * played_s < formula_s < 1.1 * played_s


def crossing(fabric: Fabric, request: Request) -> tuple[set[str], Placement]:
    placed = place_checked(fabric, hostset.full(fabric.host_count), request)
    return {axis for axis, _ in placed.cuts[0].by_axis}, placed


def test_distance_has_gradients_cross_in_place_of_the_pipeline() -> None:
    near, _ = crossing(buildings(), job())
    far, placed = crossing(buildings(km=3), job())
    assert near == {"pp"}  # fewer bytes
    assert far == {"dp"}  # fewer messages
    assert placed.step is not None
    stages_s = step_time(buildings(km=3), job(), WHOLE_STAGES).seconds
    assert placed.step.seconds < stages_s


def collective(used: Collective, **sizes: int) -> Request:
    return job(collectives=(("dp", used),), **sizes)


BOUNDED = [
    job(),
    job(pp=2, dp=8),
    job(pp=1, dp=16),
    replace(job(), batch=Batch(64 * 4, virtual_stages=2)),
    *(collective(used, pp=2, dp=8) for used in Collective),
    *(collective(used, pp=1, dp=16) for used in Collective),
    Request(
        parallelism=Parallelism(tp=8, cp=2, ep=4, dp=2),
        traffic=(("cp", 10**7), ("ep", 10**6), ("dp", 10**7)),
        batch=Batch(64 * 8),
        compute_s=0.02,
    ),
]


@pytest.mark.parametrize("request_", BOUNDED)
@pytest.mark.parametrize("hosts_us", [0.0, 300.0])
def test_no_layout_is_faster_than_the_bound(request_: Request, hosts_us: float) -> None:
    """Random layouts, and consecutive ones, on free hosts of unlike buildings."""
    draw = np.random.default_rng(11)
    for latency, many in (({"km": 3}, 24), ({"latency_us": 500}, 18)):
        far = buildings(hosts_us, 3, **latency)
        free = np.sort(draw.choice(24, many, replace=False))
        bound_s = step_clock(far, request_).bound(free)
        layouts = [free[:16].tolist(), free[-16:].tolist()]
        layouts += [draw.permutation(free)[:16].tolist() for _ in range(5)]
        for hosts in layouts:
            assert step_time(far, request_, hosts).seconds >= bound_s * (1 - 1e-9)


def test_what_has_to_leave_a_building_is_in_the_bound() -> None:
    """Sixteen hosts in buildings of twelve: gradients or messages between stages have to cross."""
    near, far = buildings(racks=3), buildings(racks=3, km=100)
    free = np.arange(24)
    for request in (job(), job(pp=1, dp=16)):
        bounds = [step_clock(network, request).bound(free) for network in (near, far)]
        assert bounds[1] > bounds[0] * 1.02
        small = replace(request, parallelism=Parallelism(tp=8, dp=8))
        same = [step_clock(network, small).bound(free) for network in (near, far)]
        assert same[0] == same[1]
    # A ring of all hosts: of its edges two leave a building in every order, and no more have to.
    ring = replace(job(pp=1, dp=16), objective=Objective.TIME)
    placed = place_checked(far, hostset.full(24), replace(ring, spares=NO_SPARES))
    assert placed.step is not None
    assert placed.step.gap is not None
    assert placed.step.gap < 0.05
