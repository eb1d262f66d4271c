"""The pictures of docs/console.md: a server with the fabric of Llama 3's cluster, some 60 gangs and
a queue, in a real browser.

    python -m scripts.screenshots docs/img        needs chromium and chromedriver
    python -m scripts.screenshots --serve         the same server to look at, until Ctrl-C

Sizes, names and failures follow from a seed, so that the same sources give the same cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGINT
from typing import Any

import grpc

from placement.fabric.reader import PRESETS
from scheduler.console.thread import HttpEndpoint
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.server.config import ServerKeys
from scheduler.server.serve import Ready, Settings, Signals, serve
from scheduler.v1 import job_pb2, service_pb2, service_pb2_grpc
from tests.browser import HAS_BROWSER, MISSING, Page, browsing

SEED = 11
TENANTS = Tenants(
    (
        Tenant("research"),
        Tenant("vision", parent="research", guaranteed_gpus=2_048),
        Tenant("speech", parent="research", guaranteed_gpus=1_024),
        Tenant("language", guaranteed_gpus=8_192),
        Tenant("safety", guaranteed_gpus=512),
    ),
    "language",
)
MODEL = {"layers": 126, "hidden": 16_384, "ffn": 53_248, "heads": 128, "kv_heads": 8}
MODEL |= {"vocab": 128_256, "sequence": 8_192}
PAGES = ("overview", "map", "queue", "incidents", "hosts", "spares", "tenants")
WIDE, PHONE = (1_440, 900), (390, 844)


def jobs(seed: int) -> list[dict[str, Any]]:
    """Specifications: one gang of 8,192 GPUs and many smaller ones, more than fit."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = [
        {
            "name": "llama3-405b",
            "tenant": "language",
            "parallelism": {"tp": 8, "pp": 16, "dp": 64},
            "model": MODEL,
            "batch": {"global_sequences": 2_048},
            "priority": 100,
        }
    ]
    names = ("vit", "asr", "tts", "moe", "eval", "rlhf", "probe", "distil")
    for number in range(68):
        tenant = rng.choice(("vision", "speech", "language", "safety"))
        pp, dp = rng.choice(((1, 8), (2, 8), (4, 4), (4, 8), (8, 4), (1, 32), (2, 16), (8, 8)))
        made.append(
            {
                "name": f"{rng.choice(names)}-{number:02}",
                "tenant": tenant,
                "parallelism": {"tp": 8, "pp": pp, "dp": dp},
                "traffic": {"pp": 64 << 20, "dp": 512 << 20},
                "spares": rng.choice(("auto", "1", "0")),
                "priority": rng.randrange(0, 90, 10),
                "time_limit": f"{rng.randrange(4, 48) * 3_600}s",
            }
        )
    for number in range(5):
        made.append(
            {
                "name": f"pretrain-{number}",
                "tenant": "language",
                "parallelism": {"tp": 8, "pp": 16, "dp": 32 << number % 2},
                "traffic": {"pp": 64 << 20, "dp": 512 << 20},
                "spares": "0",
                "priority": number * 10,
                "time_limit": "86400s",
            }
        )
    return made


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[Ready]:
    """A server with gangs, a queue, failures, a cordoned rack and a degraded uplink."""
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    settings = Settings(
        ServerKeys(store=f"sqlite:///{folder / 'muster.db'}", listen="127.0.0.1:0"),
        fabric_spec=PRESETS["roce-24k"],
        tenants=TENANTS,
        console=HttpEndpoint("127.0.0.1", 0),
    )
    signals = Signals()
    serving = asyncio.create_task(serve(settings, ready.set_result, signals))
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await serving
    try:
        async with grpc.aio.insecure_channel(ready.result().address) as channel:
            await _fill(service_pb2_grpc.SchedulerServiceStub(channel))
        yield ready.result()
    finally:
        signals.stop.set()
        await serving


async def _fill(stub: Any) -> None:
    specs = jobs(SEED)
    for fields in specs:
        limit = fields.pop("time_limit", "")
        spec = job_pb2.JobSpec(**fields)
        if limit:
            spec.time_limit.FromJsonString(limit)
        await stub.CreateJob(service_pb2.CreateJobRequest(spec=spec))
    await _settled(stub)
    for host, signal in await _victims(stub):
        await stub.ReportHost(service_pb2.ReportHostRequest(name=host, signal=signal))
        await _settled(stub)
    for host in ("z6-r100-h0", "z6-r100-h1"):
        await stub.CordonHost(service_pb2.CordonHostRequest(name=host, reason="fans are replaced"))
    await stub.ReportLink(
        service_pb2.ReportLinkRequest(name="z2", share=0.875, detail="2 of 16 cables")
    )


