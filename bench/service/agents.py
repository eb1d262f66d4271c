"""What agents cost a server: 3,072 streams with a beat each ten seconds, and a gang on 2,048 hosts.

    python -m bench.service.agents [--agents N] [--seconds S] [--submits N]

Agents are coroutines of one other process, with a connection each; the server, its gateway and its
store are what they always are. Said are the processor time of the gateway and of the server's own
process in percent of a core while agents only beat; submits to it, and in turns with them submits
to a server without agents; and how long a launch takes from the start until all hosts have started.

The exit code is 1 when beats cost more than 15 % of a core in all, or when the median submit beside
agents takes more than 1.25 times what it takes without: other programs on the machine slow both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from scheduler.access.tokens import join_token
from scheduler.client import Client
from scheduler.core import JobSpec
from scheduler.core.policies.job_terms import RunSpec
from scheduler.v1 import agent_pb2, service_pb2
from tests.build import gang, spec
from tests.e2e.processes import MUSTER
from tests.ports import free_port

MOST_CORE, MOST_RATIO = 15.0, 1.25
MOST_LAUNCH_S = 60.0
LEASE_S, BEAT_S = 30, 10.0
SECRET = "s" * 40
SESSION = "/scheduler.v1.AgentService/Session"
BEAT = agent_pb2.SessionRequest(beat=agent_pb2.Beat()).SerializeToString()
_HERTZ = os.sysconf("SC_CLK_TCK")
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


# --- the other process: agents ---------------------------------------------------------------


async def be_agents(address: str, hosts: list[str], spread_s: float) -> None:
    """Run an agent for each host until killed; print a line once all are connected."""
    there = asyncio.Semaphore(0)
    tasks = []
    for host in hosts:
        tasks.append(asyncio.create_task(be_agent(address, host, there)))
        await asyncio.sleep(spread_s / len(hosts))
    for _ in hosts:
        await there.acquire()
    print("all there", flush=True)
    await asyncio.gather(*tasks)


async def be_agent(address: str, host: str, there: asyncio.Semaphore) -> None:
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        metadata = [("authorization", f"Bearer {join_token(SECRET, host)}")]
        call: Any = channel.stream_stream(SESSION)(metadata=metadata)
        await call.write(request(hello=agent_pb2.Hello(host=host, has_cgroup=True)))
        await call.read()
        there.release()
        words: asyncio.Queue[bytes] = asyncio.Queue()
        writing = asyncio.create_task(write(call, words))
        try:
            while (body := await call.read()) is not grpc.aio.EOF:
                for answer in answers(agent_pb2.SessionResponse.FromString(body)):
                    words.put_nowait(answer)
        finally:
            writing.cancel()
    raise RuntimeError(f"the stream of {host} has ended: {await call.details()}")


async def write(call: Any, words: asyncio.Queue[bytes]) -> None:
    """Send answers, and a beat every BEAT_S, from one task, for a call takes one message at a
    time."""
    beat_s = time.monotonic() + BEAT_S
    while True:
        try:
            async with asyncio.timeout(beat_s - time.monotonic()):
                word = await words.get()
        except TimeoutError:
            word, beat_s = BEAT, beat_s + BEAT_S
        await call.write(word)


def answers(word: agent_pb2.SessionResponse) -> Iterator[bytes]:
    """Yield the answer of an agent whose ranks start and stop at once."""
    match word.WhichOneof("message"):
        case "prepare":
            key, port = word.prepare.key, 1024 if word.prepare.node == 0 else 0
            yield request(prepared=agent_pb2.Prepared(key=key, address="10.0.0.1", port=port))
        case "launch":
            yield request(started=agent_pb2.Started(key=word.launch.key))
        case "stop":
            yield request(stopped=agent_pb2.Stopped(key=word.stop.key))


def request(**word: Any) -> bytes:
    return agent_pb2.SessionRequest(**word).SerializeToString()


# --- the server, and what is measured -----------------------------------------------------------


class AgentServer:
    """A `muster serve` of its own; `has_agents` opens a port for agents and starts its gateway."""

    def __init__(self, folder: Path, *, has_agents: bool) -> None:
        folder.mkdir()
        self.address, self.agents = (f"127.0.0.1:{free_port()}" for _ in range(2))
        command = [MUSTER, "serve", "--fabric", "roce-24k", "--store", f"sqlite:///{folder}/m.db"]
        command += ["--listen", self.address]
        if has_agents:
            secret = folder / "join-secret"
            secret.write_text(SECRET)
            command += ["--agents", self.agents, "--join-secret", str(secret)]
            command += ["--agent-lease-s", str(LEASE_S)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.address in self.process.stdout.readline()
        self.pids = [self.process.pid]
        self.pids += [pid for pid in children(self.process.pid) if b"gateway" in words_of(pid)]

    def end(self) -> None:
        with self.process:
            self.process.terminate()


def children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    found = [int(pid) for pid in text.split()]
    for task in Path(f"/proc/{parent}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return sorted(set(found))


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def spent_s(pid: int) -> float:
    """Return the processor seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HERTZ


