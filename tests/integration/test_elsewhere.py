"""A job that is left to another cluster is not made here, whenever its request arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access.methods import METHODS
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants
from scheduler.v1 import placement_pb2, service_pb2
from tests.serving import RUNNING, create, refused, serving

INVALID, WRONG_STATE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


def _asked(name: str, request_id: str = "", **fields: Any) -> service_pb2.CreateJobRequest:
    request = create(name, 2, request_id=request_id)
    for field, value in fields.items():
        setattr(request, field, value)
    assert isinstance(request, service_pb2.CreateJobRequest)
    return request


async def test_a_late_request_makes_no_job(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for _ in range(2):
            left = await served.stub.CreateJob(_asked("a", "r", elsewhere="east/1"))
            assert (left.name, left.uid) == ("tenants/default/jobs/a", "")
        other = await refused(served.stub.CreateJob(_asked("a", "r", elsewhere="west/2")))
        late = await refused(served.stub.CreateJob(_asked("a", "r")))
        assert other.code is late.code is INVALID
        assert "'r' was used for another request: leave a to east/1" in late.message
    async with serving(tmp_path) as served:  # it is in the log
        assert (await refused(served.stub.CreateJob(_asked("a", "r")))).code is INVALID
        listed = await served.stub.ListJobs(service_pb2.ListJobsRequest())
        assert not listed.jobs
        assert (await served.stub.CreateJob(_asked("a", "other"))).uid


async def test_a_job_that_is_made_cannot_be_left(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        made = await served.stub.CreateJob(_asked("a", "r"))
        error = await refused(served.stub.CreateJob(_asked("a", "r", elsewhere="east/1")))
        assert "'r' was used for another request: submit a" in error.message
        assert (await served.stub.CreateJob(_asked("a", "r"))).uid == made.uid


async def test_what_is_left_to_another_cluster_cannot_be_checked(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        both = _asked("a", "r", elsewhere="east/1", validate_only=True)
        error = await refused(served.stub.CreateJob(both, timeout=20))
        assert error.code is INVALID
        assert error.message.startswith("elsewhere: leaves nothing to check")


async def test_a_check_tells_what_the_request_has_done(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        new = await served.stub.CreateJob(_asked("a", "r", validate_only=True))
        assert (new.uid, new.answer.outcome) == ("", placement_pb2.OUTCOME_PLACED)
        made = await served.stub.CreateJob(_asked("a", "r"))
        check = _asked("a", "r", validate_only=True, estimate_start=True)
        again = await served.stub.CreateJob(check)
        assert (again.uid, again.HasField("answer")) == (made.uid, False)
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        await served.stub.CreateJob(_asked("a", "second"))
        assert (await served.stub.CreateJob(check)).uid == made.uid
        other = _asked("b", "r", validate_only=True)
        assert "used for another request" in (await refused(served.stub.CreateJob(other))).message
        await served.stub.CreateJob(_asked("c", "q", elsewhere="east/1"))
        left = await refused(served.stub.CreateJob(_asked("c", "q", validate_only=True)))
        assert left.code is WRONG_STATE
        assert left.reason in METHODS["/scheduler.v1.SchedulerService/CreateJob"].refused
        assert "request 'q' was to leave c to east/1" in left.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"elsewhere": "x" * 257, "request_id": "r"},
            "elsewhere: must have at most 256 characters",
        ),
        ({"elsewhere": "x"}, "elsewhere: takes a request_id"),
    ],
)
async def test_what_cannot_be_left(tmp_path: Path, fields: dict[str, str], words: str) -> None:
    async with serving(tmp_path) as served:
        error = await refused(served.stub.CreateJob(_asked("a", **fields)))
        assert (error.code, words in error.message) == (INVALID, True)


async def test_a_dry_run_says_when_the_job_would_start(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        hour = create("a", 8)
        hour.spec.time_limit.FromSeconds(3_600)
        await served.stub.CreateJob(hour)
        running = await served.until("a", RUNNING)
        check = create("b", 2)
        check.validate_only = True
        assert not (await served.stub.CreateJob(check)).HasField("start_estimate")
        check.estimate_start = True
        answer = await served.stub.CreateJob(check)
        assert answer.answer.outcome == placement_pb2.OUTCOME_INSUFFICIENT
        wait_s = answer.start_estimate.start_time.seconds - running.update_time.seconds
        assert 3_590 < wait_s < 3_610
        check.spec.name = "a"
        assert (await refused(served.stub.CreateJob(check))).code is grpc.StatusCode.ALREADY_EXISTS


async def test_a_dry_run_counts_whom_it_would_preempt_and_preempts_nobody(tmp_path: Path) -> None:
    tenants = Tenants(
        (Tenant("owner", guaranteed_gpus=8 * 8), Tenant("default")),
        classes=(PriorityClass("spot", 0, is_preemptible=True),),
        preemption=Preemption(min_run_s=0),
    )
    async with serving(tmp_path, tenants=tenants) as served:
        for name in ("s1", "s2"):
            await served.stub.CreateJob(create(name, 4, priority_class="spot"))
            await served.until(name, RUNNING)
        check = create("a", 2, tenant="owner")
        check.validate_only = True
        answer = (await served.stub.CreateJob(check)).answer
        assert (answer.outcome, answer.preempted_jobs) == (placement_pb2.OUTCOME_PLACED, 1)
        states = [job.state for job in (await served.stub.ListJobs(_ALL)).jobs]
        assert states == [RUNNING, RUNNING]


_ALL = service_pb2.ListJobsRequest()
