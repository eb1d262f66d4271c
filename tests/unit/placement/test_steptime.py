"""Step time: its parts by hand, its rules one by one, and the published throughput.

The rules are those of every version; where nothing else is said, shares and rates are those of
version 1, which logs keep. test_compute_time.py has what version 2 makes of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from placement.fabric.reader import preset
from placement.objective.axis_loads import axis_loads
from placement.objective.step_time import (
    FIRST_EFFICIENCY,
    FIRST_PEAK_FLOPS,
    Assumptions,
    Pipeline,
    StepTime,
    busiest_link,
    step_time,
)
from placement.workload.flops import training_flops
from placement.workload.request import FIRST_STEP_MODEL, Batch, Request
from placement.workload.training import DataParallel, Sync, Training
from tests.build import fabric, gang
from tests.build import llama3 as newest_llama3

ROCE, IB = preset("roce-24k"), preset("ib-24k")
WHOLE_REPLICAS = range(2_048)


def llama3(row: int, **changes: Any) -> Request:
    """A row of table 4 in the first model."""
    return replace(newest_llama3(row, **changes), step_model=FIRST_STEP_MODEL)


INTERLEAVED = llama3(2, virtual_stages=8)


def llama3_step(req: Request, hosts: object = WHOLE_REPLICAS, **assumed: object) -> StepTime:
    return step_time(ROCE, req, list(hosts), Assumptions(**assumed))  # type: ignore[arg-type,call-overload]


def exposed(step: StepTime) -> dict[str, float]:
    return {axis.load.traffic.axis: axis.exposed_s for axis in step.axes}


def seconds(step: StepTime) -> dict[str, float]:
    return {axis.load.traffic.axis: axis.seconds for axis in step.axes}


def test_compute_is_flops_over_rate() -> None:
    step = llama3_step(llama3(2), achieved_tflops=500.0)
    assert step.compute_s == training_flops(llama3(2)) / (16_384 * 500e12)


def test_measured_compute_replaces_the_flops() -> None:
    assert llama3_step(llama3(2), compute_s=3.0).compute_s == 3.0


@pytest.mark.parametrize(("chunks", "row", "bubble"), [(8, 2, 0.117), (8, 1, 0.059), (1, 2, 0.938)])
def test_bubble(chunks: int, row: int, bubble: float) -> None:
    """(p-1)/(v m): 16 stages; 16 micro-batches in row 2, 32 in row 1."""
    req = llama3(row, virtual_stages=chunks)
    assert float(Pipeline.of(req).bubble) == pytest.approx(bubble, abs=6e-4)
    step = llama3_step(req, range(req.hosts_needed(8)))
    assert step.bubble_s == pytest.approx(step.compute_s * float(Pipeline.of(req).bubble))


def test_the_step_is_the_sum_of_its_parts() -> None:
    step = llama3_step(INTERLEAVED)
    parts = step.compute_s + step.bubble_s + sum(exposed(step).values())
    assert step.seconds == pytest.approx(parts)
    assert step.seconds > step.busiest_link_s


def test_mfu_is_flops_over_what_the_gpus_could_have_done() -> None:
    step = llama3_step(INTERLEAVED)
    assert step.mfu == pytest.approx(step.flops / (16_384 * FIRST_PEAK_FLOPS * step.seconds))


def test_tensor_parallel_is_waited_for() -> None:
    step = llama3_step(llama3(2))
    assert exposed(step)["tp"] == seconds(step)["tp"]


def test_a_pipeline_is_waited_for_while_it_fills_and_drains() -> None:
    step = llama3_step(llama3(2))
    assert exposed(step)["pp"] == pytest.approx(15 / 16 * seconds(step)["pp"])
    one_at_a_time = replace(llama3(2), batch=Batch(128))
    assert exposed(llama3_step(one_at_a_time))["pp"] == pytest.approx(
        seconds(llama3_step(one_at_a_time))["pp"]
    )


def test_state_hides_behind_one_micro_batch_without_chunks() -> None:
    step = llama3_step(llama3(2))
    assert exposed(step)["dp"] == pytest.approx(seconds(step)["dp"] - step.compute_s / 16)


def test_chunks_let_state_hide_behind_the_chunks_that_follow() -> None:
    """All but the last chunk's 16 micro-batches, and one of those: 113 of 128."""
    step = llama3_step(INTERLEAVED, compute_s=0.3)
    assert exposed(step)["dp"] == pytest.approx(seconds(step)["dp"] - 0.3 * 113 / 128)
    assert exposed(llama3_step(INTERLEAVED))["dp"] == 0


