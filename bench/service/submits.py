"""make bench-service: how much a server takes, beside what gRPC alone would take.

    python -m bench.service.submits [--seconds 10] [--jobs 100000] [--postgres] [--json FILE]

A real `muster serve` on roce-24k with a SQLite store, clients in processes of their own,
all on this machine. Four questions: durable submits of 64 clients while the queue before a full
fabric grows, of jobs that differ in their names alone and of jobs that are all unlike, and the
same calls to a server that only answers; 200 watches of those submits; the server's memory after
so many jobs came and went, before and after it dropped old events. With --postgres the first
question is also put to a server whose log is in a new PostgreSQL. Rates of a shared machine mean
little by themselves; the ratio to the bare limit, taken just before, does.
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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc

from bench.service.clients import HOSTS
from scheduler.client import Client
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.specs import spec_to_proto
from tests.build import spec
from tests.e2e.processes import MUSTER
from tests.postgres import Cluster, cluster

CLIENTS, STREAMS = 64, 200
WARM_S = 3  # from which the fabric has more jobs than it holds
GANGS, FILL_S = 768, 120.0  # that fill the fabric, and how long that may take
RATE, P99_MS, GROWTH = 1_500, 50.0, 1.25


@dataclass(frozen=True)
class CallLoad:
    """Rate and latencies of one process of clients, with its processor time per call."""

    calls: int
    per_s: float
    p50_ms: float
    p99_ms: float
    worst_ms: float
    client_us: float

    def __str__(self) -> str:
        return (
            f"{self.per_s:7,.0f} /s   p50 {self.p50_ms:6.1f} ms   p99 {self.p99_ms:6.1f} ms"
            f"   worst {self.worst_ms:6.1f} ms   clients {self.client_us:.0f} us a call"
        )


def load(address: str, method: str, seconds: float, first: int = 0) -> CallLoad:
    """Run 64 clients for `seconds`; return what they measured."""
    command = [sys.executable, "-m", "bench.service.clients", address, method]
    command += ["--clients", str(CLIENTS), "--seconds", str(seconds), "--first", str(first)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    took = sorted(found["took_us"])
    p50, p99, worst = (took[min(len(took) - 1, len(took) * p // 100)] / 1e3 for p in (50, 99, 100))
    return CallLoad(len(took), len(took) / found["seconds"], p50, p99, worst, found["client_us"])


@dataclass
class BenchServer:
    """A `muster serve` of its own store, or a server that only answers."""

    process: subprocess.Popen[str]
    address: str

    def memory_mib(self) -> float:
        """Return the resident memory of the server itself, without the process that decides."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1_024

    def cpu_s(self) -> float:
        """Return the processor time of all threads of the server (Linux: clock_getcpuclockid)."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def fill(self) -> None:
        """Wait until the fabric is full, so that placing its gangs (some 2 s of processor) is not
        measured with the calls."""
        load(self.address, "submit", WARM_S)
        began = time.monotonic()
        with Client(self.address) as client:
            while client.get_status().gang_count < GANGS:
                assert time.monotonic() < began + FILL_S, "the fabric is not filled"
                time.sleep(0.2)

    def loaded(self, method: str, seconds: float) -> tuple[CallLoad, float]:
        """Return the load of 64 clients, and the server's processor microseconds per call."""
        if method == "echo":
            load(self.address, method, WARM_S)
        else:
            self.fill()
        before = self.cpu_s()
        found = load(self.address, method, seconds, 1_000_000)
        return found, (self.cpu_s() - before) / found.calls * 1e6


def _echoed_job() -> job_pb2.Job:
    return job_pb2.Job(
        name="load-00000000", uid="u" * 36, spec=spec_to_proto(spec("x", HOSTS, gpus=8))
    )


async def serve_echo() -> None:
    """Print an address, and answer each submit there with a job made beforehand.

    The bare limit: same library, same message sizes, nothing checked, nothing written.
    """
    answer = _echoed_job()

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


