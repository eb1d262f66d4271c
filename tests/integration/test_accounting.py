"""What jobs have used, summed up by the server and written by `muster accounting`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from scheduler.cli.program import app
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2
from tests.secured import callers
from tests.serving import COMPLETED, START_NS, Served, create, refused, serving

TENANT, USER, DAY = (
    service_pb2.USAGE_KEY_TENANT,
    service_pb2.USAGE_KEY_USER,
    service_pb2.USAGE_KEY_DAY,
)
HOUR_NS = 3600 * SECOND_NS
HOST_GPUS = 8
TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))


class Clock:
    """Stands still until somebody moves it."""

    def __init__(self) -> None:
        self.now_ns = START_NS  # 2023-11-14T22:13:20Z

    def __call__(self) -> int:
        return self.now_ns

    def pass_hours(self, hours: float) -> None:
        self.now_ns += round(hours * HOUR_NS)


@pytest.fixture(autouse=True)
def few_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state keeps the newest two of a tenant; the rest is in the store alone."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 2)
    monkeypatch.setattr("scheduler.service.rpc.jobs.usage.PAGE", 2)


async def usage(stub: Any, *keys: Any, **request: Any) -> service_pb2.SumUsageResponse:
    return await stub.SumUsage(service_pb2.SumUsageRequest(group_by=keys, **request))


def hours(row: service_pb2.UsageRow) -> tuple[int, float]:
    return row.jobs, round(row.held_gpu_hours, 6)


@pytest.fixture
async def worked(tmp_path: Path) -> AsyncIterator[Served]:
    """Eight hosts: five jobs of an hour on one host each, one of which fails, one that waits and
    one that runs on. The second half ends on the next day."""
    clock = Clock()
    async with serving(tmp_path, clock=clock) as served:
        for number in range(5):
            await served.start(f"j{number}")
            clock.pass_hours(1)
            outcome = job_pb2.JOB_STATE_FAILED if number == 1 else COMPLETED
            end = service_pb2.EndJobRequest(name=f"j{number}", outcome=outcome, attempt=1)
            await served.stub.EndJob(end)
        await served.start("big", 8)
        await served.stub.CreateJob(create("waits", hosts=4))
        clock.pass_hours(0.5)
        yield served


async def test_sums_are_those_of_every_job(worked: Served) -> None:
    answer = await usage(worked.stub, DAY)
    assert [(row.day, *hours(row)) for row in answer.rows] == [
        ("2023-11-14", 1, 8.0),  # ended at 23:13
        ("2023-11-15", 6, 4 * 8.0 + 8 * 8 * 0.5),
    ]
    total = answer.total
    assert (total.jobs, total.completed, total.failed, total.cancelled) == (7, 4, 1, 0)
    parts = {share.part: share for share in total.goodput.parts}
    waited = parts[job_pb2.GOODPUT_PART_QUEUEING]
    assert waited.duration.ToNanoseconds() == HOUR_NS / 2
    assert waited.gpu_hours == pytest.approx(4 * HOST_GPUS * 0.5)
    every = [
        await worked.stub.GetJob(service_pb2.GetJobRequest(name=name))
        for name in ("j0", "j1", "j2", "j3", "j4", "big", "waits")
    ]
    for part, share in parts.items():
        singles = [s.gpu_hours for job in every for s in job.goodput.parts if s.part == part]
        assert share.gpu_hours == pytest.approx(sum(singles))


async def test_a_period_has_what_ended_in_it(worked: Served) -> None:
    request = service_pb2.SumUsageRequest()
    request.start_time.FromNanoseconds(START_NS + 2 * HOUR_NS)
    request.end_time.FromNanoseconds(START_NS + 4 * HOUR_NS)
    answer = await worked.stub.SumUsage(request)
    assert [hours(row) for row in answer.rows] == [(2, 16.0)]  # at 2 h and at 3 h
    only = await usage(worked.stub, filter="name = j4")
    assert [hours(row) for row in only.rows] == [(1, 8.0)]
    assert not (await usage(worked.stub, TENANT, filter="name = nobody")).rows
    request.end_time.FromNanoseconds(START_NS)
    for wrong in (request, service_pb2.SumUsageRequest(group_by=[9])):
        error = await refused(worked.stub.SumUsage(wrong))
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_callers_see_the_usage_of_jobs_that_they_see(tmp_path: Path) -> None:
    who = ("ada", "submitter", "ads"), ("bob", "submitter", "bots"), ("root", "operator", "")
    async with callers(tmp_path, *who, tenants=TENANTS) as (_, hers, his, operators):
        for stub, names in ((hers, ("a", "b", "c")), (his, ("d",))):
            for name in names:
                await stub.CreateJob(create(name, hosts=1))
                await stub.CancelJob(service_pb2.CancelJobRequest(name=name))

        async def rows(stub: Any) -> list[tuple[str, str, int]]:
            answer = await usage(stub, TENANT, USER)
            assert answer.total.jobs == sum(row.jobs for row in answer.rows)
            return [(row.tenant, row.user, row.cancelled) for row in answer.rows]

        assert await rows(hers) == [("ads", "ada", 3)]
        assert await rows(his) == [("bots", "bob", 1)]
        assert await rows(operators) == [("ads", "ada", 3), ("bots", "bob", 1)]


async def test_the_command_writes_a_table_csv_and_json(worked: Served) -> None:
    async def printed(*words: str) -> str:
        since = ("--since", "2023-11-01", "--address", worked.ready.address)
        done = await asyncio.to_thread(CliRunner().invoke, app, ["accounting", *since, *words])
        assert done.exit_code == 0, done.output
        return done.output

    table = (await printed("--by", "day")).splitlines()
    assert table[0].split()[:3] == ["DAY", "JOBS", "COMPLETED"]
    assert [line.split()[0] for line in table[1:]] == ["2023-11-14", "2023-11-15", "total"]
    assert table[-1].split()[1:7] == ["7", "4", "1", "0", "0", "72.0"]
    rows = csv.DictReader(io.StringIO(await printed("--by", "tenant,day", "-o", "csv")))
    found = [(row["tenant"], row["held_gpu_hours"]) for row in rows]
    assert found == [("default", "8.0"), ("default", "64.0")]
    (row,) = json.loads(await printed("--by", "none", "-o", "json"))["rows"]
    assert (row["jobs"], row["wait_s"], row["held_gpu_hours"]) == (7, 1800.0, 72.0)