def resident_mib(pid: int) -> float:
    row = next(r for r in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in r)
    return int(row.split()[1]) / 1024


def submits_ms(clients: list[Client], count: int) -> list[list[float]]:
    """Submit `count` jobs to each server in turns; return the milliseconds of each submit."""
    found: list[list[float]] = [[] for _ in clients]
    for number in range(count):
        for client, times in zip(clients, found, strict=True):
            began_s = time.perf_counter()
            client.create_job(spec(f"s{number}"))
            times.append(1_000 * (time.perf_counter() - began_s))
            client.cancel_job(f"s{number}")
    return found


@contextmanager
def agents(server: AgentServer, hosts: list[str], spread_s: float) -> Iterator[float]:
    """Run agents for these hosts; yield the seconds until all were connected."""
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "bench.service.agents", "--be", server.agents]
    process = subprocess.Popen(
        [*command, "--spread", str(spread_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdin.write("\n".join(hosts))
            process.stdin.close()
            assert process.stdout.readline() == "all there\n"
            yield time.perf_counter() - began_s
        finally:
            process.terminate()


def launch_s(client: Client, hosts: int) -> float:
    """Return the seconds from a gang's start until the log says that all its ranks started."""
    run = RunSpec(("train",), (("NCCL_DEBUG", "WARN"),))
    client.create_job(JobSpec("big", gang(hosts), run=run))
    until_s = time.monotonic() + MOST_LAUNCH_S
    while not (job := client.get_job("big")).HasField("launch_time"):
        assert time.monotonic() < until_s, f"the gang was not launched: {job.reason}"
        time.sleep(0.5)
    changes = client.watch_jobs(0, "big")
    at_ns = {}
    while service_pb2.JOB_CHANGE_LAUNCHED not in at_ns:
        change = next(changes)
        at_ns[change.change] = change.change_time.ToNanoseconds()
    return (at_ns[service_pb2.JOB_CHANGE_LAUNCHED] - at_ns[service_pb2.JOB_CHANGE_STARTED]) / 1e9


def run(count: int, seconds: float, submits: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="muster-agents-") as name:
        bare = AgentServer(Path(name) / "bare", has_agents=False)
        server = AgentServer(Path(name) / "agents", has_agents=True)
        try:
            with Client(bare.address) as alone, Client(server.address) as beside:
                return measured(server, [alone, beside], count, seconds, submits)
        finally:
            server.end()
            bare.end()


def measured(
    server: AgentServer, clients: list[Client], count: int, seconds: float, submits: int
) -> bool:
    hosts = [host.name for host in clients[1].list_hosts()][:count]
    size = min(2_048, len(hosts) * 2 // 3)
    submits_ms(clients, 20)
    with agents(server, hosts, 5.0) as joined_s:
        print(f"{len(hosts):,} agents there after {joined_s:.1f} s, spread over 5 s", flush=True)
        time.sleep(3)
        before = [spent_s(pid) for pid in server.pids]
        time.sleep(seconds)
        after = [spent_s(pid) for pid in server.pids]
        main, gateway = (100 * (b - a) / seconds for a, b in zip(before, after, strict=True))
        alone, beside = submits_ms(clients, submits)
        before = [spent_s(pid) for pid in server.pids]
        took_s = launch_s(clients[1], size)
        after = [spent_s(pid) for pid in server.pids]
        costs = [b - a for a, b in zip(before, after, strict=True)]
        print(f"gateway resident: {resident_mib(server.pids[1]):.0f} MiB")
    ratio = statistics.median(beside) / statistics.median(alone)
    rate = len(hosts) / BEAT_S
    print(f"beats, {rate:.0f}/s: gateway {gateway:.1f} %, server {main:.1f} % of a core")
    for title, some in (("without agents", alone), ("beside agents", beside)):
        p99 = sorted(some)[len(some) * 99 // 100]
        print(f"submit {title}: median {statistics.median(some):.2f} ms, p99 {p99:.2f} ms")
    print(f"ratio of medians: {ratio:.2f}")
    print(
        f"launch on {size:,} hosts: {took_s:.2f} s from the start until all have started;"
        f" processor time: gateway {costs[1]:.2f} s, server {costs[0]:.2f} s, the decision in it"
    )
    is_good = gateway + main <= MOST_CORE and ratio <= MOST_RATIO
    print("good" if is_good else f"too much: {MOST_CORE:g} % of a core, ratio {MOST_RATIO:g}")
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=3_072)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--submits", type=int, default=300)
    parser.add_argument("--be", help=argparse.SUPPRESS)
    parser.add_argument("--spread", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        asyncio.run(be_agents(options.be, sys.stdin.read().split(), options.spread))
        return 0
    return 0 if run(options.agents, options.seconds, options.submits) else 1


if __name__ == "__main__":
    sys.exit(main())
