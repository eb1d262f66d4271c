"""The console's port: the service as JSON over HTTP, by the rules that hold for gRPC; the stream of
the map, logs that are looked at, and files: vendored ones as published, nothing from elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler.access.listener import CannotListen
from scheduler.access.tls import TlsFiles
from scheduler.console import live
from scheduler.console.app import STATIC, content_policy
from scheduler.console.cluster_map import NOBODY, SOMEBODY
from scheduler.console.logs import read_log
from scheduler.console.thread import HttpEndpoint
from scheduler.console.timeline import timeline
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import service_pb2
from scripts import console_types
from tests.build import cancel, fabric, loaded, run, schedule, submit
from tests.cases import case
from tests.commands import Muster
from tests.secured import House
from tests.serving import RUNNING, Served, create, path, serving, until_running
from tests.timelines import MapView
from tests.unit.conftest import muster as muster
from tests.waiting import until

SERVICE = "/scheduler.v1.SchedulerService/"
LOCAL = HttpEndpoint("127.0.0.1", 0)
JOB = {"spec": {"name": "a", "parallelism": {"dp": 16}}}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def call(
    served: Served, method: str, request: Any = None, *, verb: str = "POST", **headers: str
) -> Reply:
    """`request`: JSON, or bytes as they are; keyword arguments are headers, with _ for -."""
    body = request if isinstance(request, bytes) else json.dumps(request or {}).encode()
    sent = {"content-type": "application/json"}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    return await asyncio.to_thread(_call, served.ready.console, verb, method, body, sent)


def _call(address: str, verb: str, method: str, body: bytes, headers: dict[str, str]) -> Reply:
    parts = urlsplit(address)
    context = ssl._create_unverified_context() if parts.scheme == "https" else None
    kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
    more: dict[str, Any] = {"context": context} if context else {}
    connection = kind(str(parts.hostname), parts.port, timeout=60, **more)
    try:
        target = method if method.startswith("/") else SERVICE + method
        connection.request(verb, target, body, headers)
        answer = connection.getresponse()
        found = {key.lower(): value for key, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())
    finally:
        connection.close()


def envelopes(body: bytes) -> Iterator[tuple[int, Any]]:
    while body:
        flags, size = struct.unpack(">BI", body[:5])
        yield flags, json.loads(body[5 : 5 + size])
        body = body[5 + size :]


def envelope(request: Any) -> bytes:
    content = json.dumps(request).encode()
    return struct.pack(">BI", 0, len(content)) + content


async def test_a_call_in_json_or_binary_is_the_call_over_grpc(tmp_path: Path) -> None:
    binary = {"content_type": "application/proto"}
    async with serving(tmp_path, console=LOCAL) as served:
        made = await call(served, "CreateJob", JOB)
        assert (made.status, made.json["name"]) == (200, path("a"))
        await served.until("a", RUNNING)
        got = await call(served, "GetJob", {"name": "a"})
        assert got.json["uid"] == (await served.get("a")).uid
        assert int(got.headers["trailer-muster-version"]) >= 2
        listed = await call(served, "ListHosts", {}, accept_encoding="gzip")
        assert listed.headers["content-encoding"] == "gzip"
        assert len(json.loads(gzip.decompress(listed.body))["hosts"]) == 8
        made = await call(served, "CreateJob", create("b").SerializeToString(), **binary)
        assert made.headers["content-type"] == "application/proto"
        request = gzip.compress(service_pb2.GetJobRequest(name="b").SerializeToString())
        got = await call(served, "GetJob", request, content_encoding="gzip", **binary)
        assert got.status == 200


WRONG: list[tuple[str, Any, dict[str, str], int, str]] = [
    ("GetJob", {"name": "nobody"}, {}, 404, "not_found"),
    ("GetJob", {}, {}, 400, "invalid_argument"),
    ("GetJob", b"{", {}, 400, "invalid_argument"),
    ("GetJob", {"nmae": "a"}, {}, 400, "invalid_argument"),
    ("GetJob", b"[" * 9_000, {}, 400, "invalid_argument"),
    ("GetJob", b"\xff\xfe", {}, 400, "invalid_argument"),
    ("GetJob", b"\xff", {"content_type": "application/proto"}, 400, "invalid_argument"),
    ("GetStatus", b"x", {"content_encoding": "gzip"}, 400, "invalid_argument"),
    ("GetStatus", b"x", {"content_encoding": "br"}, 501, "unimplemented"),
    ("GetStatus", {}, {"connect_timeout_ms": "soon"}, 400, "invalid_argument"),
    ("GetStatus", b" " * (5 << 20), {}, 429, "resource_exhausted"),
    ("NoSuchMethod", {}, {}, 501, "unimplemented"),
    ("OpenChannel", {"name": "a"}, {}, 501, "unimplemented"),  # it reads a stream
    ("WatchJobs", b"", {"content_type": "application/connect+json"}, 400, "invalid_argument"),
]


async def test_what_is_wrong_is_said_in_one_error_with_the_details_that_grpc_has(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, console=LOCAL) as served:
        for method, request, headers, status, code in WRONG:
            with case(method=method, request=str(request)[:40], headers=headers):
                reply = await call(served, method, request, **headers)
                assert (reply.status, reply.json["code"]) == (status, code)
                assert reply.json["message"]
        info = (await call(served, "GetJob", {"name": "nobody"})).json["details"][0]
        assert info["type"] == "google.rpc.ErrorInfo"
        assert info["debug"]["reason"] == "NOT_FOUND"
        assert (await call(served, "GetJob", {}, verb="GET")).status == 405
        assert (await call(served, "GetJob", {}, content_type="text/plain")).status == 415


async def test_a_stream_comes_in_envelopes_and_ends_when_the_server_stops(tmp_path: Path) -> None:
    kind = "application/connect+json"
    async with serving(tmp_path, console=LOCAL) as served, asyncio.TaskGroup() as group:
        await served.start("a")
        bodies = (envelope({"afterVersion": 0, "inBatches": each}) for each in (False, True))
        calls = (call(served, "WatchJobs", body, content_type=kind) for body in bodies)
        watching = [group.create_task(each) for each in calls]
        await asyncio.sleep(0.3)
        served.stop.set()
    for task in watching:
        *messages, (flags, end) = envelopes(task.result().body)
        told = [each for _, message in messages for each in message.get("changes", [message])]
        changes = [each["change"] for each in told]
        assert changes[:2] == ["JOB_CHANGE_SUBMITTED", "JOB_CHANGE_STARTED"]
        assert (flags, end["error"]["code"]) == (2, "unavailable")
        assert end["metadata"]["muster-version"]


async def test_a_stream_that_is_closed_by_its_reader_ends_the_call(tmp_path: Path) -> None:
    """A second one of the caller is refused as long as the first is open."""
    house = House(tmp_path)
    token = house.token("eye", "viewer", "*")
    access = house.access(limits={"streams_per_caller": 1})
    kind = {"content_type": "application/connect+json", "authorization": f"Bearer {token}"}
    async with serving(tmp_path, console=LOCAL, access=access, channel=house.channel) as served:
        parts = urlsplit(served.ready.console)
        body = envelope({})
        head = (
            f"POST {SERVICE}WatchJobs HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/connect+json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(head.encode() + body)
        assert b" 200 " in await reader.readline()

        async def fault_of_another() -> str:
            reply = await call(served, "WatchJobs", envelope({"afterVersion": 10**9}), **kind)
            return str(next(envelopes(reply.body))[1]["error"]["code"])

        assert await fault_of_another() == "resource_exhausted"
        writer.close()
        await until(fault_of_another, lambda code: code == "invalid_argument")


async def test_roles_and_tenants_hold_as_over_grpc(tmp_path: Path) -> None:
    house = House(tmp_path)
    viewer, submitter = house.token("eye", "viewer", "*"), house.token("ada", "submitter", "*")
    access, channel = house.access(), house.channel
    async with serving(tmp_path, console=LOCAL, access=access, channel=channel) as served:
        nobody = await call(served, "GetStatus")
        assert (nobody.status, nobody.json["code"]) == (401, "unauthenticated")
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        for method, token, status in (
            ("GetStatus", "nonsense", 401),
            ("GetStatus", viewer, 200),
            ("CreateJob", viewer, 403),
            ("CreateJob", submitter, 200),
        ):
            request = JOB if method == "CreateJob" else {}
            reply = await call(served, method, request, authorization=f"Bearer {token}")
            assert reply.status == status, (method, token)


async def test_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, console=LOCAL) as served:
        host = urlsplit(served.ready.console).netloc
        assert (await call(served, "GetStatus", origin=f"http://{host}")).status == 200
        assert (await call(served, "GetStatus", origin="http://evil.example")).status == 403
        assert (await call(served, "GetStatus", host="evil.example")).status == 403
        assert (await call(served, "GetStatus", sec_fetch_site="cross-site")).status == 403
        page = await call(served, "/", verb="GET")
        assert page.status == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert (await call(served, "/../app.py", verb="GET")).status == 404


async def test_beyond_loopback_it_wants_tls_and_tokens(tmp_path: Path) -> None:
    house = House(tmp_path)
    token = house.token("eye", "viewer", "*")
    files = TlsFiles(str(house.certificate), str(house.key))
    plain, secured = HttpEndpoint("0.0.0.0", 0), HttpEndpoint("0.0.0.0", 0, files)
    asks: dict[str, Any] = {"access": house.access(), "channel": house.channel}
    for endpoint, access, lacking in ((plain, asks, "no encryption"), (secured, {}, "auth file")):
        with pytest.raises(CannotListen, match=lacking):
            async with serving(tmp_path, console=endpoint, **access):
                pass
    async with serving(tmp_path, console=secured, **asks) as served:
        assert served.ready.console.startswith("https://0.0.0.0:")
        reply = await call(served, "GetStatus", authorization=f"Bearer {token}")
        assert reply.status == 200


async def test_a_port_that_is_taken_is_refused_unless_another_will_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match="for the console"):
            async with serving(tmp_path, console=HttpEndpoint("127.0.0.1", port)):
                pass
        left_open = HttpEndpoint("127.0.0.1", port, may_move=True)
        async with serving(tmp_path, console=left_open) as served:
            assert urlsplit(served.ready.console).port not in (None, port)
            assert (await call(served, "GetStatus")).status == 200


# --- the stream of the map -----------------------------------------------------------


TENANTS = Tenants((Tenant("vision"), Tenant("speech")), "vision")


class Stream:
    """The frames of a stream, taken into a map."""

    def __init__(self, reader: asyncio.StreamReader, status: int) -> None:
        self._reader = reader
        self.status = status
        self.map = MapView()

    async def step(self) -> bool:
        """Take what comes next; False at the end."""
        size = int((await self._reader.readline()) or b"0", 16)
        chunk = (await self._reader.readexactly(size + 2))[:-2] if size else b""
        while chunk:
            length = int.from_bytes(chunk[:4], "little")
            if length:
                self.map.take(chunk[4 : 4 + length])
            chunk = chunk[4 + length :]
        return size > 0

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
async def looking(served: Served, token: str = "") -> AsyncIterator[Stream]:
    parts = urlsplit(served.ready.console)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"GET /live HTTP/1.1\r\nHost: {parts.netloc}\r\n{bearer}\r\n".encode())
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
        await served.report(held[0], "ecc-uncorrectable")
        failed = stream.map.hosts.index(held[0])
        await stream.until(lambda seen: seen.state(failed) == "failed")
        await stream.until(lambda seen: seen.slots[failed] == NOBODY)
        await served.cancel("a")
        await stream.until(lambda seen: not seen.jobs)
        assert stream.map.slots.tolist() == [NOBODY] * 8
        assert stream.map.kinds[0] == "snapshot"
        assert set(stream.map.kinds[1:]) == {"delta"}
        served.stop.set()
        await stream.end()


async def test_a_tenant_sees_of_others_that_hosts_are_held(tmp_path: Path) -> None:
    house = House(tmp_path)
    eye, operator = house.token("eye", "viewer", "vision"), house.token("op", "admin")
    settings = {"access": house.access(), "channel": house.channel, "tenants": TENANTS}
    async with serving(tmp_path, console=LOCAL, **settings) as served:
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
            hidden = [at for at, slot in enumerate(stream.map.slots) if slot == SOMEBODY]
            assert [stream.map.blocks[at] for at in hidden] == [-1, -1]
            for word in ("secret", "speech"):
                assert word not in stream.map.text


@pytest.mark.parametrize("change", [("", ""), ('"vision"', '"speech"')], ids=["gone", "moved"])
async def test_a_token_that_is_taken_back_or_of_another_tenant_ends_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    monkeypatch.setattr("scheduler.console.session.CHECK_S", 0.1)
    house = House(tmp_path)
    eye = house.token("eye", "viewer", "vision")
    settings = {"access": house.access(), "channel": house.channel, "tenants": TENANTS}
    async with (
        serving(tmp_path, console=LOCAL, **settings) as served,
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
    quick, slow = maps.frames(""), maps.frames("")
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


def head_of(content: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", content)
    head: dict[str, Any] = json.loads(content[4 : 4 + length])
    return head


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
        for token, sees in ((admin, True), (eye, False)):
            bearer = {"authorization": f"Bearer {token}", "accept_encoding": "gzip"}
            reply = await call(served, "/timeline", verb="GET", **bearer)
            content = gzip.decompress(reply.body)
            assert (b"hush" in content, b"mine" in content) == (sees, True)
            assert any(mark["kind"] == "host_failed" for mark in head_of(content)["marks"])
        assert (await call(served, "/timeline", verb="GET")).status == 401


async def test_a_store_is_a_log(tmp_path: Path, served: Served) -> None:
    await served.start("a", 2)
    assert b"tenants/default/jobs/a" in timeline(*read_log(str(tmp_path / "muster.db")))


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


# --- what is served as files ---------------------------------------------------------


# Packages with their licences, and the digest of each of their files as published: dist/preact.mjs,
# hooks/dist/hooks.mjs and dist/htm.module.js, and icons.
VENDORED = {"preact 11.2.0": "MIT", "htm 3.1.1": "Apache-2.0", "lucide-static 1.62.0": "ISC"}
SHA256 = {
    "preact.js": "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55",
    "hooks.js": "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4",
    "htm.js": "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
    "circle-check.svg": "e2ca9809114ccead18bf1ca51d1dd43f78f953363588c1f35fdbdb5a80726ef9",
    "circle-dashed.svg": "f461e11fe599cddb206c3c41c7574e413efa6412b3ab48bb345d44432b79f215",
    "circle-pause.svg": "8dfaf9a102e25214db2911e57128fb8075e9931b79c6af072b98334ddfbb14af",
    "circle-x.svg": "6381cc14a5085c777fa1326f63987586cf69295472691686ed00a6230c1e5794",
    "triangle-alert.svg": "8fae33ea4b3f26693773ed2545080ffed5bd42aad9b59084a2ea753827c0763c",
    "wrench.svg": "9d40848c6c0e2778d62815343cda3fece0628bbec8fad7ba47b4322319bdaca0",
}
LICENCES = {
    "LICENSE.preact": ("The MIT License", "Jason Miller"),
    "LICENSE.lucide": ("ISC License", "Cole Bemis"),
    "LICENSE.htm": ("Apache License", "Version 2.0"),
}
OWN = sorted(path for path in STATIC.glob("*") if path.is_file())


def test_vendored_files_are_as_published() -> None:
    vendor = STATIC / "vendor"
    assert {path.name for path in vendor.iterdir()} == {*SHA256, *LICENCES}
    for name, digest in SHA256.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    for name, words in LICENCES.items():
        text = (vendor / name).read_text(encoding="utf-8")
        assert all(word in text for word in words), name


def test_the_documentation_names_what_is_vendored() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "console.md").read_text(encoding="utf-8")
    for package, licence in VENDORED.items():
        assert (package in page, licence in page) == (True, True), package


def test_own_files_name_no_other_server_and_import_files_that_are_served() -> None:
    """The one address is the name of the language of the icon."""
    for file in OWN:
        text = file.read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, file
        for name in re.findall(r'from "([^"]+)"', text):
            assert (file.parent / name).is_file(), f"{file.name} imports {name}"


def test_the_policy_allows_the_import_map_and_nothing_inline() -> None:
    policy = dict(part.strip().split(" ", 1) for part in content_policy().split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/]{43}='", policy["script-src"])
    assert policy["style-src"] == policy["connect-src"] == policy["img-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)


def test_types_of_javascript_are_checked(tmp_path: Path) -> None:
    tsc = console_types.compiler(console_types.ROOT / "build" / "tsc")
    if tsc is None:
        pytest.skip("needs npm, for typescript (Debian: npm)")
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {number} a */\nexport const f = (a) => a;\nf('1');\n")
    (fault,) = console_types.faults(tsc, [wrong])
    assert "wrong.js(3,3)" in fault
