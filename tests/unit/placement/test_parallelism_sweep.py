"""Choices of parallelism: which there are, and that the best of them are found."""

from dataclasses import replace

import pytest

from placement.errors import BadInput
from placement.fabric import hostset
from placement.objective.step_time import step_time
from placement.parallelism_sweep import parallel_choices, sweep
from placement.workload.framework_limits import is_accepted
from placement.workload.memory import fits, memory
from placement.workload.request import NO_SPARES, Limits, Request
from placement.workload.training import Batch, Recompute
from tests.build import LLAMA3, MIXTRAL, everything, fabric, place_checked, request, training

SMALL = replace(LLAMA3, layers=8, hidden=4_096, ffn=14_336, heads=32)
JOB = request(tp=2, dp=8, model=SMALL, batch=Batch(32), training=training(data_parallel="zero1"))


def axes(job: Request) -> tuple[int, ...]:
    p, batch = job.parallelism, job.batch
    assert batch is not None
    return (p.tp, p.cp, p.pp, p.ep, p.dp, batch.virtual_stages, batch.micro_sequences)


def test_choices_are_all_that_frameworks_take_and_memory_holds() -> None:
    found = list(parallel_choices(JOB, 16, 80, most_tp=8))
    assert len(set(found)) == len(found) > 50
    for job in found:
        p, use = job.parallelism, memory(job)
        assert p.world_size == 16
        assert p.tp <= 8
        assert is_accepted(job)
        assert use is not None
        assert fits(use, 80)
    assert (2, 1, 1, 1, 8, 1, 1) in map(axes, found)
    assert not [
        job for job in found if job.batch and job.batch.virtual_stages * job.parallelism.pp > 8
    ]


def test_recomputation_is_chosen_only_where_less_memory_is_needed() -> None:
    chosen = {axes(job): job.training.recompute for job in parallel_choices(JOB, 16, 1_000, 8)}
    tight = {axes(job): job.training.recompute for job in parallel_choices(JOB, 16, 24, 8)}
    assert set(tight) < set(chosen)
    assert set(chosen.values()) == {Recompute.NONE}
    assert Recompute.FULL in tight.values()


def test_experts_divide_over_ep() -> None:
    job = request(dp=8, model=MIXTRAL, batch=Batch(64), training=training(data_parallel="zero1"))
    sizes = {found.parallelism.ep for found in parallel_choices(job, 32, 80, 8)}
    assert max(sizes) == 8


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (request(dp=8, traffic={"dp": 1}), "model"),
        (request(dp=8, model=SMALL, batch=Batch(8), traffic={"dp": 1}), "traffic"),
    ],
)
def test_a_job_without_a_model_or_with_traffic_has_no_choices(job: Request, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        list(parallel_choices(job, 8, 80, 8))
    assert refused.value.field == field


def test_no_choice_is_faster_than_the_best_that_is_found() -> None:
    f = fabric()
    found = sweep(f, everything(f), JOB, 16, most=3)
    assert found.is_proved
    assert found.placed < found.fitting
    steps = []
    for job in parallel_choices(replace(JOB, spares=NO_SPARES), 16, 80, 8):
        answer = place_checked(f, everything(f), job, Limits().first)
        steps.append(step_time(f, job, answer.hosts).seconds)
    assert [choice.step.seconds for choice in found.best] == sorted(steps)[:3]


def test_busy_hosts_leave_no_room_for_any_choice() -> None:
    f = fabric()
    found = sweep(f, hostset.of(range(1)), JOB, 16, most=3)
    assert found.best == ()
    assert found.refused is not None
