"""Many clients of one server in a process of their own, each asking as fast as it is answered.

    python -m tests.bench.clients ADDRESS submit|vary|churn|echo --clients 64 --seconds 10 --first 0

Prints JSON: when it began and ended, calls answered, the latencies of all in microseconds.
Churn cancels each job that it submitted. Jobs differ in their names alone, those of vary in
their time limits as well. Messages are bytes already, or are left as bytes, so that the clients
take as little of the machine as they can; what they ask is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

import grpc

from scheduler.specproto import spec_to_proto
from scheduler.v1 import service_pb2
from tests.build import spec

SERVICE = "/scheduler.v1.SchedulerService"
METHODS = {
    "submit": [f"{SERVICE}/CreateJob"],
    "vary": [f"{SERVICE}/CreateJob"],
    "churn": [f"{SERVICE}/CreateJob", f"{SERVICE}/CancelJob"],
    "echo": ["/bench.Echo/Echo"],
}
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each client
HOSTS = 4


def requests(first: int, *, varied: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Submits of jobs that nobody has submitted yet, and what cancels each."""
    message = service_pb2.CreateJobRequest(spec=spec_to_proto(spec("x", HOSTS, gpus=8)))
    for number in count(first):
        message.spec.name = message.request_id = f"load-{number:08d}"
        if varied:
            message.spec.time_limit_s = 3_600 + number
        cancel = service_pb2.CancelJobRequest(name=message.spec.name)
        yield message.SerializeToString(), cancel.SerializeToString()


async def client(
    address: str, method: str, bodies: Iterator[tuple[bytes, bytes]], is_over: Callable[[], bool]
) -> list[int]:
    """Latencies in microseconds."""
    took = []
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        calls = [channel.unary_unary(path) for path in METHODS[method]]
        await channel.channel_ready()
        while not is_over():
            for call, body in zip(calls, next(bodies), strict=False):
                begun_ns = time.perf_counter_ns()
                await call(body)
                took.append((time.perf_counter_ns() - begun_ns) // 1_000)
    return took


async def load(
    address: str, method: str, clients: int, seconds: float, first: int
) -> dict[str, object]:
    bodies, begun = requests(first, varied=method == "vary"), time.monotonic()
    ends = begun + seconds

    def is_over() -> bool:
        return time.monotonic() >= ends

    found = await asyncio.gather(
        *(client(address, method, bodies, is_over) for _ in range(clients))
    )
    took = [us for each in found for us in each]
    return {"seconds": time.monotonic() - begun, "calls": len(took), "took_us": took}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    answer = asyncio.run(load(args.address, args.method, args.clients, args.seconds, args.first))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
