"""make bench-watch: what calls cost while many watches resume, and while many ask what would be.

    python -m bench.service.watch [--only resume|dry-runs|restart] [--streams 200]
                                      [--back 10000] [--seconds 20] [--longest 60]
                                      [--json FILE]

A real `muster serve` on roce-24k with a SQLite store, on which a gang of 16,384 GPUs runs and
thousands of jobs came and went. One client submits jobs one after the other, a second one reports
failures of the gang's hosts and waits until a watch has the swap: first alone, then while 200
watches resume 10,000 versions back, then the same after a restart, when memory holds no changes
and all must come out of the log, then while eight callers ask for dry runs of the gang. Two million
changes keep the one process of watches busy for minutes, so a part ends after --longest seconds
with watches behind, and says how many. Latencies of a shared machine mean little by themselves;
the ratio to the same calls alone, just before, does.
The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path

import grpc

from bench.decisions.restart import AGAIN, TENANTS, big
from bench.service.clients import HOSTS
from bench.service.submits import BenchServer, load, serving
from scheduler.v1 import service_pb2 as pb
from scheduler.v1 import service_pb2_grpc
from scheduler.wire.specs import spec_to_proto
from tests.build import spec

STREAMS, BACK, ASKERS = 200, 10_000, 8
EVERY_S, SWAP_EVERY_S = 0.02, 0.25  # from an answer to the next call
LONGEST_S = 60.0
ALONE, RESUME, DRY_RUNS, RESTART = "alone", "resume", "dry-runs", "restart"
PARTS = (RESUME, DRY_RUNS, RESTART)
CREATE_MS, SWAP_MS, DRY_RUN_CREATE_MS = 100.0, 50.0, 50.0


@dataclass(frozen=True)
class Latencies:
    """How long some calls took."""

    calls: int
    p50_ms: float
    p99_ms: float
    worst_ms: float

    @classmethod
    def of(cls, took_ms: list[float]) -> Latencies:
        took = sorted(took_ms)
        rank = [took[min(len(took) - 1, len(took) * share // 100)] for share in (50, 99, 100)]
        return cls(len(took), *rank)

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:6.1f} ms  p99 {self.p99_ms:6.1f} ms"
            f"  worst {self.worst_ms:6.1f} ms  of {self.calls:4}"
        )


@dataclass(frozen=True)
class LoadPhase:
    """Latencies during one kind of load. `lasted_s`: seconds of the load; `outcome`: its closing
    words."""

    title: str
    creates: Latencies
    swaps: Latencies
    lasted_s: float
    outcome: str

    def say(self, alone: LoadPhase | None = None) -> None:
        for name, took, before in (
            ("CreateJob", self.creates, alone and alone.creates),
            ("swap", self.swaps, alone and alone.swaps),
        ):
            ratio = f"  {took.p99_ms / before.p99_ms:5.1f} x alone" if before else ""
            print(f"{self.title:34} {name:9} {took}{ratio}", flush=True)


class Callers:
    """Submits jobs, and reports hosts of the gang and waits for its swaps, until stopped."""

    _numbers = count()

    def __init__(self, stub: service_pb2_grpc.SchedulerServiceAsyncStub) -> None:
        self._stub = stub
        self._creates: list[float] = []
        self._swaps: list[float] = []

    async def during(self, title: str, work: Callable[[], str]) -> LoadPhase:
        """Call the server while the blocking `work` runs in a thread; return the latencies."""
        tasks = [asyncio.create_task(self._create()), asyncio.create_task(self._swap())]
        began = time.monotonic()
        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait({working, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        lasted = time.monotonic() - began
        for task in tasks:
            if task.done():
                await task  # it ends by an error alone
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        outcome = await working
        return LoadPhase(
            title, Latencies.of(self._creates), Latencies.of(self._swaps), lasted, outcome
        )

    async def _create(self) -> None:
        message = pb.CreateJobRequest(spec=spec_to_proto(spec("x", HOSTS, gpus=8)))
        while True:
            message.spec.name = f"probe-{next(self._numbers)}"
            began = time.perf_counter()
            await self._stub.CreateJob(message)
            self._creates.append((time.perf_counter() - began) * 1e3)
            await self._stub.CancelJob(pb.CancelJobRequest(name=message.spec.name))
            await asyncio.sleep(EVERY_S)

    async def _swap(self) -> None:
        """A host of the gang fails and comes back as a spare, again and again."""
        job = await gang(self._stub)
        stream = self._stub.WatchJobs(pb.WatchJobsRequest(name="big"))
        await stream.initial_metadata()
        changes = aiter(stream)
        for number in count():
            host = job.placement.hosts[number * 37 % len(job.placement.hosts)]
            began = time.perf_counter()
            await self._stub.ReportHost(pb.ReportHostRequest(name=host, signal="gpu-lost"))
            while (change := await anext(changes)).change != pb.JOB_CHANGE_SWAPPED:
                pass
            self._swaps.append((time.perf_counter() - began) * 1e3)
            job = change.job
            await self._stub.ReportHost(pb.ReportHostRequest(name=host, signal="repaired"))
            await asyncio.sleep(SWAP_EVERY_S)


async def gang(stub: service_pb2_grpc.SchedulerServiceAsyncStub):  # type: ignore[no-untyped-def]
    return await stub.GetJob(pb.GetJobRequest(name="big"))


def resumed(address: str, streams: int, after: int, until: int, longest_s: float) -> str:
    """Resume so many watches, until each has read what there was when they began or so much time
    has passed."""
    command = [sys.executable, "-m", "bench.service.watchers", address, "--streams", str(streams)]
    command += ["--after", str(after), "--until", str(until), "--longest", str(longest_s)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as watchers:  # type: ignore[call-overload]
        assert watchers.stdout.readline() == "ready\n"
        assert watchers.stdout.readline() == "reached\n"
        out, _ = watchers.communicate()
    report = json.loads(out)
    assert report["ordered"], "a stream has a change twice, or out of order"
    return f"{report['reached']} of {streams} caught up, {report['changes']:,} changes received"


def rested(seconds: float) -> str:
    time.sleep(seconds)
    return "nothing else asked"


def dry_run(address: str, callers: int, seconds: float) -> str:
    """Let so many callers make dry runs of the gang, each one after the other, for so long."""

    async def ask() -> int:
        begun, done = time.monotonic(), 0
        async with grpc.aio.insecure_channel(address) as channel:
            stub = service_pb2_grpc.SchedulerServiceStub(channel)
            message = pb.CreateJobRequest(spec=spec_to_proto(big()), validate_only=True)
            message.spec.name = "would-be"

            async def caller() -> None:
                nonlocal done
                while time.monotonic() < begun + seconds:
                    await stub.CreateJob(message)
                    done += 1

            await asyncio.gather(*(caller() for _ in range(callers)))
        return done

    return f"{asyncio.run(ask()):,} dry runs answered"


@asynccontextmanager
async def calling(server: BenchServer) -> AsyncIterator[Callers]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Callers(service_pb2_grpc.SchedulerServiceStub(channel))


async def filled(server: BenchServer, back: int) -> None:
    """Start the gang, and fill the log with so many versions."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        await stub.CreateJob(pb.CreateJobRequest(spec=spec_to_proto(big())))
        while not (await gang(stub)).placement.hosts:
            await asyncio.sleep(0.2)
        first = count(0, 1_000_000)
        while (await stub.GetStatus(pb.GetStatusRequest())).version < back:
            await asyncio.to_thread(load, server.address, "churn", 3, next(first))


