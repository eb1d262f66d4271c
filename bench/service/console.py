"""What the console costs: 100 readers of the live map, commits beside them, and a repaint.

    python -m bench.service.console [--readers N] [--seconds N]

1. A process with the console alone, whose cluster of 3,072 hosts changes 20 times a second, 1,000
   hosts at a time, is read by as many: processor time of that process, less what it takes with
   nobody reading. Goal: 15 % of a core.
2. Durable submits, one after the other, on a server with and without so many readers, in turns: the
   median latency and the slowest percent, as a ratio. A commit must not wait for a reader.
3. In headless Chromium, where there is one: painting all 24,576 GPUs anew. Goal: 16 ms.
4. With `--minutes M`, alone: on the cluster of the pictures (roce-24k, some 66 gangs): first
   paint, all verdicts of the overview, frames a second of the map, a failure until it is seen, a
   seek, and the heap of the page at first and after so many minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from starlette.routing import Route

from placement.fabric.reader import PRESETS
from scheduler.console.app import application
from scheduler.console.http_server import HttpServer
from scheduler.console.live import LiveMaps, LiveStream
from scheduler.console.server import log_server
from scheduler.console.session import written
from scheduler.console.thread import HttpEndpoint, bound
from scheduler.console.timeline import timeline
from scheduler.core import State
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import FabricLoaded
from scheduler.core.model.lifecycle import HostState
from scheduler.core.model.state import Host
from scheduler.identity import Caller, Role
from scheduler.server.config import ServerKeys
from scheduler.server.serve import Ready, Settings, Signals, serve
from scheduler.v1 import service_pb2, service_pb2_grpc
from scheduler.wire.specs import spec_to_proto
from scripts.screenshots import filled
from tests.browser import HAS_BROWSER, MISSING, browsing
from tests.build import spec

CHANGED, STEP_S = 1_000, 0.05
MOST_SHARE, MOST_PAINT_MS = 0.15, 16.0


class _AnybodyCalls:
    """The calls that a stream makes: who looks."""

    def stream(self, *_: Any) -> AsyncGenerator[Any, None]:
        async def answers() -> AsyncGenerator[Any, None]:
            while True:
                yield type("Word", (), {"value": written(Caller("", Role.VIEWER))})
                await asyncio.sleep(2)

        return answers()


def alone(port: Any) -> None:
    """Serve the console of a cluster that changes by itself; never returns."""
    state = apply(State.empty(), FabricLoaded(0, PRESETS["roce-24k"]))
    # A window of failed hosts moves on: of two pictures a tenth of a second apart 1,000 differ.
    shift = CHANGED // 4
    failed = [
        {index: Host(HostState.FAILED, 0) for index in range(at, at + CHANGED)}
        for at in range(0, 2_000, shift)
    ]
    begun = time.monotonic()

    def now() -> State:
        step = int((time.monotonic() - begun) / STEP_S)
        return replace(state, version=step + 2, hosts=failed[step % len(failed)])

    listening = bound(HttpEndpoint("127.0.0.1", 0))
    ending = threading.Event()
    live: Any = LiveStream(_AnybodyCalls(), LiveMaps(now, ending))  # type: ignore[arg-type]
    routes = [Route("/live", live.answer, methods=["GET"])]
    port.put(listening.getsockname()[1])
    HttpServer(application([], routes, is_local=True), ending).run(listening, None, nullcontext)


async def read(port: int, counts: list[int]) -> None:
    """Read the live map as one reader, until cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    while data := await reader.read(1 << 18):
        counts[0] += len(data)


def many(port: int, readers: int, ready: Any) -> None:
    """Run so many readers, until they are killed. `ready` gets the bytes read, every second."""

    async def run() -> None:
        counts = [0]
        tasks = [asyncio.create_task(read(port, counts)) for _ in range(readers)]
        while True:
            await asyncio.sleep(1)
            ready.put(counts[0])
            assert not any(task.done() for task in tasks)

    asyncio.run(run())


@contextmanager
def reading(port: int, readers: int) -> Iterator[Any]:
    """Run so many readers in a process of their own, from their first second on."""
    told: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=many, args=(port, readers, told), daemon=True)
    if readers:
        process.start()
        told.get(timeout=60)
    try:
        yield told
    finally:
        if readers:
            process.kill()
            process.join()


def spent_s(pid: int) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def live_cost(readers: int, seconds: float) -> float:
    """Return the share of a core that so many readers cost, and print the bytes that each gets."""
    port_of: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=alone, args=(port_of,), daemon=True)
    process.start()
    port, shares = port_of.get(timeout=60), {}
    for count in (0, readers):
        with reading(port, count) as told:
            before, begun = spent_s(process.pid or 0), time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - begun
            shares[count] = (spent_s(process.pid or 0) - before) / took
            if count:
                read_bytes = [told.get() for _ in range(told.qsize())][-1]
                print(f"  {read_bytes / count / took / 1e3:.0f} kB/s for each of {count} readers")
    process.kill()
    return shares[readers] - shares[0]


async def commits(readers: int, calls: int) -> dict[str, list[float]]:
    """Measure durable submits in ms, with readers and without, in turns."""
    took: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        settings = Settings(
            ServerKeys(store=f"sqlite:///{folder}/bench.db", listen="127.0.0.1:0"),
            fabric_spec=PRESETS["roce-24k"],
            console=HttpEndpoint("127.0.0.1", 0),
        )
        signals = Signals()
        serving = asyncio.create_task(serve(settings, ready.set_result, signals))
        address = (await ready).console
        port = urlsplit(address).port or 0
        async with grpc.aio.insecure_channel(ready.result().address) as channel:
            stub: Any = service_pb2_grpc.SchedulerServiceStub(channel)
            for turn in range(6):
                way = "with" if turn % 2 else "without"
                beside = reading(port, readers if turn % 2 else 0)
                await asyncio.to_thread(beside.__enter__)
                for number in range(calls):
                    request = service_pb2.CreateJobRequest(
                        spec=spec_to_proto(spec(f"b{turn}-{number}", 8, gpus=8))
                    )
                    begun = time.perf_counter()
                    await stub.CreateJob(request)
                    took[way].append((time.perf_counter() - begun) * 1e3)
                    await asyncio.sleep(0.01)
                beside.__exit__(None, None, None)
        signals.stop.set()
        await serving
    return took


