"""Every code that the service refuses with, and the details a program switches on."""

from pathlib import Path

import grpc
import pytest

from scheduler.eventlog.store import StoreError
from scheduler.v1 import job_pb2, service_pb2
from tests.serving import COMPLETED, QUEUED, RUNNING, Served, create, refused, serving

Code = grpc.StatusCode
NO_STATE = job_pb2.JobState.ValueType(0)


async def test_all_faults_of_a_specification_are_named_at_once(served: Served) -> None:
    request = create("a", 2)
    request.spec.parallelism.dp = 0
    request.spec.spares = "many"
    request.spec.collectives["tp"] = 99
    error = await refused(served.stub.CreateJob(request))
    assert (error.code, error.reason, error.domain) == (Code.INVALID_ARGUMENT, "INVALID", "muster")
    assert set(error.fields) == {"spec.parallelism.dp", "spec.spares", "spec.collectives.tp"}


async def test_what_admit_refuses_names_the_field_of_the_request(served: Served) -> None:
    bad_name = await refused(served.stub.CreateJob(create("no spaces")))
    half_host = create("a")
    half_host.spec.parallelism.tp = 4
    half_host.spec.parallelism.dp = 3  # a host and a half
    ranks = await refused(served.stub.CreateJob(half_host))
    await served.stub.CreateJob(create("a", request_id="r"))
    reused = await refused(served.stub.CreateJob(create("b", request_id="r")))
    taken = create("a")
    taken.validate_only = True
    assert (await refused(served.stub.CreateJob(taken))).code is Code.ALREADY_EXISTS
    assert (bad_name.code, bad_name.fields) == (Code.INVALID_ARGUMENT, ("spec.name",))
    assert (ranks.code, ranks.fields) == (Code.INVALID_ARGUMENT, ("spec.parallelism",))
    assert (reused.code, reused.fields) == (Code.INVALID_ARGUMENT, ("request_id",))


async def test_the_wrong_moment_is_a_failed_precondition(served: Served) -> None:
    stub = served.stub
    await stub.CreateJob(create("a"))
    await served.until("a", RUNNING)
    late = service_pb2.EndJobRequest(name="a", outcome=COMPLETED, attempt=2)
    assert (await refused(stub.EndJob(late))).reason == "WRONG_STATE"
    await stub.EndJob(service_pb2.EndJobRequest(name="a", outcome=COMPLETED))
    over = await refused(stub.CancelJob(service_pb2.CancelJobRequest(name="a")))
    await stub.ReportHost(service_pb2.ReportHostRequest(name="z0-r0-h0", signal="host-down"))
    down = await refused(stub.UncordonHost(service_pb2.UncordonHostRequest(name="z0-r0-h0")))
    assert (over.code, over.reason) == (Code.FAILED_PRECONDITION, "WRONG_STATE")
    assert (down.code, down.reason) == (Code.FAILED_PRECONDITION, "WRONG_STATE")
    assert "repaired" in down.message


async def test_bad_arguments_name_their_field(served: Served) -> None:
    stub = served.stub
    calls = [
        ("page_size", stub.ListJobs(service_pb2.ListJobsRequest(page_size=-1))),
        ("page_token", stub.ListJobs(service_pb2.ListJobsRequest(page_token="junk"))),
        ("states[0]", stub.ListJobs(service_pb2.ListJobsRequest(states=[NO_STATE]))),
        ("page_token", stub.ListHosts(service_pb2.ListHostsRequest(page_token="am9iczox"))),
        ("outcome", stub.EndJob(service_pb2.EndJobRequest(name="a", outcome=QUEUED))),
        ("signal", stub.ReportHost(service_pb2.ReportHostRequest(name="z0-r0-h0", signal="smoke"))),
        ("sizes", stub.ListSlots(service_pb2.ListSlotsRequest(sizes=[8, 12]))),
        ("gangs", stub.GetStatus(service_pb2.GetStatusRequest(gangs=-1))),
        ("incidents", stub.GetStatus(service_pb2.GetStatusRequest(incidents=-1))),
        ("after_version", stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=2)).read()),
    ]
    for name in ("a/b/c", "/a", "a/", "tenants/a/b"):
        calls.append(("name", stub.GetJob(service_pb2.GetJobRequest(name=name))))
    for field, call in calls:
        error = await refused(call)
        assert (error.code, error.fields) == (Code.INVALID_ARGUMENT, (field,))


async def test_a_disk_that_refuses_ends_the_server_and_loses_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise StoreError("disk full")

    with pytest.raises(StoreError, match="disk full"):
        await _submit_to(tmp_path, monkeypatch, full)


async def _submit_to(folder: Path, monkeypatch: pytest.MonkeyPatch, append: object) -> None:
    async with serving(folder) as served:
        monkeypatch.setattr("scheduler.eventlog.store.sqlite.SqliteStore.append", append)
        error = await refused(served.stub.CreateJob(create("a")))
        assert error.code is Code.UNAVAILABLE
        await served.task
