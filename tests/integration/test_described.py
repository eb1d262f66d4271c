"""What a client can learn of the API from the server: reflection, and which fields it must set."""

from pathlib import Path

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler.service.required import required
from scheduler.v1 import service_pb2
from tests.serving import Served, refused, serving

SERVICE = "scheduler.v1.SchedulerService"


async def described(address: str) -> dict[str, FileDescriptorProto]:
    """The file of the service and all that it imports, by name, asked one by one."""
    files: dict[str, FileDescriptorProto] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        stream = stub.ServerReflectionInfo()
        asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)]
        while asked:
            await stream.write(asked.pop())
            answer = await stream.read()
            assert answer.HasField("file_descriptor_response"), answer
            for raw in answer.file_descriptor_response.file_descriptor_proto:
                file = FileDescriptorProto.FromString(raw)
                files[file.name] = file
                asked += [
                    reflection_pb2.ServerReflectionRequest(file_by_filename=name)
                    for name in file.dependency
                    if name not in files
                ]
        await stream.done_writing()
    return files


def resolved(pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str) -> None:
    """Add a file to `pool` after those that it imports."""
    for inner in files[name].dependency:
        resolved(pool, files, inner)
    pool.Add(files[name])


async def test_reflection_has_the_service_with_everything_it_imports(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        files = await described(served.ready.address)
    pool = DescriptorPool()
    resolved(pool, files, "scheduler/v1/service.proto")
    methods = pool.FindServiceByName(SERVICE).methods
    assert len(methods) == len(service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods)
    assert pool.FindExtensionByName("google.api.http").number == 72295728
    assert pool.FindExtensionByName("google.api.field_behavior").number == 1052


async def test_a_call_without_its_required_fields_names_all_of_them(served: Served) -> None:
    checked = 0
    for method in service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods:
        if wanted := required(method.input_type):
            empty = getattr(service_pb2, method.input_type.name)()
            asked = iter([empty]) if method.client_streaming else empty
            call = getattr(served.stub, method.name)(asked)
            error = await refused(call.read() if method.server_streaming else call)
            assert error.code is grpc.StatusCode.INVALID_ARGUMENT, method.name
            assert error.fields == tuple(sorted(wanted)), method.name
            checked += 1
    assert checked > 10


async def test_metadata_that_is_not_understood_is_refused(served: Served) -> None:
    said = (("muster-read", "newest"), ("muster-read", ""), ("muster-min-version", "soon"))
    for key, value in said:
        call = served.stub.GetStatus(service_pb2.GetStatusRequest(), metadata=((key, value),))
        error = await refused(call)
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (key,))