PAINT = """
  const canvas = musterMap.base.getContext('2d'), took = [];
  for (let turn = 0; turn < 60; turn += 1) {
    const begun = performance.now();
    musterMap.paintAll();
    canvas.getImageData(0, 0, 1, 1);
    took.push(performance.now() - begun);
    await new Promise(requestAnimationFrame);
  }
  return took;"""


def still(port: Any) -> None:
    """Serve the console of a log with nothing but a fabric; never returns."""
    state = apply(State.empty(), FabricLoaded(0, PRESETS["roce-24k"]))
    listening = bound(HttpEndpoint("127.0.0.1", 0))
    port.put(listening.getsockname()[1])
    log_server(gzip.compress(timeline(state, []))).run(listening, None, nullcontext)


def paint_ms() -> list[float]:
    """Repaint 24,576 GPUs sixty times; return the milliseconds of each repaint."""
    port_of: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=still, args=(port_of,), daemon=True)
    process.start()
    try:
        with browsing() as page:
            page.resize(1_920, 1_080)
            page.go(f"http://127.0.0.1:{port_of.get(timeout=60)}/")
            page.until("globalThis.musterMap && musterMap.plan")
            took: list[float] = page.run(f"return (async () => {{{PAINT}}})()")
            return took
    finally:
        process.kill()


VERDICTS = """(() => {
  const texts = [...document.querySelectorAll('.verdict strong')].map((each) => each.innerText);
  return texts.length === 6 && texts.every((text) => text !== '…');
})()"""
FRAMES = """
  const begun = performance.now();
  let frames = 0;
  while (performance.now() - begun < 3000) {
    musterMap.repaint();
    await new Promise(requestAnimationFrame);
    frames += 1;
  }
  return frames / 3;"""
SEEKS = """
  const {recording, go} = musterTime, {begin, end} = recording.head, took = [];
  for (let turn = 0; turn < 50; turn += 1) {
    const begun = performance.now();
    go(begin + ((turn * 7919) % 50) / 50 * (end - begin));
    took.push(performance.now() - begun);
  }
  return took.sort((a, b) => a - b)[25];"""
HEAP = "return performance.memory.usedJSHeapSize / 1e6"


async def pages(minutes: float) -> dict[str, float]:
    """Measure the pages of a full cluster in a browser."""
    with tempfile.TemporaryDirectory() as folder:
        async with filled(Path(folder)) as ready:
            return await asyncio.to_thread(_measured_pages, ready, minutes)


def _measured_pages(ready: Ready, minutes: float) -> dict[str, float]:
    found: dict[str, float] = {}
    with browsing() as page, grpc.insecure_channel(ready.address) as channel:
        stub: Any = service_pb2_grpc.SchedulerServiceStub(channel)
        page.resize(1_280, 900)
        begun = time.perf_counter()
        page.go(f"{ready.console}/#/overview")
        page.until(VERDICTS)
        found["all verdicts, s"] = time.perf_counter() - begun
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        found["first paint, ms"] = page.run(f"return {paint}")
        page.run("location.hash = '/map'")
        page.until("globalThis.musterMap?.plan")
        found["frames a second"] = page.run(f"return (async () => {{{FRAMES}}})()")
        host = "z3-r100-h0"
        begun = time.perf_counter()
        stub.ReportHost(service_pb2.ReportHostRequest(name=host, signal="gpu-lost"))
        at = f"musterMap.cluster.fabric.hosts.indexOf({host!r})"
        page.until(f"musterMap.cluster.stateOf({at}) === 'failed'")
        found["a failure is seen, ms"] = 1e3 * (time.perf_counter() - begun)
        page.run("location.hash = '/time'")
        page.until("globalThis.musterTime && musterTime.recording.frames.length")
        found["seek, ms"] = page.run(f"return (async () => {{{SEEKS}}})()")
        page.run("location.hash = '/overview'")
        page.until(VERDICTS)
        found["heap at first, MB"] = page.run(HEAP)
        time.sleep(60 * minutes)
        found[f"heap after {minutes:g} min, MB"] = page.run(HEAP)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--minutes", type=float, help="measure the pages alone, for so long")
    given = parser.parse_args()
    if given.minutes is not None:
        for name, value in asyncio.run(pages(given.minutes)).items():
            print(f"{name}: {value:,.1f}")
        return 0
    share = live_cost(given.readers, given.seconds)
    print(f"live map, {given.readers} readers: {share:.1%} of a core (goal {MOST_SHARE:.0%})")
    took = asyncio.run(commits(given.readers, given.calls))
    for way, name in (("without", "nobody"), ("with", f"{given.readers} readers")):
        slow = statistics.quantiles(took[way], n=100)[98]
        print(f"submits beside {name}: {statistics.median(took[way]):.2f} ms, p99 {slow:.2f} ms")
    painted = statistics.median(paint_ms()) if HAS_BROWSER else None
    if painted is None:
        print(f"repaint: {MISSING}")
    else:
        print(f"repaint of 24,576 GPUs: {painted:.1f} ms (goal {MOST_PAINT_MS:g})")
    return 0 if share <= MOST_SHARE and (painted is None or painted <= MOST_PAINT_MS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
