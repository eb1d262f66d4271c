"""Step time: compute by its parts on the GPUs of a fabric, what of communication a step waits for,
and the rules of both one by one."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from placement.fabric import hostset
from placement.fabric.gpus import catalogue
from placement.fabric.reader import preset
from placement.objective.axis_loads import axis_loads
from placement.objective.compute_time import compute_parts
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import (
    Assumptions,
    Pipeline,
    StepTime,
    busiest_link,
    compute_by_part,
    step_time,
)
from placement.tiers.step_clock import step_clock
from placement.workload.flops import training_flops
from placement.workload.request import Objective, Request
from placement.workload.training import Batch, DataParallel, PipelineSchedule, Sync, Training
from tests.build import (
    DEEPSEEK_V3,
    LLAMA3,
    fabric,
    gang,
    llama3,
    place_checked,
    regular,
    request,
    training,
    unlike,
)

ROCE = preset("roce-24k")
H100, GB200, A100 = (catalogue()[name] for name in ("H100", "GB200", "A100"))


def job(row: int = 2, *, chunks: int = 8, **changes: Any) -> Request:
    return replace(llama3(row, virtual_stages=chunks), **changes)


def compute_s(wanted: Request, gpu: str = "H100") -> float:
    hosts = wanted.hosts_needed(8)
    return step_time(regular(("host", hosts), gpu=gpu), wanted, range(hosts)).compute_s


def with_model(wanted: Request, **changes: Any) -> Request:
    assert wanted.model is not None
    return replace(wanted, model=replace(wanted.model, **changes))


def test_parts_add_up_to_compute() -> None:
    parts = compute_by_part(job(), H100)
    assert parts.keys() == {"GEMMs", "attention", "elementwise", "optimizer"}
    assert sum(parts.values()) == pytest.approx(compute_s(job()))


def test_work_of_llama3_405b_at_peak() -> None:
    """6 FLOPs a parameter and token, but for the input embedding; 126 layers."""
    parts = compute_parts(job(), H100)
    assert parts is not None
    tokens = 2_048 * 8_192 / 16_384
    assert parts.gemm_s == pytest.approx(6 * (405.85e9 - 2.1e9) * tokens / 989.4e12, rel=1e-3)
    attended = 126 * 16_384 * 2 * 4_096
    assert parts.attention_s == pytest.approx(6 * attended * tokens / 989.4e12)
    assert (parts.tokens, parts.width, parts.is_misaligned) == (8_192, 2_048, 0)


def test_a_gpu_has_its_own_pace() -> None:
    assert compute_s(job(), "A100") > 2 * compute_s(job(), "H100")
    assert compute_s(job(), "H100") > 2 * compute_s(job(), "GB200")


def test_matrices_and_attention_take_what_is_computed_of_them() -> None:
    narrow, wide = (compute_by_part(with_model(job(), dtype=d), H100) for d in ("fp8", "bf16"))
    assert narrow["GEMMs"] < 0.7 * wide["GEMMs"]
    assert narrow["attention"] == wide["attention"]
    # Recomputation costs a third of forward and backward.
    kept, again = (
        compute_by_part(job(training=training(recompute=how)), H100) for how in ("none", "full")
    )
    assert again["attention"] == pytest.approx(kept["attention"] * 4 / 3)
    assert 1.3 < again["GEMMs"] / kept["GEMMs"] < 4 / 3
    # Adapters save the gradients of the matrices.
    lora = compute_by_part(job(training=training(trained="lora")), H100)
    assert lora["GEMMs"] == pytest.approx(compute_by_part(job(), H100)["GEMMs"] * 2 / 3)
    assert "optimizer" not in lora


def test_odd_widths_and_small_experts_are_slower_than_their_flops() -> None:
    even = compute_by_part(job(), A100)["GEMMs"]
    odd = compute_by_part(with_model(job(), hidden=16_384 - 8, head_dim=128), A100)["GEMMs"]
    assert odd > 1.4 * even
    # Small experts are slower than their FLOPs.
    moe = request(ep=8, pp=4, dp=2, model=DEEPSEEK_V3, batch=Batch(512))
    parts = compute_parts(moe, H100)
    assert parts is not None
    assert (
        compute_by_part(moe, H100)["experts"]
        > 2 * parts.expert_s / fitted_constants().gemm["bf16:H100"]
    )


def test_a_stated_rate_has_no_interval_and_a_stated_peak_scales_matrices() -> None:
    hosts = range(2_048)
    assert step_time(ROCE, replace(job(), compute_s=5.0), hosts).interval is None
    assert step_time(ROCE, job(), hosts, Assumptions(600.0)).interval is None
    # A peak of one's own scales matrices.
    twice = compute_by_part(job(), H100, Assumptions(peak_tflops=2 * 989.4))
    assert twice["GEMMs"] == pytest.approx(compute_by_part(job(), H100)["GEMMs"] / 2)


def test_kin_stand_in_for_gpus_that_nobody_measured_with_wider_intervals() -> None:
    constants = fitted_constants()
    dense = constants.interval(has_experts=False, is_measured=True)
    experts = constants.interval(has_experts=True, is_measured=True)
    foreign = constants.interval(has_experts=False, is_measured=False)
    assert dense[1] < foreign[1] < experts[1]
    assert constants.rates("MI300X", "fp8").is_measured is False
    assert constants.rates("H100", "mxfp8") == constants.rates("H100", "fp8")
    # Kin stand in for GPUs that nobody measured.
    constants = fitted_constants()
    assert constants.rates("MI300X", "fp8").gemm == constants.gemm["fp8:MI325X"]
    assert constants.rates("own", "bf16").gemm == constants.gemm["bf16"]


def test_the_step_waits_for_shares_of_communication() -> None:
    shares = fitted_constants().exposed
    step = step_time(ROCE, job(), range(2_048))
    stretched = 1 + float(Pipeline.of(job()).bubble)
    axes = {axis.load.traffic.axis: axis for axis in step.axes}
    assert axes["tp"].exposed_s == pytest.approx(shares["tp"] * stretched * axes["tp"].seconds)
    assert axes["dp"].exposed_s == pytest.approx(shares["dp"] * axes["dp"].seconds)
    whole = step_time(ROCE, job(training=Training(sequence_parallel=False)), range(2_048))
    tp = next(axis for axis in whole.axes if axis.load.traffic.axis == "tp")
    assert tp.exposed_s == pytest.approx(shares["tp_whole"] * stretched * tp.seconds)


@pytest.mark.parametrize(
    ("schedule", "chunks", "bubble"),
    [
        ("1f1b", 1, Fraction(15, 16)),
        ("1f1b", 8, Fraction(15, 128)),
        ("zero_bubble", 1, Fraction(5, 16)),
        ("dualpipe", 1, Fraction(14, 48)),
    ],
)
def test_schedules_have_their_own_bubbles(schedule: str, chunks: int, bubble: Fraction) -> None:
    """DeepSeek-V3 (2024), table 2, with a backward pass of two forward ones."""
    batch = Batch(2_048, virtual_stages=chunks, schedule=PipelineSchedule(schedule))
    assert Pipeline.of(replace(job(), batch=batch)).bubble == bubble


SMALL = request(tp=8, dp=4, model=replace(LLAMA3, layers=4), batch=Batch(64))


def test_the_slowest_kind_of_a_gang_sets_the_pace_and_bounds_hold_for_each() -> None:
    on = unlike((4, {"gpu": "A100"}), (4, {"gpu": "H100"}))
    slow, fast, both = (
        step_time(on, SMALL, hosts) for hosts in ([0, 1, 2, 3], [4, 5, 6, 7], [3, 4, 5, 6])
    )
    assert both.compute_s == slow.compute_s > 2 * fast.compute_s
    assert both.interval == slow.interval
    # What the faster ones cannot use is lost.
    assert both.peak_flops == 0.25 * slow.peak_flops + 0.75 * fast.peak_flops
    # Bounds hold on hosts of every kind.
    on = unlike((4, {"gpu": "A100"}), (4, {"gpu": "H100"}))
    least = step_clock(on, SMALL).on_one_switch.seconds
    for hosts in ([0, 1, 2, 3], [4, 5, 6, 7], [3, 4, 5, 6]):
        assert step_time(on, SMALL, hosts).seconds >= least


def test_placement_takes_the_faster_gpus() -> None:
    for first, second in (("A100", "H100"), ("H100", "A100")):
        on = unlike((4, {"gpu": first}), (4, {"gpu": second}))
        timed = replace(SMALL, objective=Objective.TIME)
        answer = place_checked(on, hostset.full(on.host_count), timed)
        assert [gpu.name for gpu in on.by_host.kinds_of(answer.hosts)] == ["H100"]


# --- rules, one by one ----------------------------------------------------------------


def llama3_step(wanted: Request, **assumed: Any) -> StepTime:
    hosts = range(wanted.hosts_needed(8))
    return step_time(ROCE, wanted, hosts, Assumptions(**assumed))


def exposed(step: StepTime) -> dict[str, float]:
    return {axis.load.traffic.axis: axis.exposed_s for axis in step.axes}


def seconds(step: StepTime) -> dict[str, float]:
    return {axis.load.traffic.axis: axis.seconds for axis in step.axes}


def test_compute_is_flops_over_rate() -> None:
    step = llama3_step(llama3(2), achieved_tflops=500.0)
    assert step.compute_s == training_flops(llama3(2)) / (16_384 * 500e12)
    assert llama3_step(replace(llama3(2), compute_s=3.0)).compute_s == 3.0  # measured


@pytest.mark.parametrize(("chunks", "row", "bubble"), [(8, 2, 0.117), (8, 1, 0.059), (1, 2, 0.938)])
def test_bubble(chunks: int, row: int, bubble: float) -> None:
    """(p-1)/(v m): 16 stages; 16 micro-batches in row 2, 32 in row 1."""
    req = llama3(row, virtual_stages=chunks)
    assert float(Pipeline.of(req).bubble) == pytest.approx(bubble, abs=6e-4)
    step = llama3_step(req)
    assert step.bubble_s == pytest.approx(step.compute_s * float(Pipeline.of(req).bubble))


def test_the_step_is_the_sum_of_its_parts_and_gives_the_utilisation() -> None:
    step = llama3_step(job())
    parts = step.compute_s + step.bubble_s + sum(exposed(step).values())
    assert step.seconds == pytest.approx(parts)
    assert step.seconds > step.busiest_link_s
    # MFU is FLOPs over what the GPUs could have done.
    step = llama3_step(job())
    assert step.mfu == pytest.approx(step.flops / (16_384 * 989.4e12 * step.seconds))


@pytest.mark.parametrize(
    ("wanted", "window"),
    [
        (llama3(2), 1 / 16),  # one micro-batch
        # All but the last chunk's 16 micro-batches, and one of those.
        (job(), 113 / 128),
        (llama3(2, training=Training(data_parallel=DataParallel.DDP)), 2 / 3 / 16),  # backward
        (llama3(2, training=Training(DataParallel.ZERO3, sync=Sync.MICRO_BATCH)), 1),
    ],
)
def test_state_hides_behind_the_compute_in_which_no_rank_needs_it(
    wanted: Request, window: float
) -> None:
    """But for a share that never hides."""
    step, share = llama3_step(replace(wanted, compute_s=0.1)), fitted_constants().exposed["dp"]
    late_s = max(0.0, (1 - share) * seconds(step)["dp"] - 0.1 * window)
    assert exposed(step)["dp"] == pytest.approx(share * seconds(step)["dp"] + late_s)
    assert late_s


def test_no_step_is_shorter_than_its_busiest_link_which_axes_share() -> None:
    step = llama3_step(replace(llama3(2), compute_s=1e-3, traffic=(("pp", 0), ("dp", 0))))
    assert step.seconds == step.busiest_link_s == pytest.approx(0.658, rel=1e-3)
    assert step.busiest_link == "scale-up"
    # Axes share a link.
    loads = axis_loads(ROCE, llama3(2), list(range(2_048)))
    assert busiest_link(loads, None)[0] == "scale-up"
    outside = [load for load in loads if load.traffic.axis != "tp"]
    pp, dp = outside
    assert busiest_link(outside, None) == ("nic", pp.on("nic") + dp.on("nic"))


def test_without_a_model_nothing_hides_and_nothing_is_utilised() -> None:
    step = step_time(fabric(), gang(4, dp=4), range(4))
    assert (step.compute_s, step.flops, step.mfu) == (0.0, 0, None)
    assert step.seconds == pytest.approx(sum(exposed(step).values()))
    assert exposed(step) == seconds(step)


@pytest.mark.parametrize(
    ("stages", "chunks", "hops", "expected"),
    [
        # 8 micro-batches, 1 s of compute: 2 m (p-1)/p messages and those of the first trip.
        (4, 1, [1.6, 1.6, 1.6], 8 * 0.6 / 4 + 3 * 0.6 / 4),
        # A slow hop behind all others is met by every second micro-batch.
        (4, 1, [0.0, 0.0, 1.6], 0.2 + 7 * 0.2 / 2),
        # With chunks only the first micro-batch waits for short messages, in each chunk.
        (4, 2, [0.16, 0.16, 0.16, 0.08], 2 * 0.03 + 0.01),
    ],
)
def test_waits_for_hops_follow_from_what_is_under_way(
    stages: int, chunks: int, hops: list[float], expected: float
) -> None:
    assert Pipeline(stages, chunks, 8).wait_for_hops(hops, 1.0) == pytest.approx(expected)
