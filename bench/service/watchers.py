"""Many watches of one server in a process of their own.

    python -m bench.service.watchers ADDRESS --streams 200
                                   [--after VERSION --until VERSION --longest SECONDS]

Says "ready" once all have begun, and with --until "reached" once all have had a change of that
version or a later one, or so much time has passed; ends at the end of its input, and prints JSON:
changes received in all, how many streams came to that version, and whether each stream had every
version once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import grpc

from scheduler.v1 import service_pb2, service_pb2_grpc

OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@dataclass
class Watch:
    """The versions received on one watch stream."""

    versions: list[int] = field(default_factory=list)

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(
        self,
        stub: service_pb2_grpc.SchedulerServiceAsyncStub,
        request: service_pb2.WatchJobsRequest,
        until: int,
    ) -> None:
        stream = stub.WatchJobs(request)
        await stream.initial_metadata()
        self.begun.set()
        async for message in stream:
            self.versions += [change.version for change in message.changes or (message,)]
            if self.versions[-1] >= until:
                self.reached.set()


async def watch(
    address: str,
    streams: int,
    after: int | None = None,
    until: int | None = None,
    longest_s: float | None = None,
) -> dict[str, object]:
    watches = [Watch() for _ in range(streams)]
    request = service_pb2.WatchJobsRequest(after_version=after, in_batches=True)
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        tasks = [asyncio.create_task(w.read(stub, request, until or 0)) for w in watches]
        await _wait_all_set(tasks, [w.begun for w in watches])
        print("ready", flush=True)
        if until is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(longest_s):
                    await _wait_all_set(tasks, [w.reached for w in watches])
            print("reached", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        if until is None:
            await _wait_quiet(watches)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    seen = [w.versions for w in watches]
    same = all(versions == seen[0] for versions in seen)
    ordered = all(a < b for versions in seen for a, b in pairwise(versions))
    reached = sum(w.reached.is_set() for w in watches)
    return {
        "changes": sum(map(len, seen)),
        "same": same,
        "ordered": ordered,
        "reached": reached,
    }


async def _wait_all_set(tasks: list[asyncio.Task[None]], events: list[asyncio.Event]) -> None:
    """Wait until all events are set. Raises: the error of a stream that ends before."""
    every = asyncio.ensure_future(asyncio.gather(*(event.wait() for event in events)))
    try:
        pending: set[asyncio.Future[Any]] = {every, *tasks}
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:  # out of time
        every.cancel()
        await asyncio.gather(every, return_exceptions=True)
        raise
    for task in tasks:
        if task.done():
            await task
    await every


async def _wait_quiet(watches: list[Watch]) -> None:
    """Wait until no change has come for half a second."""
    before = -1
    while (now := sum(len(w.versions) for w in watches)) != before:
        before = now
        await asyncio.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--after", type=int)
    parser.add_argument("--until", type=int)
    parser.add_argument("--longest", type=float)
    args = parser.parse_args()
    watching = watch(args.address, args.streams, args.after, args.until, args.longest)
    print(json.dumps(asyncio.run(watching)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
