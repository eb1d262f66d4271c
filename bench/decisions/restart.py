"""make bench-restart: how long it takes to say how a stopped gang goes on.

    python -m bench.decisions.restart [--json FILE] [--no-server]

roce-24k with Llama 3 405B on 16,384 GPUs, spares in each of its zones, and 200 other jobs. One
host of it fails, 200 times another one; then a rack, 16 hosts at once, and the uplink of a zone
with all its hosts. In process a decision and its commit are timed, with the processor's clock,
for the machine may be shared; with a server the wall clock from the report until the swap is
durable, as a watcher sees it: 200 failures that each find the spares of the first, and 40 that use
them up, after which every restart looks for room for more. Beside them stands what placing the
gang anew on the same hosts takes. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import grpc

from bench.service.submits import serving
from placement.fabric.reader import preset
from placement.placer import place
from placement.workload.request import Placement
from scheduler.core import JobSpec, JobState, SchedulingOptions, State, commit, decide, replay
from scheduler.core.model.commands import LoadTenants, SubmitJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Swap
from scheduler.core.model.restart_option import taken
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN, Preemption
from scheduler.v1 import service_pb2 as pb
from scheduler.v1 import service_pb2_grpc
from scheduler.wire.specs import spec_to_proto
from tests.build import admitted, fail, llama3, loaded, run, submit

OTHERS, FAILURES, REPORTS, SPENDING = 200, 200, 200, 40
ONE_MS, RPC_MS, MANY_MS = 5.0, 25.0, 500.0
# What is done is saved at once, for here hosts fail far too often for anything else.
SAVING = Preemption(costs=Costs(checkpoint_s=0, restart_s=0))
IN_ZONE = replace(OPEN, spares=SparePolicy(in_zone=True), preemption=SAVING)
TENANTS = "spares: {in_zone: true}\npreemption: {checkpoint_s: 0, restart_s: 0}\n"
AGAIN = "restarts: {avoid_s: 0}\n"  # a host that is repaired is a spare again at once
HOUR_NS = 3_600 * SECOND_NS


@dataclass(frozen=True)
class RestartRow:
    """One measured restart, in milliseconds. `moved`: blocks that moved, at most; `option`: the way
    that was taken, or how often each."""

    question: str
    target_ms: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    moved: int
    options: str

    @property
    def is_met(self) -> bool:
        return self.p99_ms <= self.target_ms


def big() -> JobSpec:
    return JobSpec("big", llama3(), priority=100)


def small_jobs(seed: int = 1) -> list[SubmitJob]:
    rng = random.Random(seed)
    sizes = [rng.choice((1, 1, 2, 2, 4, 4, 8)) for _ in range(OTHERS)]
    return [submit(f"j{i:03d}", hosts) for i, hosts in enumerate(sizes)]


def cluster() -> State:
    """Return the state in which the gang and the small jobs run."""
    state = run(loaded(preset("roce-24k")), LoadTenants(IN_ZONE))
    state = run(state, SubmitJob(big(), "uid-big"))
    state = settled(run(settled(state, 0), *small_jobs()), 0)
    assert len(state.index.running) == OTHERS + 1, len(state.index.running)
    return state


def settled(state: State, now_ns: int) -> State:
    while (plan := decide(state, now_ns, SchedulingOptions())).actions:
        events = commit(state, plan, now_ns)
        assert isinstance(events, tuple)
        state = replay(events, state)
    return state


def restart_once(state: State, hosts: Sequence[str], now_ns: int) -> tuple[State, float, int, str]:
    """Fail hosts together and plan the restart.

    Returns the state after, milliseconds, moved blocks, and the option taken.
    """
    for host in hosts:
        state = replay(admitted(state, fail(host), now_ns), state)
    begin = time.process_time()
    plan = decide(state, now_ns, SchedulingOptions())
    events = commit(state, plan, now_ns)
    took_ms = (time.process_time() - begin) * 1e3
    assert isinstance(events, tuple)
    after = replay(events, state)
    moved = [a for a in plan.actions if isinstance(a, Swap) and a.name == "big"]
    job = after.jobs["big"]
    step = taken(job.restart_options)
    option = step.option.value if step else "none"
    is_swapped = bool(moved) and job.state is JobState.RUNNING
    return after, took_ms, len(moved[0].moves) if is_swapped else 0, option


def one_by_one(state: State) -> RestartRow:
    """Let a host of the gang fail every two hours, from the same cluster each time."""
    rng, spent, moved, options = random.Random(7), [], 0, dict[str, int]()
    hosts = [state.loaded_fabric.hosts[h] for h in state.jobs["big"].hosts]
    for _ in range(FAILURES):
        _, took_ms, blocks, option = restart_once(state, [rng.choice(hosts)], 2 * HOUR_NS)
        spent.append(took_ms)
        moved, options[option] = max(moved, blocks), options.get(option, 0) + 1
    return row("one host fails", ONE_MS, spent, moved, options)


def row(
    question: str, target_ms: float, spent: list[float], moved: int, options: dict[str, int]
) -> RestartRow:
    ordered = sorted(spent)
    ways = ", ".join(f"{option} {count}" for option, count in sorted(options.items()))
    p50, p99, worst = (ordered[min(len(spent) - 1, len(spent) * p // 100)] for p in (50, 99, 100))
    return RestartRow(question, target_ms, p50, p99, worst, moved, ways)


def at_once(question: str, state: State, hosts: Sequence[str], repeats: int = 5) -> RestartRow:
    spent, moved, options = [], 0, dict[str, int]()
    for _ in range(repeats):
        _, took_ms, moved, option = restart_once(state, hosts, 2 * HOUR_NS)
        spent.append(took_ms)
        options[option] = options.get(option, 0) + 1
    return row(question, MANY_MS, spent, moved, options)


def replacement_ms(state: State) -> float:
    """Place the whole gang anew without its first host; return the milliseconds."""
    job = state.jobs["big"]
    room = (state.free | job.allocation) & ~(1 << job.hosts[0])
    begin = time.process_time()
    answer = place(state.loaded_fabric, room, job.request, SchedulingOptions().place)
    assert isinstance(answer, Placement)
    return (time.process_time() - begin) * 1e3


def in_process() -> tuple[list[RestartRow], float]:
    state = cluster()
    fabric, job = state.loaded_fabric, state.jobs["big"]
    names = [fabric.hosts[h] for h in job.hosts]
    zone = fabric.tiers[0].domain_by_host
    last = int(zone[job.hosts[-1]])
    in_zone = [n for h, n in zip(job.hosts, names, strict=True) if int(zone[h]) == last]
    rack_of = fabric.tiers[-1].domain_by_host
    rack = [n for h, n in zip(job.hosts, names, strict=True) if rack_of[h] == rack_of[job.hosts[0]]]
    everybody = [fabric.hosts[h] for h in range(fabric.host_count) if int(zone[h]) == last]
    return [
        one_by_one(state),
        at_once("a rack fails", state, rack),
        at_once("16 hosts fail", state, names[:16]),
        at_once("16 hosts fail, anywhere", state, random.Random(3).sample(names, 16)),
        at_once(f"a zone's uplink fails, {len(in_zone)} of its hosts", state, everybody),
    ], replacement_ms(state)


@asynccontextmanager
async def calling(
    folder: Path, tenants: str
) -> AsyncIterator[service_pb2_grpc.SchedulerServiceAsyncStub]:
    """Start a `muster serve` in a process of its own, as its operators run it."""
    file = folder / "tenants.yaml"
    file.write_text(tenants)
    with serving(folder, "--tenants", str(file)) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            yield service_pb2_grpc.SchedulerServiceStub(channel)


async def with_server(folder: Path, question: str, tenants: str, reports: int) -> RestartRow:
    """Measure the time from a failure's report to the durable swap, as a watch on the job sees
    it."""
    async with calling(folder, tenants) as stub:
        for spec in (big(), *(command.spec for command in small_jobs())):
            await stub.CreateJob(pb.CreateJobRequest(spec=spec_to_proto(spec)))
        while (await stub.ListJobs(pb.ListJobsRequest(filter="state=QUEUED"))).jobs:
            await asyncio.sleep(0.2)
        rng, spent = random.Random(5), []
        for _ in range(reports):
            job = await stub.GetJob(pb.GetJobRequest(name="big"))
            host = rng.choice(list(job.placement.hosts))
            spent.append(await _reported_ms(stub, host))
            await stub.ReportHost(pb.ReportHostRequest(name=host, signal="repaired"))
            await asyncio.sleep(0.2)
        return row(question, RPC_MS, spent, 1, {})


def by_a_server() -> list[RestartRow]:
    """Measure failures that each find the spares of the first, and failures that use these up,
    until every restart has to look for room."""
    questions = (
        ("one host fails, from call to durable swap", TENANTS + AGAIN, REPORTS),
        ("the same, as spares are used up", TENANTS, SPENDING),
    )
    rows = []
    for question in questions:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(asyncio.run(with_server(Path(folder), *question)))
    return rows


async def _reported_ms(stub: service_pb2_grpc.SchedulerServiceAsyncStub, host: str) -> float:
    """Until a watch has heard of the swap."""
    watch = stub.WatchJobs(pb.WatchJobsRequest(name="big"))
    await watch.initial_metadata()
    begin = time.perf_counter()
    await stub.ReportHost(pb.ReportHostRequest(name=host, signal="gpu-lost"))
    async for change in watch:
        if change.change == pb.JOB_CHANGE_SWAPPED:
            break
    took_ms = (time.perf_counter() - begin) * 1e3
    watch.cancel()
    return took_ms


def table(rows: Sequence[RestartRow], again_ms: float) -> str:
    head = f"{'question':48}{'p50':>10}{'p99':>10}{'worst':>10}{'target':>10}{'moved':>7}  ways"
    lines = [head]
    for found in rows:
        lines.append(
            f"{found.question:48}{found.p50_ms:7.1f} ms{found.p99_ms:7.1f} ms"
            f"{found.worst_ms:7.1f} ms{found.target_ms:7.0f} ms{found.moved:7,}  {found.options}"
            f"{'' if found.is_met else '  MISSED'}"
        )
    lines.append(f"{'placing the whole gang anew instead':48}{again_ms:7.1f} ms")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decisions.restart")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--no-server", action="store_true", help="in process alone")
    options = parser.parse_args(arguments)
    rows, again_ms = in_process()
    if not options.no_server:
        rows += by_a_server()
    print(f"16,384 GPUs of {preset('roce-24k').name}, {OTHERS} other jobs")
    print(table(rows, again_ms))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in rows], indent=2))
    return 0 if all(found.is_met for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