async def newest(server: BenchServer) -> int:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        return (await stub.GetStatus(pb.GetStatusRequest())).version


async def measured(
    folder: Path,
    streams: int,
    back: int,
    seconds: float,
    longest_s: float,
    wanted: Collection[str],
) -> dict[str, LoadPhase]:
    """Measure latencies by name of the load: ALONE, and those that are `wanted`."""
    (folder / "tenants.yaml").write_text(TENANTS + AGAIN)
    options = ("--tenants", str(folder / "tenants.yaml"))

    async def while_resuming(server: BenchServer, title: str) -> LoadPhase:
        until = await newest(server)
        async with calling(server) as callers:
            after = max(0, until - back)
            work = partial(resumed, server.address, streams, after, until, longest_s)
            return await callers.during(title, work)

    parts: dict[str, LoadPhase] = {}

    def add(name: str, part: LoadPhase) -> None:
        part.say(parts.get(ALONE))
        parts[name] = part

    with serving(folder, *options) as server:
        began = time.monotonic()
        await filled(server, back + 500)
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        async with calling(server) as callers:
            add(ALONE, await callers.during("alone", partial(rested, seconds)))
        if RESUME in wanted:
            add(RESUME, await while_resuming(server, f"{streams} watches resume {back:,} back"))
        if DRY_RUNS in wanted:
            async with calling(server) as callers:
                title = f"{ASKERS} callers of dry runs"
                work = partial(dry_run, server.address, ASKERS, seconds)
                add(DRY_RUNS, await callers.during(title, work))
        print(f"memory {server.memory_mib():.0f} MiB")
    if RESTART in wanted:
        with serving(folder, *options) as server:
            title = f"{streams} watches resume after a restart"
            add(RESTART, await while_resuming(server, title))
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--back", type=int, default=BACK)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--longest", type=float, default=LONGEST_S, help="seconds of a part")
    parser.add_argument("--only", choices=PARTS, help="one part beside `alone`")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    wanted = [args.only] if args.only else PARTS
    with tempfile.TemporaryDirectory() as folder:
        sizes = (args.streams, args.back, args.seconds, args.longest)
        parts = asyncio.run(measured(Path(folder), *sizes, wanted))
    if args.json:
        args.json.write_text(json.dumps([asdict(part) for part in parts.values()], indent=2))
    is_all_met = True
    for name in wanted:
        part = parts[name]
        targets = [
            ("CreateJob", DRY_RUN_CREATE_MS if name == DRY_RUNS else CREATE_MS, part.creates)
        ]
        print(f"{part.title}: {part.outcome} in {part.lasted_s:.1f} s")
        if name != DRY_RUNS:
            targets.append(("swap", SWAP_MS, part.swaps))
        for call, most_ms, took in targets:
            is_met = took.p99_ms <= most_ms
            is_all_met &= is_met
            word = "met   " if is_met else "MISSED"
            print(f"{word} {part.title}: 99 of 100 {call} within {most_ms:.0f} ms")
    return 0 if is_all_met else 1


if __name__ == "__main__":
    sys.exit(main())
