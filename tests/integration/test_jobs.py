"""Jobs through the service: from submission to the end, and what one is told meanwhile."""

import asyncio
from pathlib import Path

import grpc
import pytest

from scheduler.cli.render.names import as_typed
from scheduler.cli.render.reason import explain_text
from scheduler.cli.render.status import _bound, _cut, _gap, status_text
from scheduler.v1 import placement_pb2, service_pb2, status_pb2
from tests.build import exactly
from tests.serving import (
    CANCELLED,
    QUEUED,
    RUNNING,
    Served,
    create,
    path,
    serving,
    slow_disk,
)
from tests.waiting import until


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
        lost = service_pb2.ReportHostRequest(name=placement.hosts[0], signal="gpu-lost")
        await served.stub.ReportHost(lost)
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
    await served.stub.CreateJob(create("big", 8))
    await served.until("big", RUNNING)
    await served.stub.CreateJob(create("waiting"))
    await served.stub.CreateJob(create("gone"))
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="gone"))
    assert await _names(served) == ["big", "waiting", "gone"]
    assert await _names(served, states=[QUEUED]) == ["waiting"]
    assert await _names(served, states=[RUNNING, CANCELLED]) == ["big", "gone"]
    big = (await served.stub.ListJobs(service_pb2.ListJobsRequest(page_size=1))).jobs[0]
    assert (big.placement.host_count, list(big.placement.hosts)) == (8, [])


async def test_a_retried_request_finds_its_job_after_the_name_was_used_again(
    served: Served,
) -> None:
    first = await served.stub.CreateJob(create("a", request_id="r1"))
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    other = await served.stub.CreateJob(create("a", request_id="r2"))
    again = await served.stub.CreateJob(create("a", request_id="r1"))
    assert other.uid != first.uid
    assert (again.uid, again.state) == (first.uid, CANCELLED)


async def test_a_what_if_answers_and_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("big", 8))
        await served.until("big", RUNNING)
        await served.stub.CreateJob(create("next", 4))
        asked = service_pb2.ExplainJobRequest(name="next", suppose=["cancel big", "cordon z1"])
        answer = await served.stub.ExplainJob(asked)
        again = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name="next"))
        bad = service_pb2.ExplainJobRequest(name="next", suppose=["cancel big", "burn z1"])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.ExplainJob(bad)
    assert answer.what_if.sentence == "would start now on 4 hosts in z0"
    assert answer.what_if.state == RUNNING
    assert [host[:2] for host in answer.what_if.placement.hosts] == ["z0"] * 4
    assert list(answer.what_if.stops) == [path("big")]
    assert again.version == answer.version
    assert not again.HasField("what_if")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "suppose[1]" in (caught.value.details() or "")


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
    assert f"{supposed[0].domain}: 0 of " in explain_text(explained)


# --- the cluster on one screen, over the wire and as text ----------------------------


async def _status(served: Served, **request: int) -> service_pb2.GetStatusResponse:
    return await served.stub.GetStatus(service_pb2.GetStatusRequest(**request))


async def test_status_counts_hosts_queue_and_gangs(served: Served) -> None:
    await served.stub.CreateJob(create("a", 3, spares=exactly(1)))
    await served.until("a", RUNNING)
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


async def test_incidents_outlive_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a", 3, spares=exactly(1)))
        job = await served.until("a", RUNNING)
        report = service_pb2.ReportHostRequest(name=job.placement.hosts[0], signal="nic-down")
        await served.stub.ReportHost(report)
        while (await served.get("a")).attempt == 1:
            pass
        before = await _status(served)
    async with serving(tmp_path) as served:
        after = await _status(served)
    assert list(after.incidents) == list(before.incidents)
    kinds = [one.kind for one in after.incidents]
    assert kinds == [
        status_pb2.INCIDENT_KIND_GANG_SWAPPED,
        status_pb2.INCIDENT_KIND_HOST_FAILED,
    ]
    left, joined = job.placement.hosts[0], job.placement.spares[0]
    assert f"gang swapped  a         {left} by {joined}" in status_text(as_typed(after))


@pytest.mark.parametrize(
    ("crossing", "bound", "gap", "words"),
    [
        (12, 0, None, ["-", "12 B", "unknown"]),  # as after a swap
        (12, 6, 0.5, ["cut 50.0 %", "12 B", "6 B"]),
        (12, 12, 0.0, ["cut optimal", "12 B", "12 B"]),
        (0, 0, 0.0, ["cut optimal", "0 B", "0 B"]),
    ],
)
def test_a_bound_that_nobody_has_proved_is_no_number(
    crossing: int, bound: int, gap: float | None, words: list[str]
) -> None:
    cut = placement_pb2.TierCut(tier="zone", bytes_per_step=crossing)
    gang = status_pb2.GangStatus(
        job="a",
        cuts=[cut],
        lower_bound_bytes_per_step=bound,
        objective=placement_pb2.OBJECTIVE_CUT,
        objective_gap=gap,
        state=RUNNING,
    )
    assert [_gap(gang), _cut(gang), _bound(gang)] == words
    gang.objective, gang.objective_gap = placement_pb2.OBJECTIVE_TIME, 0.0026
    assert _gap(gang) == "step 0.3 %"