def test_gradients_alone_hide_behind_backward_alone() -> None:
    ddp = llama3(2, training=Training(data_parallel=DataParallel.DDP))
    step = llama3_step(ddp)
    assert exposed(step)["dp"] == pytest.approx(seconds(step)["dp"] - step.compute_s / 16 * 2 / 3)


def test_what_is_exchanged_every_micro_batch_hides_behind_all_of_them() -> None:
    often = llama3(2, training=Training(DataParallel.ZERO3, sync=Sync.MICRO_BATCH))
    step = llama3_step(often, compute_s=1.0)
    assert exposed(step)["dp"] == pytest.approx(seconds(step)["dp"] - 1.0)


def test_context_parallel_waits_for_keys_and_values_not_for_weights() -> None:
    """Row 3: its groups carry 15/16 of the FSDP bytes as well, 17.8 of 33.7 GB."""
    step = llama3_step(llama3(3, virtual_stages=8))
    weights = 15 / 16 * 6 * 405.85e9 / 128
    total = next(a.load.bytes_per_gpu for a in step.axes if a.load.traffic.axis == "cp")
    share = 1 - weights / total
    assert exposed(step)["cp"] == pytest.approx(share * seconds(step)["cp"], rel=1e-3)


def test_a_share_given_by_hand_replaces_the_rule() -> None:
    step = llama3_step(llama3(2), hidden=(("tp", 0.75), ("dp", 0.0)))
    assert exposed(step)["tp"] == pytest.approx(seconds(step)["tp"] / 4)
    assert exposed(step)["dp"] == seconds(step)["dp"]


def test_no_step_is_shorter_than_its_busiest_link() -> None:
    hidden = tuple((axis, 1.0) for axis in ("tp", "pp", "dp"))
    step = llama3_step(llama3(2), compute_s=1e-3, hidden=hidden)
    assert step.seconds == step.busiest_link_s == pytest.approx(0.658, rel=1e-3)
    assert step.busiest_link == "scale-up"


def test_axes_share_a_link() -> None:
    loads = axis_loads(ROCE, llama3(2), list(WHOLE_REPLICAS))
    assert busiest_link(loads, None)[0] == "scale-up"
    outside = [load for load in loads if load.traffic.axis != "tp"]
    pp, dp = outside
    assert busiest_link(outside, None) == ("nic", pp.on("nic") + dp.on("nic"))


def test_without_a_model_nothing_hides_and_nothing_is_utilised() -> None:
    step = step_time(fabric(), gang(4, dp=4), range(4))
    assert (step.compute_s, step.flops, step.mfu) == (0.0, 0, None)
    assert step.seconds == pytest.approx(sum(exposed(step).values()))
    assert exposed(step) == seconds(step)


# --- published throughput --------------------------------------------------------------


@pytest.mark.parametrize(("row", "tflops", "mfu"), [(1, 430, 43), (2, 400, 41)])
def test_llama3_table_4_from_one_efficiency(row: int, tflops: float, mfu: float) -> None:
    """One rate of the kernels explains both sizes: bubble and communication the rest."""
    req = llama3(row, virtual_stages=8)
    world = req.parallelism.world_size
    step = step_time(ROCE, req, range(world // 8))
    assert step.flops / world / step.seconds / 1e12 == pytest.approx(tflops, rel=0.02)
    assert step.mfu is not None
    assert 100 * step.mfu == pytest.approx(mfu, abs=1)
    assert (
        tflops * 1e12 < FIRST_EFFICIENCY * FIRST_PEAK_FLOPS
    )  # kernels are faster than the whole step


@pytest.mark.parametrize("chunks", [1, 8])
def test_the_two_clusters_are_equal_in_order_and_differ_at_random(chunks: int) -> None:
    req = llama3(2, virtual_stages=chunks)
    in_order = [step_time(f, req, WHOLE_REPLICAS).seconds for f in (ROCE, IB)]
    hosts = np.random.default_rng(1).permutation(3_072)[:2_048].tolist()
    mixed = [step_time(f, req, hosts).seconds for f in (ROCE, IB)]
    assert in_order[0] == pytest.approx(in_order[1], rel=0.01)
    assert mixed[0] > 1.05 * mixed[1]
    assert mixed[1] == pytest.approx(in_order[1], rel=0.01)
