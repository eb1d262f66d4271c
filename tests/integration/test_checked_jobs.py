"""A CreateJob that is only checked: what it says, and that it changes nothing."""

from pathlib import Path

import grpc

from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants
from scheduler.v1 import placement_pb2, service_pb2
from tests.serving import RUNNING, Served, create, refused, serving


async def test_a_check_tells_what_the_request_has_done(served: Served) -> None:
    check = create("a", 2, request_id="r")
    check.validate_only = check.estimate_start = True
    new = await served.stub.CreateJob(check)
    assert (new.uid, new.answer.outcome) == ("", placement_pb2.OUTCOME_PLACED)
    made = await served.stub.CreateJob(create("a", 2, request_id="r"))
    again = await served.stub.CreateJob(check)
    assert (again.uid, again.HasField("answer")) == (made.uid, False)
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    await served.stub.CreateJob(create("a", 2, request_id="second"))
    assert (await served.stub.CreateJob(check)).uid == made.uid
    other = create("b", 2, request_id="r")
    other.validate_only = True
    assert "used for another request" in (await refused(served.stub.CreateJob(other))).message


async def test_a_dry_run_says_when_the_job_would_start(served: Served) -> None:
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
