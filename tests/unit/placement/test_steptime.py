"""Step time: its parts by hand, and its rules one by one."""

import pytest

from placement.fabric.reader import preset
from placement.objective.axis_loads import axis_loads
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import (
    Assumptions,
    Pipeline,
    StepTime,
    busiest_link,
    step_time,
)
from placement.workload.flops import training_flops
from placement.workload.request import Request
from placement.workload.training import DataParallel, Sync, Training
from tests.build import fabric, gang, llama3

ROCE, IB = preset("roce-24k"), preset("ib-24k")
WHOLE_REPLICAS = range(2_048)


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
    assert step.mfu == pytest.approx(step.flops / (16_384 * 989.4e12 * step.seconds))


@pytest.mark.parametrize(
    ("job", "window"),
    [
        (llama3(2), 1 / 16),  # one micro-batch
        # All but the last chunk's 16 micro-batches, and one of those.
        (INTERLEAVED, 113 / 128),
        (llama3(2, training=Training(data_parallel=DataParallel.DDP)), 2 / 3 / 16),  # backward
        (llama3(2, training=Training(DataParallel.ZERO3, sync=Sync.MICRO_BATCH)), 1),
    ],
)
def test_state_hides_behind_the_compute_in_which_no_rank_needs_it(
    job: Request, window: float
) -> None:
    """But for a share that never hides."""
    step, share = llama3_step(job, compute_s=0.1), fitted_constants().exposed["dp"]
    late_s = max(0.0, (1 - share) * seconds(step)["dp"] - 0.1 * window)
    assert exposed(step)["dp"] == pytest.approx(share * seconds(step)["dp"] + late_s)
    assert late_s


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
