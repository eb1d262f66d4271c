"""Jobs through the service: from submission to the end, and what one is told meanwhile."""

import asyncio
from pathlib import Path

import grpc
import pytest

from scheduler.cli.render.goodput import goodput_text
from scheduler.cli.render.names import as_typed
from scheduler.cli.render.reason import explain_text
from scheduler.cli.render.status import _bound, _cut, _gap, status_text
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants
from scheduler.server.metrics.exposition import MetricsEndpoint
from scheduler.v1 import job_pb2, placement_pb2, service_pb2, status_pb2
from tests.build import exactly
from tests.integration.test_metrics import scraped
from tests.serving import (
    CANCELLED,
    COMPLETED,
    QUEUED,
    RUNNING,
    Served,
    create,
    path,
    refused,
    serving,
    slow_disk,
)
from tests.waiting import until

METRICS = MetricsEndpoint("127.0.0.1", 0, is_per_job=True)


async def test_a_step_and_what_is_proved_of_it_are_in_every_answer(tmp_path: Path) -> None:
    """In the dry run, in the job and in what explains it; and it is recounted after a swap."""
    request = create("timed", 4, spares=exactly(1))
    request.spec.compute_time.FromMilliseconds(2_500)
    request.spec.objective = placement_pb2.OBJECTIVE_UNSPECIFIED
    async with serving(tmp_path) as served:
        request.validate_only = True
        dry = (await served.stub.CreateJob(request)).answer.placement
        request.validate_only = False
        await served.stub.CreateJob(request)
        job = await served.until("timed", RUNNING)
        placement = job.placement
        said = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name="timed"))
        await served.report(placement.hosts[0], "gpu-lost")
        swapped = await until(lambda: served.get("timed"), lambda job: job.attempt > 1)
    assert job.spec.objective == placement_pb2.OBJECTIVE_TIME
    assert placement.step_time_lower_bound.ToNanoseconds() >= 2.5e9
    assert placement.step_time_lower_bound.ToNanoseconds() <= placement.step_time.ToNanoseconds()
    assert (dry.step_time, dry.step_time_lower_bound) == (
        placement.step_time,
        placement.step_time_lower_bound,
    )
    assert "a step takes 2.5" in said.reason.sentence
    assert swapped.placement.step_time.ToNanoseconds() >= 2.5e9
    assert swapped.placement.step_time_lower_bound == placement.step_time_lower_bound


async def _names(served: Served, **request: object) -> list[str]:
    answer = await served.stub.ListJobs(service_pb2.ListJobsRequest(**request))  # type: ignore[arg-type]
    return [job.spec.name for job in answer.jobs]


async def test_jobs_are_listed_by_state_without_their_hosts(served: Served) -> None:
    await served.start("big", 8)
    await served.stub.CreateJob(create("waiting"))
    await served.stub.CreateJob(create("gone"))
    await served.cancel("gone")
    assert await _names(served) == ["big", "waiting", "gone"]
    assert await _names(served, states=[QUEUED]) == ["waiting"]
    assert await _names(served, states=[RUNNING, CANCELLED]) == ["big", "gone"]
    big = (await served.stub.ListJobs(service_pb2.ListJobsRequest(page_size=1))).jobs[0]
    assert (big.placement.host_count, list(big.placement.hosts)) == (8, [])


async def test_a_what_if_answers_and_changes_nothing(served: Served) -> None:
    await served.start("big", 8)
    await served.stub.CreateJob(create("next", 4))
    asked = service_pb2.ExplainJobRequest(name="next", suppose=["cancel big", "cordon z1"])
    answer = await served.stub.ExplainJob(asked)
    again = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name="next"))
    bad = service_pb2.ExplainJobRequest(name="next", suppose=["cancel big", "burn z1"])
    error = await refused(served.stub.ExplainJob(bad))
    assert answer.what_if.sentence == "would start now on 4 hosts in z0"
    assert answer.what_if.state == RUNNING
    assert [host[:2] for host in answer.what_if.placement.hosts] == ["z0"] * 4
    assert list(answer.what_if.stops) == [path("big")]
    assert again.version == answer.version
    assert not again.HasField("what_if")
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "suppose[1]" in error.message


async def test_a_check_tells_what_the_request_has_done(served: Served) -> None:
    check = create("a", 2, request_id="r")
    check.validate_only = check.estimate_start = True
    new = await served.stub.CreateJob(check)
    assert (new.uid, new.answer.outcome) == ("", placement_pb2.OUTCOME_PLACED)
    made = await served.stub.CreateJob(create("a", 2, request_id="r"))
    again = await served.stub.CreateJob(check)
    assert (again.uid, again.HasField("answer")) == (made.uid, False)
    await served.cancel("a")
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
            await served.start(name, 4, priority_class="spot")
        check = create("a", 2, tenant="owner")
        check.validate_only = True
        answer = (await served.stub.CreateJob(check)).answer
        assert (answer.outcome, answer.preempted_jobs) == (placement_pb2.OUTCOME_PLACED, 1)
        assert await _names(served, states=[RUNNING]) == ["s1", "s2"]


