"""Many watches of one server in a process of their own.

    python -m tests.bench.watchers ADDRESS --streams 200

Says "ready" once all have begun; ends at the end of its input, and prints JSON: changes
received in all, and whether each stream had every version once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass, field

import grpc

from scheduler.v1 import service_pb2, service_pb2_grpc

OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass
class Watch:
    """What one stream got."""

    versions: list[int] = field(default_factory=list)

    async def read(
        self, stub: service_pb2_grpc.SchedulerServiceAsyncStub, begun: asyncio.Event
    ) -> None:
        stream = stub.WatchJobs(service_pb2.WatchJobsRequest())
        await stream.initial_metadata()
        begun.set()
        async for change in stream:
            self.versions.append(change.version)


async def watch(address: str, streams: int) -> dict[str, object]:
    watches = [Watch() for _ in range(streams)]
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        begun = [asyncio.Event() for _ in watches]
        tasks = [asyncio.create_task(w.read(stub, b)) for w, b in zip(watches, begun, strict=True)]
        await asyncio.gather(*(event.wait() for event in begun))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await _quiet(watches)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    seen = [w.versions for w in watches]
    same = all(versions == seen[0] for versions in seen)
    ordered = all(a < b for a, b in zip(seen[0], seen[0][1:], strict=False))
    return {"changes": sum(map(len, seen)), "same": same, "ordered": ordered}


async def _quiet(watches: list[Watch]) -> None:
    """Until nothing has come for half a second."""
    before = -1
    while (now := sum(len(w.versions) for w in watches)) != before:
        before = now
        await asyncio.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--streams", type=int, default=200)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(watch(args.address, args.streams))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
