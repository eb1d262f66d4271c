"""The cluster on one screen, over the wire and as text."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from scheduler.cli.render.names import as_typed
from scheduler.cli.render.status import _gang_row, status_text
from scheduler.v1 import placement_pb2, service_pb2, status_pb2
from tests.build import exactly
from tests.serving import RUNNING, Served, create, path, refused, serving


async def _status(served: Served, **request: int) -> service_pb2.GetStatusResponse:
    return await served.stub.GetStatus(service_pb2.GetStatusRequest(**request))


async def test_status_counts_hosts_queue_and_gangs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
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


async def test_only_so_many_gangs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for name, hosts in (("a", 1), ("b", 2), ("c", 2)):
            await served.stub.CreateJob(create(name, hosts))
            await served.until(name, RUNNING)
        answer = await _status(served, gangs=1)
        assert ([gang.job for gang in answer.gangs], answer.gang_count) == ([path("b")], 3)
        assert "and 2 smaller gangs" in status_text(answer)


@pytest.mark.parametrize("field", ["gangs", "incidents"])
async def test_fewer_than_none_is_refused(tmp_path: Path, field: str) -> None:
    async with serving(tmp_path) as served:
        error = await refused(_status(served, **{field: -1}))
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))


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
    shown, _, *rest = _gang_row(gang, status_pb2.ServerStatus())[-4:]
    assert [shown, *rest] == words
    gang.objective, gang.objective_gap = placement_pb2.OBJECTIVE_TIME, 0.0026
    assert _gang_row(gang, status_pb2.ServerStatus())[-4] == "step 0.3 %"