async def test_a_cancel_answers_with_what_it_cancelled_though_the_name_lives_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are written in one append, behind a slow one."""
    async with serving(tmp_path) as served:
        first = await served.stub.CreateJob(create("a"))
        slow_disk(monkeypatch)
        before = served.stub.CreateJob(create("b"))
        await asyncio.sleep(0.01)
        cancel = served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        await asyncio.sleep(0.01)  # calls made at once may arrive in any order
        again = served.stub.CreateJob(create("a", 2))
        ended, made = await cancel, await again
        await before
    assert (ended.uid, ended.state) == (first.uid, CANCELLED)
    assert made.uid != first.uid


async def test_zones_that_lack_spares_are_named_before_and_after_the_start(served: Served) -> None:
    request = create("a", 8)
    request.spec.spares = "auto"
    request.validate_only = True
    supposed = (await served.stub.CreateJob(request)).answer.spare_shortages
    assert supposed
    assert all(zone.spares == 0 < zone.target for zone in supposed)
    request.validate_only = False
    await served.stub.CreateJob(request)
    await served.until("a", RUNNING)
    explained = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name=path("a")))
    for now, then in zip(explained.spare_shortages, supposed, strict=True):
        assert (now.domain, now.target, now.gpu_hours) == (
            *(then.domain, then.target),
            then.gpu_hours,
        )
        assert now.missed == pytest.approx(then.missed)
    zones = ", ".join(zone.domain for zone in supposed)
    assert f"{zones}: 0 of " in explain_text(explained)


# --- the cluster on one screen, over the wire and as text ----------------------------


async def _status(served: Served, **request: int) -> service_pb2.GetStatusResponse:
    return await served.stub.GetStatus(service_pb2.GetStatusRequest(**request))


async def test_status_counts_hosts_queue_and_gangs(served: Served) -> None:
    await served.start("a", 3, spares=exactly(1))
    await served.stub.CreateJob(create("b", 8))
    answer = await _status(served)
    assert sum(d.running_gpus for d in answer.domains) == 24
    assert sum(d.spare_hosts for d in answer.domains) == 1
    assert sum(d.free_gpus for d in answer.domains) == 32
    (tenant,) = answer.tenants
    assert (tenant.tenant, tenant.queued_jobs, tenant.oldest_job) == ("default", 1, path("b"))
    why = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name="b"))
    assert tenant.oldest_reason == why.reason.sentence
    assert (tenant.queued_gpus, tenant.held_gpus) == (64, 32)
    (gang,) = answer.gangs
    assert (gang.job, gang.hosts, gang.spares, gang.gap) == (path("a"), 3, 1, 0.0)
    assert answer.server.leader
    assert answer.version == (await served.get("b")).version


async def test_incidents_and_goodput_outlive_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics=METRICS) as served:
        job = await served.start("a", 3, spares=exactly(1))
        await served.report(job.placement.hosts[0], "nic-down")
        await until(lambda: served.get("a"), lambda job: job.attempt > 1)
        found = await scraped(served)
        assert 0 <= found("muster_job_ettr_ratio", job_name="a") <= 1
        await served.stub.EndJob(service_pb2.EndJobRequest(name="a", outcome=COMPLETED))
        goodput = (await served.stub.GetJob(service_pb2.GetJobRequest(name="a"))).goodput
        before, found = await _status(served), await scraped(served)
    async with serving(tmp_path) as served:
        after = await _status(served)
        ended = await served.stub.GetJob(service_pb2.GetJobRequest(name="a"))
    assert list(after.incidents) == list(before.incidents)
    assert [one.kind for one in after.incidents] == [
        status_pb2.INCIDENT_KIND_GANG_SWAPPED,
        status_pb2.INCIDENT_KIND_HOST_FAILED,
    ]
    left, joined = job.placement.hosts[0], job.placement.spares[0]
    assert f"gang swapped  a         {left} by {joined}" in status_text(as_typed(after))
    assert ended.goodput == goodput
    assert [share.part for share in goodput.parts] == list(job_pb2.GoodputPart.values())[1:]
    lasted_ns = goodput.count_time.ToNanoseconds() - job.create_time.ToNanoseconds()
    assert sum(share.duration.ToNanoseconds() for share in goodput.parts) == lasted_ns
    for share in goodput.parts:
        part = job_pb2.GoodputPart.Name(share.part).removeprefix("GOODPUT_PART_").lower()
        seconds = found("muster_gpu_seconds_total", part=part)
        assert seconds == pytest.approx(share.gpu_hours * 3_600)
    assert "rework " in goodput_text(goodput)


@pytest.mark.parametrize(
    ("crossing", "bound", "gap", "words"),
    [
        pytest.param(12, 0, None, ["-", "12 B", "unknown"], id="after a swap"),
        pytest.param(12, 6, 0.5, ["cut 50.0 %", "12 B", "6 B"], id="a gap"),
        pytest.param(0, 0, 0.0, ["cut optimal", "0 B", "0 B"], id="nothing crosses"),
    ],
)
def test_a_bound_that_nobody_has_proved_is_no_number(
    crossing: int, bound: int, gap: float | None, words: list[str]
) -> None:
    cut = placement_pb2.TierCut(tier="zone", bytes_per_step=crossing)
    gang = status_pb2.GangStatus(
        cuts=[cut], lower_bound_bytes_per_step=bound, objective_gap=gap, state=RUNNING
    )
    gang.objective = placement_pb2.OBJECTIVE_CUT
    assert [_gap(gang), _cut(gang), _bound(gang)] == words
    gang.objective, gang.objective_gap = placement_pb2.OBJECTIVE_TIME, 0.0026
    assert _gap(gang) == "step 0.3 %"
