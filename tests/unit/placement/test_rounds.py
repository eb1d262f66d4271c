"""Collectives whose rounds have partners of their own: bytes, placement, step, NCCL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from network.collectives.recommend import nccl_tunings
from network.collectives.schedules import Algorithm
from network.flows import flows_of
from placement.fabric import hostset
from placement.objective.cut import cut
from placement.objective.step_time import step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Request
from placement.workload.traffic import axis_traffic
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.files.job import job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import fabric, flat, place_checked
from tests.unit.placement.test_trees import job

NEAR, FAR = Collective.HALVING_DOUBLING, Collective.HALVING_DOUBLING_FAR
RING_BYTES = 2 * 63 * 1_000  # of 64 ranks with a payload of 64,000


def data_parallel(n: int, used: Collective, sent: int, tp: int = 1) -> Request:
    return Request(Parallelism(tp=tp, dp=n), traffic=(("dp", sent),), collectives=(("dp", used),))


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


def test_ranks_are_ordered_for_the_rounds() -> None:
    """Far first, the large messages go between ranks that are far apart: these share a zone."""
    cuts = {}
    for used in (NEAR, FAR):
        request = data_parallel(16, used, 2 * 15 * 1_000)
        placed = place_checked(flat(8, 8), hostset.full(16), request)
        cuts[used] = placed.cut
    assert cuts[NEAR] == cuts[FAR] == 2 * 16_000


def test_the_step_takes_one_round_after_the_other() -> None:
    flows = flows_of(fabric(2, 2, 4), job(NEAR, tp=8, pp=2, dp=8), range(16))
    assert set(flows.axes) == {"tp", "pp", "dp/1", "dp/2", "dp/4"}
    axes = step_time(fabric(2, 2, 4), job(NEAR, tp=8, pp=2, dp=8), range(16)).axes
    (dp,) = (axis for axis in axes if axis.load.traffic.axis == "dp")
    assert [each.traffic.axis for each in dp.load.rounds] == ["dp/1", "dp/2", "dp/4"]
    assert dp.seconds == pytest.approx(sum(each.seconds for each in dp.load.rounds))
    assert dp.load.traffic.size == 8


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
