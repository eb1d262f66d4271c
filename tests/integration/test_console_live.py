"""The stream of the console's map: what it says, to whom, and what it costs nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler.console import live
from scheduler.console.cluster_map import NOBODY, SOMEBODY
from scheduler.console.thread import ConsoleEndpoint
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import service_pb2
from tests.build import cancel, fabric, loaded, run, schedule, submit
from tests.secured import House
from tests.serving import Served, create, serving
from tests.timelines import MapView

LOCAL = ConsoleEndpoint("127.0.0.1", 0)
TENANTS = Tenants((Tenant("vision"), Tenant("speech")), "vision")


class Stream:
    def __init__(self, reader: asyncio.StreamReader, status: int) -> None:
        self._reader = reader
        self.status = status
        self.map = MapView()

    async def frame(self) -> bytes | None:
        """The next one as it comes, None at the end of the stream."""
        if (size := int((await self._reader.readline()) or b"0", 16)) == 0:
            return None
        return (await self._reader.readexactly(size + 2))[:-2]

    async def step(self) -> bool:
        """Take what comes next; False at the end."""
        chunk = await self.frame()
        while chunk:
            size = int.from_bytes(chunk[:4], "little")
            if size:
                self.map.take(chunk[4 : 4 + size])
            chunk = chunk[4 + size :]
        return chunk is not None

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(60):
            while not is_so(self.map):
                assert await self.step()

    async def end(self) -> None:
        """Wait for the end of the stream."""
        async with asyncio.timeout(60):
            while await self.step():
                pass


@asynccontextmanager
async def looking(served: Served, query: str = "", token: str = "") -> AsyncIterator[Stream]:
    parts = urlsplit(served.ready.console)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"GET /live{query} HTTP/1.1\r\nHost: {parts.netloc}\r\n{bearer}\r\n".encode())
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        yield Stream(reader, status)
    finally:
        writer.close()


async def test_a_map_follows_gangs_and_hosts(tmp_path: Path) -> None:
    async with serving(tmp_path, console=LOCAL) as served, looking(served) as stream:
        await stream.until(lambda seen: seen.hosts)
        assert stream.map.slots.tolist() == [NOBODY] * 8
        assert {stream.map.state(host) for host in range(8)} == {"healthy"}
        job = await served.start("a", 2)
        await stream.until(lambda seen: seen.jobs)
        held = [stream.map.hosts[at] for at in stream.map.of("a")]
        assert held == list(job.placement.hosts)
        entry = next(iter(stream.map.jobs.values()))
        assert entry["axes"] == [["tp", 8], ["cp", 1], ["ep", 1], ["pp", 1], ["dp", 2]]
        await served.stub.ReportHost(
            service_pb2.ReportHostRequest(name=held[0], signal="ecc-uncorrectable")
        )
        failed = stream.map.hosts.index(held[0])
        await stream.until(lambda seen: seen.state(failed) == "failed")
        await stream.until(lambda seen: seen.slots[failed] == NOBODY)
        await served.cancel("a")
        await stream.until(lambda seen: not seen.jobs)
        assert stream.map.slots.tolist() == [NOBODY] * 8
        assert stream.map.kinds[0] == "snapshot"
        assert set(stream.map.kinds[1:]) == {"delta"}


async def test_a_broken_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    async with serving(tmp_path, console=LOCAL) as served:
        async with looking(served) as stream:
            await served.start("a", 2)
            await stream.until(lambda seen: seen.jobs)
            seen = stream.map
        await served.cancel("a")
        query = f"?key={seen.key}&after_version={seen.version}"
        async with looking(served, query) as stream:
            stream.map = seen
            await stream.until(lambda seen: not seen.jobs)
            assert seen.kinds.count("snapshot") == 1
        for query in (f"?key=other&after_version={seen.version}", f"?key={seen.key}"):
            async with looking(served, query) as stream:
                await stream.until(lambda seen: seen.hosts)
        async with looking(served, "?after_version=-1") as stream:
            assert stream.status == 400


async def test_a_tenant_sees_of_others_that_hosts_are_held(tmp_path: Path) -> None:
    house = House(tmp_path)
    eye = house.token("eye", "viewer", "vision")
    operator = house.token("op", "admin")
    async with serving(
        tmp_path,
        console=LOCAL,
        access=house.access(),
        channel=house.channel,
        tenants=TENANTS,
    ) as served:
        async with looking(served) as stream:
            assert stream.status == 401
        async with (
            house.calling(served, token=operator) as stub,
            looking(served, token=eye) as stream,
            looking(served, token=operator) as whole,
        ):
            for name, tenant in (("secret-run", "speech"), ("mine", "vision")):
                await stub.CreateJob(create(name, hosts=2, tenant=tenant))
            for each in (stream, whole):
                await each.until(lambda seen: sum(map(bool, seen.slots)) == 4)
            assert len(whole.map.of("secret-run")) == 2
            assert len(stream.map.of("mine")) == 2
            assert stream.map.slots.tolist().count(SOMEBODY) == 2
            hidden = [at for at, slot in enumerate(stream.map.slots) if slot == SOMEBODY]
            assert [stream.map.blocks[at] for at in hidden] == [-1, -1]
            assert "secret" not in stream.map.text
            assert "speech" not in stream.map.text


@pytest.mark.parametrize("change", [("", ""), ('"vision"', '"speech"')], ids=["gone", "moved"])
async def test_a_token_that_is_taken_back_or_of_another_tenant_ends_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    monkeypatch.setattr("scheduler.console.session.CHECK_S", 0.1)
    house = House(tmp_path)
    eye = house.token("eye", "viewer", "vision")
    access, channel = house.access(), house.channel
    async with (
        serving(tmp_path, console=LOCAL, access=access, channel=channel, tenants=TENANTS) as served,
        looking(served, token=eye) as stream,
    ):
        await stream.until(lambda seen: seen.hosts)
        house.tokens[:] = [house.tokens[0].replace(*change)] if change[0] else []
        house.write()
        served.reload.set()
        await stream.end()


async def test_a_reader_that_is_behind_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STEP_S", 0.001)
    newest = [loaded(fabric())]
    ending = threading.Event()
    maps = live.LiveMaps(lambda: newest[0], ending)
    quick, slow = maps.frames("", "", -1), maps.frames("", "", -1)
    seen, behind = MapView(), MapView()
    seen.take((await anext(quick))[4:])
    behind.take((await anext(slow))[4:])
    for count in range(30):
        name = f"job{count}"
        newest[0] = schedule(run(newest[0], submit(name, hosts=1)))
        while seen.version < newest[0].version:
            frame = await anext(quick)
            assert len(frame) == 4 + int.from_bytes(frame[:4], "little")
            seen.take(frame[4:])
        newest[0] = run(newest[0], cancel(name))
    assert set(seen.kinds[1:]) == {"delta"}
    await asyncio.sleep(0.05)
    behind.take((await anext(slow))[4:])
    assert behind.kinds == ["snapshot", "snapshot"]
    assert behind.version == newest[0].version
    ending.set()
    await slow.aclose()
    await quick.aclose()


async def test_the_end_of_the_server_ends_the_stream(tmp_path: Path) -> None:
    async with serving(tmp_path, console=LOCAL) as served, looking(served) as stream:
        await stream.until(lambda seen: seen.hosts)
        served.stop.set()
        await stream.end()
