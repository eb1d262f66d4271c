"""The bare limit: a gRPC server that answers a submit with a job made beforehand.

    python -m bench.echo

Prints its address. Same library, same message sizes, nothing checked,
nothing written.
"""

from __future__ import annotations

import asyncio
import sys

import grpc

from bench.clients import HOSTS
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.specs import spec_to_proto
from tests.build import spec


def _answer() -> job_pb2.Job:
    return job_pb2.Job(
        name="load-00000000", uid="u" * 36, spec=spec_to_proto(spec("x", HOSTS, gpus=8))
    )


async def serve() -> None:
    answer = _answer()

    async def echo(request: service_pb2.CreateJobRequest, _: object) -> job_pb2.Job:
        return answer

    method = grpc.unary_unary_rpc_method_handler(
        echo,
        request_deserializer=service_pb2.CreateJobRequest.FromString,
        response_serializer=job_pb2.Job.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Echo", {"Echo": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
