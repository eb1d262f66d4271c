"""Steps as ranks report them beside those of the model, and which gangs are slower than that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from muster.structs import replace
from placement.objective.step_time import step_time
from placement.workload.request import STEP_MODEL
from placement.workload.training import Batch
from scheduler.cli.render.messages import _progress
from scheduler.core import JobSpec, State
from scheduler.core.model.commands import SubmitJob
from scheduler.core.rules.network.gang_step import likely_step
from scheduler.observe import catalogue as c
from scheduler.server.metrics.samples import of_steps
from scheduler.v1 import job_pb2
from scheduler.wire.jobs import fill_progress
from tests.build import LLAMA3, fabric, gang, loaded, request, run, schedule

MODEL = replace(LLAMA3, layers=8, hidden=4_096, ffn=14_336, heads=32)


@dataclass
class Said:
    """What ranks say."""

    step_s: float | None
    step: int = 7
    total: int = 0
    loss: float = float("nan")
    busy: dict[str, str] = field(default_factory=dict)


def running(job: Any) -> State:
    return schedule(run(loaded(fabric()), SubmitJob(JobSpec("a", job), "uid")))


JOB = replace(request(tp=8, dp=2, model=MODEL, batch=Batch(16)), step_model=STEP_MODEL)
STATE = running(JOB)


def progress_of(step_s: float | None, state: State = STATE) -> job_pb2.TrainingProgress:
    message = job_pb2.TrainingProgress()
    fill_progress(message, Said(step_s), 0.0, likely_step(state, state.jobs["a"]))
    return message


def test_the_model_step_is_that_of_the_hosts_with_its_interval() -> None:
    job, likely = STATE.jobs["a"], likely_step(STATE, STATE.jobs["a"])
    assert likely is not None
    step = step_time(STATE.loaded_fabric, job.request, job.hosts)
    assert (likely.low_s, likely.high_s) == step.likely_s
    assert likely.low_s < likely.seconds == step.seconds < likely.high_s


@pytest.mark.parametrize(("share", "is_slower"), [(1.0, False), (1.1, False), (1.5, True)])
def test_a_gang_is_named_once_it_leaves_the_interval(share: float, is_slower: bool) -> None:
    likely = likely_step(STATE, STATE.jobs["a"])
    assert likely is not None
    message = progress_of(share * likely.seconds)
    assert message.slower_than_model is is_slower
    assert ("SLOWER THAN ITS MODEL" in _progress(message)) is is_slower
    assert "in 8 of 10 such runs" in _progress(message)


def test_a_job_without_a_model_is_compared_with_nothing() -> None:
    message = progress_of(2.0, running(gang(4)))
    assert not message.HasField("model_step_time")
    assert not message.slower_than_model
    assert "modelled" not in _progress(message)


def test_metrics_have_both_steps_of_each_gang_that_reports() -> None:
    likely = likely_step(STATE, STATE.jobs["a"])
    assert likely is not None
    samples = list(of_steps(STATE, lambda uid, attempt: (Said(2 * likely.seconds), 0.0)))
    assert samples == [
        (c.JOB_STEP, ("a",), 2 * likely.seconds),
        (c.JOB_MODEL_STEP, ("a",), likely.seconds),
        (c.JOB_SLOWER, ("a",), True),
    ]
    assert not list(of_steps(STATE, lambda uid, attempt: None))
    assert not list(of_steps(STATE, lambda uid, attempt: (Said(None), 0.0)))