async def _victims(stub: Any) -> list[tuple[str, str]]:
    """Hosts that are to fail, and how: one of each of eight gangs, for a gang that fails again and
    again is started ever later."""
    listed = await stub.ListHosts(service_pb2.ListHostsRequest(page_size=10_000))
    first: dict[str, str] = {}
    for host in listed.hosts:
        if host.job and host.HasField("block"):
            first.setdefault(host.job, host.name)
    hosts = random.Random(SEED).sample(list(first.values()), 8)
    return list(
        zip(hosts, ("gpu-lost", "ecc-uncorrectable", "nic-down", "host-down") * 2, strict=True)
    )


async def _settled(stub: Any) -> None:
    """Return once nothing is decided any more."""
    version, stopped = -1, 1
    while stopped or version != (version := await _version(stub)):
        await asyncio.sleep(1)
        status = await stub.GetStatus(service_pb2.GetStatusRequest())
        stopped = sum(tenant.interrupted_jobs for tenant in status.tenants)


async def _version(stub: Any) -> int:
    status: service_pb2.GetStatusResponse = await stub.GetStatus(service_pb2.GetStatusRequest())
    return status.version


def pictures(address: str, folder: Path) -> None:
    with browsing() as page:
        for shade in ("light", "dark"):
            page.shade(is_dark=shade == "dark")
            page.resize(*WIDE)
            for name in PAGES:
                _open(page, f"{address}/#/{name}")
                _write(page, folder / f"console-{name}-{shade}.png")
            _open(page, f"{address}/#/job/language/llama3-405b")
            _write(page, folder / f"console-job-{shade}.png")
            _open(page, f"{address}/#/map")
            page.run("document.querySelector('input[value=job]').click()")
            page.run("document.querySelector('.legend button').click()")
            _point(page)
            _write(page, folder / f"console-gangs-{shade}.png")
        page.resize(*PHONE, is_phone=True)
        for name in ("map", "queue"):
            _open(page, f"{address}/#/{name}")
            _write(page, folder / f"console-{name}-phone.png")


def replayed(folder: Path, pictures: Path) -> None:
    """The page *Time* of the 54 days of Llama 3 (docs/llama3-54-days.md), at an incident."""
    examples = Path(__file__).resolve().parents[1] / "examples"
    words = ["replay", str(examples / "llama3-54-days.jsonl"), "--trace-format", "muster"]
    words += ["--fabric", "roce-24k", "--failures", "llama3", "--times", "llama3"]
    words += ["--until-h", "1296", "--report", str(folder)]
    program = str(Path(sys.executable).with_name("muster"))
    subprocess.run([program, *words], check=True, capture_output=True)
    showing = [program, "console", str(folder)]
    with subprocess.Popen(showing, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split(" on ")[1].partition(",")[0]
        with browsing() as page:
            page.resize(*WIDE)
            page.go(address)
            page.until("globalThis.musterTime && globalThis.musterMap?.paintMs")
            page.run("const {recording, go} = musterTime; go(recording.head.marks[200].at)")
            page.run("return new Promise((done) => setTimeout(done, 800))")
            _write(page, pictures / "console-time-light.png")
        process.send_signal(SIGINT)


def _open(page: Page, address: str) -> None:
    page.go("about:blank")
    page.go(address)
    words = "/Asking the|Waiting for the first|Connecting|nobody has a start|\\n…\\n/"
    words += ".test(document.body.innerText)"
    page.until(f"document.querySelector('h1') && !{words}")
    if address.endswith("map"):
        page.until("globalThis.musterMap?.paintMs")


def _point(page: Page) -> None:
    """Look at a host in the middle of the largest gang."""
    page.run(
        "const m = globalThis.musterMap, c = m.cluster;"
        " const slot = [...c.jobs.values()].sort((a, b) => b.hosts - a.hosts)[0].slot;"
        " m.point(c.slots.findIndex((s, h) => s === slot && c.blocks[h] === 300), 3);"
        " return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def _write(page: Page, path: Path) -> None:
    path.write_bytes(page.picture())
    print(path)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="where the pictures go")
    parser.add_argument("--serve", action="store_true", help="only serve, until Ctrl-C")
    options = parser.parse_args()
    if not options.serve and options.folder is None:
        parser.error("name a folder, or say --serve")
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    if not options.serve and not HAS_BROWSER:
        raise SystemExit(f"it {MISSING}")
    with tempfile.TemporaryDirectory() as name:
        async with filled(Path(name)) as ready:
            print(f"console on {ready.console}", flush=True)
            if options.serve:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            else:
                await asyncio.to_thread(pictures, ready.console, options.folder)
                await asyncio.to_thread(replayed, Path(name) / "replay", options.folder)


if __name__ == "__main__":
    asyncio.run(main())
