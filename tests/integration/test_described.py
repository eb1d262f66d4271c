"""What a client can learn of the API from the server: reflection, and which fields are at fault."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from scheduler.eventlog.store import StoreError
from scheduler.service.required import required
from scheduler.v1 import job_pb2, service_pb2
from tests.serving import QUEUED, Served, create, refused, serving

Code = grpc.StatusCode
METHODS = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods
NO_STATE = job_pb2.JobState.ValueType(0)


async def test_reflection_has_the_service_with_everything_it_imports(tmp_path: Path) -> None:
    def look(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
            service = pool.FindServiceByName("scheduler.v1.SchedulerService")
            assert len(service.methods) == len(METHODS)
            assert pool.FindExtensionByName("google.api.http").number == 72295728
            assert pool.FindExtensionByName("google.api.field_behavior").number == 1052

    async with serving(tmp_path) as served:
        await asyncio.to_thread(look, served.ready.address)


async def test_a_call_without_its_required_fields_names_all_of_them(served: Served) -> None:
    checked = 0
    for method in METHODS:
        if wanted := required(method.input_type):
            empty = getattr(service_pb2, method.input_type.name)()
            asked = iter([empty]) if method.client_streaming else empty
            call = getattr(served.stub, method.name)(asked)
            error = await refused(call.read() if method.server_streaming else call)
            assert error.code is Code.INVALID_ARGUMENT, method.name
            assert error.fields == tuple(sorted(wanted)), method.name
            checked += 1
    assert checked > 10


async def test_metadata_that_is_not_understood_is_refused(served: Served) -> None:
    said = (("muster-read", "newest"), ("muster-read", ""), ("muster-min-version", "soon"))
    for key, value in said:
        call = served.stub.GetStatus(service_pb2.GetStatusRequest(), metadata=((key, value),))
        error = await refused(call)
        assert (error.code, error.fields) == (Code.INVALID_ARGUMENT, (key,))


async def test_all_faults_of_a_specification_are_named_at_once(served: Served) -> None:
    request = create("a", 2)
    request.spec.parallelism.dp = 0
    request.spec.spares = "many"
    request.spec.collectives["tp"] = 99
    error = await refused(served.stub.CreateJob(request))
    assert (error.code, error.reason, error.domain) == (Code.INVALID_ARGUMENT, "INVALID", "muster")
    assert set(error.fields) == {"spec.parallelism.dp", "spec.spares", "spec.collectives.tp"}


async def test_bad_arguments_name_their_field(served: Served) -> None:
    stub = served.stub
    host_and_a_half = create("a")
    host_and_a_half.spec.parallelism.tp, host_and_a_half.spec.parallelism.dp = 4, 3
    calls: list[tuple[str, Any]] = [
        ("spec.name", stub.CreateJob(create("no spaces"))),
        ("spec.parallelism", stub.CreateJob(host_and_a_half)),
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

    with suppress(StoreError):  # as the server ends
        async with serving(tmp_path) as served:
            monkeypatch.setattr("scheduler.eventlog.store.sqlite.SqliteStore.append", full)
            error = await refused(served.stub.CreateJob(create("a")))
            assert error.code is Code.UNAVAILABLE
            with pytest.raises(StoreError, match="disk full"):
                await served.task