@contextmanager
def echoing() -> Iterator[BenchServer]:
    """Start a server that only answers."""
    command = [sys.executable, "-m", "bench.service.submits", "--echo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield BenchServer(process, process.stdout.readline().strip())
        finally:
            process.terminate()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[BenchServer]:
    command = [MUSTER, "serve", "--fabric", "roce-24k", "--listen", "127.0.0.1:0"]
    command += ["--store", f"sqlite:///{folder / 'muster.db'}", *options]
    limits = folder / "server.yaml"
    limits.write_text("limits: {waiting_jobs: 1000000}\n")  # the queue only grows
    command += ["--config", str(limits)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().replace(",", "").split()
        try:
            yield BenchServer(process, words[words.index("on") + 1])
        finally:
            process.terminate()


def submits(seconds: float, postgres: Cluster | None) -> dict[str, object]:
    """Measure durable submits of 64 clients on a growing queue, after the bare gRPC limit."""
    with echoing() as server:
        bare, cpu_us = server.loaded("echo", seconds)
    print(f"bare gRPC echo    {bare}   server {cpu_us:.0f} us")
    found: dict[str, object] = {"echo": {**asdict(bare), "cpu_us": cpu_us}}
    settings: list[tuple[str, str, tuple[str, ...]]] = [
        ("submit", "submits", ()),
        ("vary", "unlike", ()),
    ]
    if postgres:
        settings.append(("submit", "postgres", ("--store", postgres.new_database())))
    for method, name, options in settings:
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder), *options) as server:
            durable, cpu_us = server.loaded(method, seconds)
        ratio = durable.per_s / bare.per_s
        print(f"durable {name:9} {durable}   server {cpu_us:.0f} us")
        print(f"                  {ratio:.2f} of the bare limit")
        found[name] = {**asdict(durable), "cpu_us": cpu_us, "ratio": ratio}
    return found


def fan_out(seconds: float) -> dict[str, object]:
    """Measure durable submits while 200 watches read all changes."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        server.fill()
        command = [sys.executable, "-m", "bench.service.watchers", server.address]
        command += ["--streams", str(STREAMS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as watchers:  # type: ignore[call-overload]
            assert watchers.stdout.readline() == "ready\n"
            began = time.monotonic()
            busy = load(server.address, "submit", seconds, 1_000_000)
            out, _ = watchers.communicate()
            took = time.monotonic() - began
    found = json.loads(out)
    assert found["same"], "the streams differ"
    assert found["ordered"], "a stream has a change twice, or out of order"
    rate = found["changes"] / took
    print(f"{STREAMS} watches       {rate:7,.0f} changes /s, each stream whole and in order")
    print(f"submits meanwhile {busy}")
    return {"changes_per_s": rate, "submits": asdict(busy), **found}


def memory(jobs: int) -> dict[str, object]:
    """Measure server memory and store size while jobs come and go."""
    options = ("--snapshot-every", "20000")
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), *options) as server:
        at, sizes, done = [server.memory_mib()], [0], 0
        for part in range(1, 5):
            while done < jobs * part // 4:
                done += load(server.address, "churn", 8, done).calls // 2
            time.sleep(2)
            at.append(server.memory_mib())
            sizes.append(done)
        with Client(server.address) as client:
            version = client.get_status().version
        size = (Path(folder) / "muster.db").stat().st_size / 2**20
        server.process.terminate()
        server.process.wait()
        compact = [
            "store",
            "compact",
            "--keep-days",
            "0",
            "--store",
            f"sqlite:///{folder}/muster.db",
        ]
        subprocess.run([MUSTER, *compact], check=True, stdout=subprocess.DEVNULL)
        small = (Path(folder) / "muster.db").stat().st_size / 2**20
        began = time.monotonic()
        with serving(Path(folder), *options) as again:
            start_s, after = time.monotonic() - began, again.memory_mib()
    growth = at[-1] / at[1]
    print(
        f"memory            {at[0]:.0f} MiB empty; "
        + "; ".join(
            f"{mib:.0f} after {count:,} jobs" for mib, count in zip(at[1:], sizes[1:], strict=True)
        )
    )
    print(
        f"store             {size:.0f} MiB at version {version:,}; {small:.1f} MiB compacted;"
        f" then ready in {start_s:.1f} s with {after:.0f} MiB"
    )
    return {
        "mib": at,
        "jobs": sizes,
        "growth": growth,
        "store_mib": size,
        "compacted_mib": small,
        "start_s": start_s,
        "after_mib": after,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--postgres", action="store_true", help="The log in PostgreSQL as well.")
    args = parser.parse_args()
    if args.echo:
        asyncio.run(serve_echo())
    with cluster() if args.postgres else nullcontext() as postgres:
        durable = submits(args.seconds, postgres)
    found = {
        "submits": durable,
        "fan_out": fan_out(args.seconds),
        "memory": memory(args.jobs),
    }
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    alike = durable["submits"]
    assert isinstance(alike, dict)
    met = {
        f"{RATE:,} durable submits a second": alike["per_s"] >= RATE,
        f"99 of 100 within {P99_MS:.0f} ms": alike["p99_ms"] < P99_MS,
        "memory flat": found["memory"]["growth"] < GROWTH,  # type: ignore[operator]
    }
    for target, is_met in met.items():
        print(f"{'met   ' if is_met else 'MISSED'} {target}")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
