"""Collectives whose rounds have partners of their own: bytes, placement, step, NCCL."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from network.collectives import schedules
from network.collectives.recommend import nccl_tunings
from network.collectives.schedules import Algorithm
from network.flows import flows_of
from network.step_simulation import simulate_step
from placement import place
from placement.fabric import hostset
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.objective.cut import cut, egress
from placement.objective.step_time import step_time
from placement.tiers.step_clock import step_clock
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Objective, Placement, Request
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.files.job import job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import fabric, flat

NEAR, FAR = Collective.HALVING_DOUBLING, Collective.HALVING_DOUBLING_FAR
RING_BYTES = 2 * 63 * 1_000  # of 64 ranks with a payload of 64,000


def data_parallel(n: int, used: Collective, sent: int, tp: int = 1) -> Request:
    return Request(Parallelism(tp=tp, dp=n), traffic=(("dp", sent),), collectives=(("dp", used),))


@pytest.mark.parametrize(("used", "schedule"), [(NEAR, schedules.near), (FAR, schedules.far)])
@pytest.mark.parametrize("n", [2, 8, 64])
def test_bytes_are_those_of_the_schedule(used: Collective, schedule: object, n: int) -> None:
    """Messages of an all-reduce, counted one by one, over zones drawn at random."""
    draw, sent = np.random.default_rng(n), 2 * (n - 1) * 1_000
    plan = schedules.schedule_of(
        schedules.Operation.ALL_REDUCE,
        {NEAR: Algorithm.NEAR, FAR: Algorithm.FAR}[used],
        np.zeros(n, dtype=np.int64),
    )
    for _ in range(5):
        zones = draw.integers(0, 4, n)
        rooms = np.bincount(zones, minlength=4)
        first = np.concatenate([[0], np.cumsum(np.maximum(rooms, 1))[:-1]])
        hosts = [int(first[z] + np.count_nonzero(zones[:i] == z)) for i, z in enumerate(zones)]
        plain = flat(*(max(1, int(room)) for room in rooms))
        left = schedules.leaving(plan, zones, 4) * 1_000
        assert egress(plain, data_parallel(n, used, sent), hosts) == tuple(left.tolist())


def test_near_first_crosses_least_and_far_first_most() -> None:
    two = flat(32, 32)
    crossed = {
        used: cut(two, data_parallel(64, used, RING_BYTES), range(64))[0].bytes_per_step
        for used in (NEAR, FAR, Collective.RING)
    }
    assert crossed == {NEAR: 2 * 64_000, FAR: 64 * 64_000, Collective.RING: 2 * RING_BYTES}


@pytest.mark.parametrize("n", [3, 6, 12, 24])
def test_ranks_send_as_much_as_in_a_ring_where_sizes_are_odd(n: int) -> None:
    sent = 2 * (n - 1) * 720
    for used in (NEAR, FAR):
        rounds = axis_traffic(data_parallel(n, used, sent))
        assert sum(each.edge_bytes for each in rounds) == sent
        assert np.prod([each.size for each in rounds]) == n
        assert [each.axis for each in rounds] == [f"dp/{each.stride}" for each in rounds]


@pytest.mark.parametrize("used", [NEAR, FAR])
def test_no_order_of_ranks_cuts_less_than_what_is_called_optimal(used: Collective) -> None:
    three, request = flat(4, 3, 1), data_parallel(8, used, 2 * 7 * 1_000)
    placed = place(three, hostset.full(8), request)
    assert isinstance(placed, Placement)
    assert not violations(three, hostset.full(8), request, placed)
    best = min(cut(three, request, order)[0].bytes_per_step for order in permutations(range(8)))
    assert placed.cut == best
    assert placed.lower_bound <= best


def test_ranks_are_ordered_for_the_rounds() -> None:
    """Far first, the large messages go between ranks that are far apart: these share a zone."""
    cuts = {}
    for used in (NEAR, FAR):
        request = data_parallel(16, used, 2 * 15 * 1_000)
        placed = place(flat(8, 8), hostset.full(16), request)
        assert isinstance(placed, Placement)
        cuts[used] = placed.cut
    assert cuts[NEAR] == cuts[FAR] == 2 * 16_000


def job(used: Collective, **sizes: int) -> Request:
    return Request(
        Parallelism(**sizes),  # type: ignore[arg-type]
        traffic=(("tp", 10**8), ("pp", 10**8), ("dp", 4 * 10**9)),
        collectives=(("dp", used),),
        batch=Batch(16 * sizes["dp"]),
        compute_s=0.5,
        objective=Objective.TIME,
    )


def racks_of_nvlink() -> Fabric:
    spec = {**preset("nvl72-24k").spec, "name": "nv"}
    spec["tiers"] = [
        {"name": "su", "count": 2, "oversubscription": 4},
        {"name": "rack", "count": 2, "scale_up": {"gbps_per_gpu": 7200}},
        {"name": "host", "count": 4},
    ]
    return from_spec(spec)


@pytest.mark.parametrize("used", [NEAR, FAR])
def test_no_layout_is_faster_than_the_bound(used: Collective) -> None:
    draw = np.random.default_rng(5)
    on = [
        (fabric(2, 2, 4), job(used, tp=8, pp=2, dp=8)),
        (racks_of_nvlink(), job(used, pp=4, dp=16)),
    ]
    for network, request in on:
        bound_s = step_clock(network, request).bound(np.arange(16))
        for _ in range(30):
            hosts = draw.permutation(16).tolist()
            assert step_time(network, request, hosts).seconds >= bound_s * (1 - 1e-9)


def test_the_step_takes_one_round_after_the_other() -> None:
    axes = step_time(fabric(2, 2, 4), job(NEAR, tp=8, pp=2, dp=8), range(16)).axes
    (dp,) = (axis for axis in axes if axis.load.traffic.axis == "dp")
    assert [each.traffic.axis for each in dp.load.rounds] == ["dp/1", "dp/2", "dp/4"]
    assert dp.seconds == pytest.approx(sum(each.seconds for each in dp.load.rounds))
    assert dp.load.traffic.size == 8


def test_the_simulation_sends_the_same_bytes_in_pairs() -> None:
    network = fabric(2, 2, 4, oversubscription=1)
    formula_s = step_time(network, job(NEAR, tp=8, pp=2, dp=8), range(16)).seconds
    played_s = simulate_step(network, job(NEAR, tp=8, pp=2, dp=8), range(16), 0.5).seconds
    assert played_s == pytest.approx(formula_s, rel=0.1)
    flows = flows_of(network, job(NEAR, tp=8, pp=2, dp=8), range(16))
    assert set(flows.axes) == {"tp", "pp", "dp/1", "dp/2", "dp/4"}


def test_nccl_gets_pat_where_groups_have_one_rank_a_node() -> None:
    alone, shared = fabric(2, 2, 4, gpus=1), fabric(2, 2, 4)
    ours = nccl_tunings(alone, data_parallel(16, Collective.PAT, RING_BYTES), range(16))
    assert {each.algorithm for each in ours} == {Algorithm.NEAR}
    ring = nccl_tunings(alone, data_parallel(16, Collective.RING, RING_BYTES), range(16))
    assert {each.algorithm for each in ring} == {Algorithm.RING}
    dense = nccl_tunings(shared, data_parallel(128, Collective.PAT, RING_BYTES), range(16))
    assert {each.algorithm for each in dense} == {Algorithm.RING}  # NCCL has no PAT there


def test_the_job_file_takes_either_spelling_and_keeps_it_over_the_wire(tmp_path: Path) -> None:
    text = (
        "name: a\nparallelism: {tp: 8, dp: 2}\ntraffic: {dp: 1}\n"
        "collectives: {dp: halving-doubling}\n"
    )
    path = tmp_path / "job.yaml"
    path.write_text(text)
    spec = load_job(str(path))
    assert dict(spec.request.collectives) == {"dp": NEAR}
    assert spec_from_proto(spec_to_proto(spec)) == spec
    assert job_to_mapping(spec)["collectives"] == {"dp": "halving_doubling"}
    path.write_text(text.replace("halving-doubling", "double-binary-tree"))
    with pytest.raises(InputError) as refused:
        load_job(str(path))
    assert "job.yaml:4: collectives.dp: must be" in str(refused.value)
    assert "pat" in str(refused.value)
