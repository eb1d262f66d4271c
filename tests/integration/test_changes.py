"""Changes over the wire: updates with a mask, etags, request ids and dry runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scheduler.wire.durations import duration
from tests.serving import (
    CANCELLED,
    COMPLETED,
    QUEUED,
    RUNNING,
    Served,
    create,
    logged,
    refused,
    serving,
)

Code = grpc.StatusCode


def update(name: str, *paths: str, **request: Any) -> service_pb2.UpdateJobRequest:
    spec = job_pb2.JobSpec(priority=7, labels={"team": "nlp"})
    job = job_pb2.Job(name=name, spec=spec, etag=request.pop("etag", ""))
    mask = FieldMask(paths=paths) if paths else None
    return service_pb2.UpdateJobRequest(job=job, update_mask=mask, **request)


async def waiting(served: Served) -> job_pb2.Job:
    await served.stub.CreateJob(create("big", 8))
    await served.until("big", RUNNING)
    return await served.stub.CreateJob(create("a"))


async def test_an_update_changes_what_its_mask_names(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        before = await waiting(served)
        after = await served.stub.UpdateJob(update("a", "spec.labels"))
        both = await served.stub.UpdateJob(update("a"))
        cleared = await served.stub.UpdateJob(
            service_pb2.UpdateJobRequest(
                job=job_pb2.Job(name="a"), update_mask=FieldMask(paths=["*"])
            )
        )
    assert (after.priority, dict(after.spec.labels)) == (0, {"team": "nlp"})
    assert after.update_time.ToNanoseconds() > before.update_time.ToNanoseconds()
    assert (both.priority, both.reason != "") == (7, True)
    assert (cleared.priority, dict(cleared.spec.labels)) == (0, {})
    assert len({job.etag for job in (before, after, both, cleared)}) == 4


async def test_a_mask_names_single_labels(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        request = create("a")
        request.spec.labels.update({"team": "nlp", "a/b.c": "1", "keep": "me"})
        await served.stub.CreateJob(request)
        job = job_pb2.Job(name="a", spec=job_pb2.JobSpec(labels={"team": "vision", "x": "no"}))
        mask = FieldMask(paths=["spec.labels.team", "spec.labels.`a/b.c`", "spec.labels.gone"])
        change = service_pb2.UpdateJobRequest(job=job, update_mask=mask)
        after = await served.stub.UpdateJob(change)
        bad = await refused(served.stub.UpdateJob(update("a", "spec.labels.`x")))
    assert dict(after.spec.labels) == {"team": "vision", "keep": "me"}
    assert bad.fields == ("update_mask.paths[0]",)
    assert "spec.labels.KEY" in bad.message


async def test_bad_updates_name_their_field(tmp_path: Path) -> None:
    def with_spec(*paths: str, **spec: Any) -> service_pb2.UpdateJobRequest:
        request = update("a", *paths)
        request.job.spec.MergeFrom(job_pb2.JobSpec(**spec))
        return request

    requests = {
        "update_mask.paths[1]": update("a", "spec.labels", "spec.name"),
        "update_mask": service_pb2.UpdateJobRequest(job=job_pb2.Job(name="a")),
        "job.spec.tenant": with_spec(tenant="x"),
        "job.spec.labels": with_spec("spec.labels", labels={"no spaces": ""}),
        "job.spec.labels.long": with_spec("spec.labels", labels={"long": "x" * 300}),
        "job.spec.time_limit": with_spec("spec.time_limit", time_limit=duration(0)),
        "job.spec.priority": with_spec("spec.priority", priority=-(2**31)),
        "job.spec.priority_class": with_spec("spec.priority_class", priority_class="gold"),
    }
    async with serving(tmp_path) as served:
        await waiting(served)
        for field, request in requests.items():
            error = await refused(served.stub.UpdateJob(request))
            assert (error.code, error.fields) == (Code.INVALID_ARGUMENT, (field,))
        nobody = await refused(served.stub.UpdateJob(update("x", "spec.labels")))
        runs = await refused(served.stub.UpdateJob(update("big")))
    assert (nobody.code, runs.code) == (Code.NOT_FOUND, Code.FAILED_PRECONDITION)


async def test_a_change_with_an_old_etag_is_aborted_and_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        old = (await waiting(served)).etag
        new = (await served.stub.UpdateJob(update("a", etag=old))).etag
        requests = (
            served.stub.UpdateJob(update("a", "spec.priority", etag="stale")),
            served.stub.CancelJob(service_pb2.CancelJobRequest(name="a", etag=old)),
            served.stub.EndJob(service_pb2.EndJobRequest(name="big", outcome=COMPLETED, etag=old)),
            served.stub.DrainHost(service_pb2.DrainHostRequest(name="z0-r0-h0", etag=old)),
        )
        for call in requests:  # the first one asks for the priority that the job has
            error = await refused(call)
            assert (error.code, error.reason) == (Code.ABORTED, "ETAG_MISMATCH")
        gone = await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a", etag=new))
        listed = (await served.stub.ListHosts(service_pb2.ListHostsRequest())).hosts[0]
        request = service_pb2.CordonHostRequest(name=listed.name, etag=listed.etag)
        host = await served.stub.CordonHost(request)
    assert gone.state == CANCELLED
    assert host.state == host_pb2.HOST_STATE_CORDONED
    assert (host.uid, host.etag != listed.etag) == (listed.uid, True)


async def test_a_retry_is_one_event_and_another_request_with_its_id_is_refused(
    tmp_path: Path,
) -> None:
    report = service_pb2.ReportHostRequest(name="z0-r0-h0", signal="link-flap", request_id="one")
    async with serving(tmp_path) as served:
        for _ in range(3):
            await served.stub.ReportHost(report)
    async with serving(tmp_path) as served:  # a restart remembers
        await served.stub.ReportHost(report)
        cordon = service_pb2.CordonHostRequest(name="z0-r0-h0", request_id="one")
        error = await refused(served.stub.CordonHost(cordon))
    assert (error.code, error.fields) == (Code.INVALID_ARGUMENT, ("request_id",))
    assert len(logged(tmp_path)) == 2


async def test_validate_only_answers_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stub, before = served.stub, await waiting(served)
        checked = [
            (await stub.UpdateJob(update("a", validate_only=True))).priority,
            (
                await stub.CancelJob(service_pb2.CancelJobRequest(name="a", validate_only=True))
            ).state,
            (
                await stub.EndJob(
                    service_pb2.EndJobRequest(name="big", outcome=COMPLETED, validate_only=True)
                )
            ).state,
            (
                await stub.DrainHost(
                    service_pb2.DrainHostRequest(name="z0-r0-h0", validate_only=True)
                )
            ).state,
            (
                await stub.ReportHost(
                    service_pb2.ReportHostRequest(
                        name="z0-r0-h0", signal="nic-down", validate_only=True
                    )
                )
            ).host.state,
        ]
        bad = await refused(
            stub.CancelJob(service_pb2.CancelJobRequest(name="x", validate_only=True))
        )
        after = await served.get("a")
        assert (await served.get("big")).state == RUNNING
    assert checked == [
        *(7, CANCELLED, COMPLETED),
        *(host_pb2.HOST_STATE_DRAINING, host_pb2.HOST_STATE_FAILED),
    ]
    assert (after.version, after.etag, after.state) == (before.version, before.etag, QUEUED)
    assert bad.code is Code.NOT_FOUND


async def test_lists_take_filters_and_orders(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for name, team in (("x", "nlp"), ("y", "vision"), ("z", "nlp")):
            request = create(name)
            request.spec.labels["team"] = team
            await served.stub.CreateJob(request)
        ask = service_pb2.ListJobsRequest(filter="labels.team = nlp", order_by="name desc")
        jobs = await served.stub.ListJobs(ask)
        errors = [
            await refused(served.stub.ListJobs(service_pb2.ListJobsRequest(**bad)))
            for bad in ({"filter": "size = 1"}, {"order_by": "size"})
        ]
        hosts = await served.stub.ListHosts(service_pb2.ListHostsRequest(filter="domains:z1-r1"))
    assert [job.spec.name for job in jobs.jobs] == ["z", "x"]
    assert [error.fields for error in errors] == [("filter",), ("order_by",)]
    assert [host.name for host in hosts.hosts] == ["z1-r1-h0", "z1-r1-h1"]


@pytest.mark.parametrize(
    "labels", [{"a": ""}, {f"k{i}": "v" * 256 for i in range(64)}, {"a/b.c": "ü"}]
)
async def test_labels_come_back_as_they_were_sent(tmp_path: Path, labels: dict[str, str]) -> None:
    request = create("a")
    request.spec.labels.update(labels)
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(request)
        assert dict((await served.get("a")).spec.labels) == labels
