"""Steps played message by message: closed forms, fair shares, orders of pipelines."""

from math import inf, isinf

import numpy as np
import pytest

from network.step_simulation import max_min_rates, play, simulate_step
from network.step_tasks import pipeline_order, step_tasks
from placement import BadInput
from placement.fabric.links import with_links
from placement.objective.step_time import Pipeline, step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Request
from placement.workload.training import Batch, DataParallel, PipelineSchedule, Training
from tests.build import regular

GB = 1_000_000_000  # what a network card of the fabric carries in a second
FABRIC = regular(("zone", 2, {"oversubscription": 4}), ("host", 8), gpus=1, nic_gbps=8)


def seconds(request: Request, hosts: list[int] | range, compute_s: float = 1.0) -> float:
    return simulate_step(FABRIC, request, hosts, compute_s).seconds


def test_rates_fill_a_link_of_every_flow_and_no_link_is_overfull() -> None:
    path = np.array([[0, 1], [0, 3], [1, 3]])
    rates = max_min_rates(path, np.ones(3), np.array([1.0, 3.0, 0.0, inf]))
    assert rates == pytest.approx([0.5, 0.5, 2.5])
    # Rates fill a link of every flow and no link is overfull.
    random = np.random.default_rng(1)
    for _ in range(50):
        path, flows = random.integers(0, 12, (40, 3)), random.integers(1, 4, 40).astype(float)
        bytes_per_s = random.uniform(1, 10, 12)
        # A flow passes a link once.
        path[path[:, 1] == path[:, 0], 1] = 12
        path[(path[:, 2] == path[:, 0]) | (path[:, 2] == path[:, 1]), 2] = 12
        rates = max_min_rates(path, flows, np.append(bytes_per_s, inf))
        load = np.bincount(path.ravel(), np.repeat(rates, 3), 13)[:12]
        assert (load <= bytes_per_s * (1 + 1e-6)).all()
        is_full = np.append(load >= bytes_per_s * (1 - 1e-6), False)
        each = rates / flows
        for flow, links in enumerate(path):
            # Max-min: on some full link of each flow nobody gets more than it does.
            assert any(
                is_full[link] and each[flow] >= each[(path == link).any(axis=1)].max() * (1 - 1e-6)
                for link in links
            )


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), [(4, 8, 1), (4, 8, 2), (2, 3, 1)])
def test_without_bytes_a_pipeline_takes_compute_and_its_bubble(
    stages: int, micro_batches: int, chunks: int
) -> None:
    batch = Batch(micro_batches, 1, chunks)
    request = Request(Parallelism(pp=stages), (("pp", 0),), batch=batch, compute_s=1.0)
    expected = 1 + float(Pipeline.of(request).bubble)
    assert seconds(request, range(stages)) == pytest.approx(expected)


def test_zero_bubble_fills_all_but_a_third_of_the_bubble() -> None:
    batch = Batch(8, 1, schedule=PipelineSchedule.ZERO_BUBBLE)
    request = Request(Parallelism(pp=4), (("pp", 0),), batch=batch, compute_s=1.2)
    assert seconds(request, range(4), 1.2) == pytest.approx(1.2 + 0.45 / 3)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (3, 6), (4, 8), (8, 16)])
def test_1f1b_waits_for_the_messages_of_a_round_trip_every_p_micro_batches(
    stages: int, micro_batches: int
) -> None:
    """p micro-batches are under way, and the next one may enter when one has gone p-1 messages up
    and p-1 down: m times 2 (p-1)/p messages, and 2 (p-2) while it fills and drains."""
    message_s = 0.001
    sent = round(2 * micro_batches * message_s * GB)
    request = Request(
        Parallelism(pp=stages), (("pp", sent),), batch=Batch(micro_batches), compute_s=1.0
    )
    idle = 1 + float(Pipeline.of(request).bubble)
    p, m = stages, micro_batches
    waited = (seconds(request, range(stages)) - idle) / message_s
    assert waited == pytest.approx(2 * m * (p - 1) / p + 2 * (p - 2), rel=1e-6)


def test_messages_of_a_pair_arrive_in_turn_and_chunks_hide_all_but_one_micro_batchs() -> None:
    # Of four long messages two are under way: the second back comes with the third out.
    request = Request(Parallelism(pp=2), (("pp", 8 * GB),), batch=Batch(4), compute_s=0.004)
    assert seconds(request, range(2), 0.004) == pytest.approx(5, rel=0.01)
    # Interleaved chunks hide all messages but those of one micro-batch.
    message_s, p, m, v = 0.001, 4, 16, 2
    sent = round(2 * m * v * message_s * GB)
    request = Request(Parallelism(pp=p), (("pp", sent),), batch=Batch(m, 1, v), compute_s=1.0)
    waited = seconds(request, range(p)) - 1 - float(Pipeline.of(request).bubble)
    assert waited / message_s == pytest.approx(2 * (p * v - 1), rel=1e-6)


