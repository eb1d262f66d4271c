"""What metrics cost: submits on a server with them beside submits on one without.

    python -m tests.bench.bench_metrics [--rounds N] [--calls N]

Without means that nothing is measured at all: no stages, no fold over events, no
interceptor, no scrape. With means all of it, and a scrape every second. The two servers
take short turns, so that a machine that others use as well slows both. Rates are of the
wall clock; costs are processor time of the server for one durable submit, which other
programs touch less. Compared is round by round; the exit code is 1 when the median cost is
more than 5 % higher with metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc

from tests.bench.clients import requests
from tests.build import fabric_spec
from tests.e2e.processes import free_port

MOST, CLIENTS = 0.05, 32
WITH, WITHOUT = "with metrics", "without"
SUBMIT = "/scheduler.v1.SchedulerService/CreateJob"
_KEYS = ("rate", "cost_us")
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each client


@dataclass(frozen=True, slots=True)
class Served:
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Round:
    """`rate`: durable submits a second. `cost_us`: the server's processor time for one."""

    rate: float
    cost_us: float


def serve(store: str, listen: str, metrics_port: int) -> None:
    """The server of one round. Port 0: nothing is measured."""
    from scheduler.server import serve
    from scheduler.server.metrics.exposition import MetricsEndpoint

    if not metrics_port:
        _measure_nothing(serve)
    exposure = MetricsEndpoint("127.0.0.1", metrics_port) if metrics_port else None
    settings = serve.Settings(f"sqlite:///{store}", listen, fabric_spec(), metrics=exposure)
    asyncio.run(serve.serve(settings, lambda _: print("ready", flush=True)))


def _measure_nothing(server: Any) -> None:
    """Take all instruments out of a server, as if nobody had thought of them."""
    import grpc

    from scheduler.observe.instruments import Instruments, StageMark

    class Through(grpc.aio.ServerInterceptor):
        def __init__(self, _: object) -> None: ...

        async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
            return await continuation(handler_call_details)

    mark, nothing = StageMark(0, None), nullcontext()
    quiet: dict[str, Any] = {
        "mark": lambda _: mark,
        "passed": lambda *_: None,
        "timed": lambda *_: nothing,
        "inside": lambda *_: nothing,
        "wrote": lambda *_: None,
    }
    for name, method in quiet.items():
        setattr(Instruments, name, method)
    server.CallMetrics = Through


@contextmanager
def served(folder: Path, is_on: bool) -> Iterator[Served]:
    """A server of its own on a fresh store, scraped every second if it has metrics."""
    listen, port = f"127.0.0.1:{free_port()}", free_port() if is_on else 0
    command = [sys.executable, "-m", "tests.bench.bench_metrics", "--serve"]
    command += [str(folder / f"{port}.db"), listen, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        with _scraping(port):
            yield Served(listen, server.pid)
    finally:
        server.terminate()
        server.wait()


async def burst(served: Served, bodies: Iterator[tuple[bytes, bytes]], calls: int) -> Round:
    """So many submits by all clients together, as fast as they are answered."""
    mine = islice(bodies, calls)
    began_s, before_s = time.perf_counter(), _processor_s(served.pid)

    async def client() -> None:
        async with grpc.aio.insecure_channel(served.address, options=_OPTIONS) as channel:
            call = channel.unary_unary(SUBMIT)
            for body, _ in mine:
                await call(body)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    spent_s = _processor_s(served.pid) - before_s
    return Round(calls / (time.perf_counter() - began_s), 1e6 * spent_s / calls)


async def duel(rounds: int, calls: int) -> dict[str, list[Round]]:
    """Bursts in turns; who begins changes from round to round."""
    found: dict[str, list[Round]] = {WITH: [], WITHOUT: []}
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        sides = [
            (name, stack.enter_context(served(Path(text), name == WITH)), requests(0))
            for name in found
        ]
        for _, server, bodies in sides:
            await burst(server, bodies, calls)  # the first one warms up
        for number in range(rounds):
            for name, server, bodies in sides[:: 1 if number % 2 else -1]:
                found[name].append(await burst(server, bodies, calls))
    return found


@contextmanager
def _scraping(port: int) -> Iterator[None]:
    """A scrape every second meanwhile, unless the port is 0."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1):
            urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()

    thread = threading.Thread(target=scrape)
    if port:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if port:
            thread.join()


def _processor_s(pid: int) -> float:
    """Of all threads of a process, in nanoseconds' resolution (Linux: clock_getcpuclockid)."""
    return time.clock_gettime(~pid << 3 | 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--serve", nargs=3, metavar=("STORE", "LISTEN", "PORT"))
    args = parser.parse_args()
    if args.serve:
        store, listen, port = args.serve
        serve(store, listen, int(port))
        return 0
    found = asyncio.run(duel(args.rounds, args.calls))
    for name, each in found.items():
        rate, cost = (statistics.median(getattr(r, key) for r in each) for key in _KEYS)
        print(f"{name:13}{rate:8,.0f} submits/s{cost:8,.0f} us of processor each")
    slower, dearer = (_more(found, key) for key in _KEYS)
    print(f"with metrics: {slower:+.1%} submits/s, {dearer:+.1%} processor (at most {MOST:+.0%})")
    return dearer > MOST


def _more(found: dict[str, list[Round]], key: str) -> float:
    """The median over rounds of with over without, less 1."""
    pairs = zip(found[WITH], found[WITHOUT], strict=True)
    return statistics.median(getattr(a, key) / getattr(b, key) for a, b in pairs) - 1


if __name__ == "__main__":
    sys.exit(main())
