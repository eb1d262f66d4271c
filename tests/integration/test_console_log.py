"""`muster console` of a log, and GET /timeline of a server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scheduler.console.logs import read_log
from scheduler.console.thread import ConsoleEndpoint
from scheduler.console.timeline import timeline
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import service_pb2
from tests.browser import HAS_BROWSER, MISSING, browsing
from tests.commands import Muster
from tests.e2e.processes import MUSTER
from tests.integration.simulator.test_run_page import write_report
from tests.ports import free_port
from tests.secured import House
from tests.serving import create, path, serving, until_running
from tests.unit.conftest import muster as muster

LOCAL = ConsoleEndpoint("127.0.0.1", 0)
TENANTS = Tenants((Tenant("vision"), Tenant("speech")), "vision")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay with failures."""
    return write_report(tmp_path_factory.mktemp("replay"))


@contextmanager
def shown(source: object) -> Iterator[str]:
    """The address at which a log is shown."""
    words = [MUSTER, "console", str(source), "--listen", f"127.0.0.1:{free_port()}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"events of .* on (http://\S+),", line)
        assert match, line
        yield match[1]
    finally:
        process.send_signal(signal.SIGINT)
        with process:
            assert process.wait(60) == 0


def head_of(content: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", content)
    head: dict[str, Any] = json.loads(content[4 : 4 + length])
    return head


def fetched(address: str, **headers: str) -> bytes:
    request = urllib.request.Request(f"{address}/timeline", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        return gzip.decompress(answer.read())


@pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)
def test_a_replay_is_looked_at_in_a_browser(report: Path) -> None:
    now = "return musterTime.recording.now"
    buttons = "[...document.querySelectorAll('button')]"
    with shown(report) as address, browsing() as page:
        page.go(address)
        page.until("globalThis.musterTime && musterMap")
        marks = page.run("return musterTime.recording.head.marks.map(m => m.at)")
        page.run("musterTime.go(arguments[0])", marks[0])
        states = "const {recording} = musterTime;"
        states += " return [...recording.slots.keys()].map(h => recording.stateOf(h))"
        assert page.run(states).count("failed") == 1
        page.until("/day 1, 0/.test(document.querySelector('.stamp').innerText)")
        page.until("/host failed/.test(document.querySelector('main').innerText)")
        page.run("document.querySelector('#time').focus()")
        page.type("\ue014")  # right
        page.until(f"musterTime.recording.now > {marks[0]}")
        page.type(" ")
        page.until(f"{buttons}.some(b => b.innerText === 'Pause')")
        before = page.run(now)
        page.until(f"musterTime.recording.now > {before}")
        page.type(" ")
        page.until(f"{buttons}.some(b => b.innerText === 'Play')")
        page.run("musterTime.go(0)")
        moments = sorted(set(marks))
        for label, moment in (("Next incident", 0), ("Next incident", 1), ("Incident before", 0)):
            page.run(f"{buttons}.find(b => b.innerText === arguments[0]).click()", label)
            assert page.run(now) == moments[moment]
        page.listen()
        assert all(each.startswith((address, "data:")) for each in page.requests)


async def test_a_server_shows_its_own_past_to_those_who_may_look(tmp_path: Path) -> None:
    house = House(tmp_path)
    eye, admin = house.token("eye", "viewer", "vision"), house.token("op", "admin")
    settings = {"access": house.access(), "channel": house.channel, "tenants": TENANTS}
    async with (
        serving(tmp_path, console=LOCAL, **settings) as served,
        house.calling(served, token=admin) as stub,
    ):
        for name, tenant in (("mine", "vision"), ("hush", "speech")):
            await stub.CreateJob(create(name, hosts=2, tenant=tenant))
            job = await until_running(stub, path(name, tenant))
        report = service_pb2.ReportHostRequest(name=job.placement.hosts[0], signal="gpu-lost")
        await stub.ReportHost(report)
        address = served.ready.console
        for token, sees in ((admin, True), (eye, False)):
            bearer = f"Bearer {token}"
            content = await asyncio.to_thread(fetched, address, Authorization=bearer)
            assert (b"hush" in content, b"mine" in content) == (sees, True)
            assert any(mark["kind"] == "host_failed" for mark in head_of(content)["marks"])
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(fetched, address)


async def test_stores_and_events_of_a_replay_are_logs(tmp_path: Path, report: Path) -> None:
    async with serving(tmp_path) as served:
        await served.start("a", 2)
    (store,) = tmp_path.glob("*.db")
    assert b"tenants/default/jobs/a" in timeline(*read_log(str(store)))
    assert head_of(timeline(*read_log(str(report / "events.jsonl"))))["end"] > 3_600


def test_what_is_no_log_is_refused(tmp_path: Path, muster: Muster) -> None:
    (tmp_path / "bad.jsonl").write_text('{"version":1,"type":"FabricLoaded"}\n')
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "text.db").write_text("x" * 5_000)
    for source, words in (
        ("bad.jsonl", "bad.jsonl:1: is not an event of this release"),
        ("empty.jsonl", "empty.jsonl: is empty: it has no event"),
        ("text.db", "text.db"),
        ("none.db", "none.db"),
        (".", "events.jsonl"),
    ):
        refused = muster("console", str(tmp_path / source))
        assert (refused.code, words in refused.err) == (2, True), (source, refused.err)
    public = muster("console", str(tmp_path), "--listen", "0.0.0.0:80")
    assert (public.code, "of this machine alone" in public.err) == (2, True)
    assert not os.path.exists(tmp_path / "none.db")