@pytest.mark.parametrize("hosts", [range(8), range(4, 12)])
@pytest.mark.parametrize("axis", ["ep", "cp"])
def test_an_exposed_axis_takes_as_long_as_its_busiest_link(axis: str, hosts: range) -> None:
    parallelism = Parallelism(ep=8) if axis == "ep" else Parallelism(cp=8)
    request = Request(parallelism, ((axis, GB // 10),), compute_s=1.0)
    formula = step_time(FABRIC, request, hosts).seconds
    assert seconds(request, hosts) == pytest.approx(formula)


@pytest.mark.parametrize("kind", [DataParallel.FSDP, DataParallel.DDP])
def test_the_first_and_the_last_piece_of_state_hide_behind_nothing(kind: DataParallel) -> None:
    """Of eight: FSDP gathers a third of the bytes and scatters two thirds, DDP reduces."""
    request = Request(
        *(Parallelism(dp=8), (("dp", GB // 10),)),
        compute_s=10.0,
        training=Training(data_parallel=kind),
    )
    assert seconds(request, range(8), 10.0) == pytest.approx(10 + 0.1 / 8)


def test_axes_that_send_at_the_same_time_share_a_link() -> None:
    parallelism = Parallelism(pp=2, dp=2)
    sent = (("pp", 2 * GB), ("dp", 2 * GB))
    both = Request(parallelism, sent, batch=Batch(8), compute_s=0.1)
    alone = Request(parallelism, (("pp", 0), ("dp", 2 * GB)), batch=Batch(8), compute_s=0.1)
    # A stage's card sends 2 GB of dp and 1 GB of pp: 3 s, whatever overlaps.
    assert seconds(both, range(4), 0.1) >= 3 > seconds(alone, range(4), 0.1)


def test_a_hierarchical_collective_sends_what_the_formula_counts() -> None:
    request = Request(
        Parallelism(cp=8), (("cp", GB // 10),), (("cp", Collective.HIERARCHICAL),), compute_s=1.0
    )
    hosts = range(4, 12)
    formula = step_time(FABRIC, request, hosts).seconds
    assert seconds(request, hosts) == pytest.approx(formula, rel=0.3)
    assert seconds(request, hosts) > 1


def test_one_unit_stands_for_a_tensor_parallel_group_in_a_host() -> None:
    fabric = regular(("host", 4), gpus=4, nic_gbps=8)
    sent = (("tp", 20 * GB), ("ep", GB // 10), ("pp", GB // 10))
    request = Request(Parallelism(tp=4, ep=2, pp=2), sent, batch=Batch(8), compute_s=1.0)
    merged = simulate_step(fabric, request, range(4), 1.0)
    assert len(step_tasks(fabric, request, range(4), 1.0).host_by_unit) == 4
    apart = play(fabric, step_tasks(fabric, request, range(4), 1.0, merged=False))
    assert apart.messages > 4 * merged.messages
    assert merged.seconds == pytest.approx(apart.seconds, rel=0.01)


def test_over_an_uplink_that_is_down_a_step_never_ends() -> None:
    down = with_links(FABRIC, {"z1": 0.0})
    request = Request(Parallelism(dp=8), (("dp", GB),), compute_s=1.0)
    assert isinf(simulate_step(down, request, range(4, 12), 1.0).seconds)
    assert simulate_step(down, request, range(8), 1.0).seconds < 10


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 3, 4, 9])
@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("schedule", [PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE])
def test_a_stage_passes_each_micro_batch_once_in_each_way(
    stages: int, micro_batches: int, chunks: int, schedule: PipelineSchedule
) -> None:
    is_zero = schedule is PipelineSchedule.ZERO_BUBBLE
    batch = Batch(micro_batches, 1, chunks, schedule)
    request = Request(Parallelism(pp=stages), (("pp", 0),), batch=batch, compute_s=1.0)
    for stage in range(stages):
        order = pipeline_order(Pipeline.of(request), stage, is_zero)
        assert len(order) == len(set(order)) == micro_batches * chunks * (3 if is_zero else 2)
    assert seconds(request, range(stages)) >= 1 - 1e-9  # and none waits for itself


def test_dualpipe_and_pipelines_without_a_batch_are_refused() -> None:
    dual = Batch(8, 1, schedule=PipelineSchedule.DUALPIPE)
    for batch, said in ((dual, "dualpipe is not simulated"), (None, "gives the micro-batches")):
        request = Request(Parallelism(pp=2), (("pp", GB),), batch=batch, compute_s=1.0)
        with pytest.raises(BadInput, match=said):
            seconds(request, range(2))
