"""The console's port: the service as JSON over HTTP, by the rules that hold for gRPC."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scheduler.access.listener import CannotListen
from scheduler.access.tls import TlsFiles
from scheduler.console.thread import ConsoleEndpoint
from scheduler.v1 import service_pb2
from tests.cases import case
from tests.secured import House
from tests.serving import RUNNING, Served, create, path, serving

SERVICE = "/scheduler.v1.SchedulerService/"
LOCAL = ConsoleEndpoint("127.0.0.1", 0)
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


@pytest.mark.parametrize("in_batches", [False, True])
async def test_a_stream_comes_in_envelopes_and_ends_when_the_server_stops(
    in_batches: bool, tmp_path: Path
) -> None:
    async with serving(tmp_path, console=LOCAL) as served:
        await served.start("a")
        body = envelope({"afterVersion": 0, "inBatches": in_batches})
        kind = "application/connect+json"
        watching = asyncio.create_task(call(served, "WatchJobs", body, content_type=kind))
        await asyncio.sleep(0.3)
        served.stop.set()
        reply = await watching
    *messages, (flags, end) = envelopes(reply.body)
    told = [each for _, message in messages for each in message.get("changes", [message])]
    changes = [each["change"] for each in told]
    assert changes[:2] == ["JOB_CHANGE_SUBMITTED", "JOB_CHANGE_STARTED"]
    assert (flags, end["error"]["code"]) == (2, "unavailable")
    assert end["metadata"]["muster-version"]


async def test_a_stream_that_is_closed_by_its_reader_ends_the_call(tmp_path: Path) -> None:
    limits = {"streams_per_caller": 1}
    house = House(tmp_path)
    token = house.token("eye", "viewer", "*")
    access = house.access(limits=limits)
    async with serving(tmp_path, console=LOCAL, access=access, channel=house.channel) as served:
        parts = urlsplit(served.ready.console)
        body = envelope({})
        head = (
            f"POST {SERVICE}WatchJobs HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/connect+json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        for _ in range(3):  # the second would be refused if the first were still open
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(head.encode() + body)
            assert b" 200 " in await reader.readline()
            await asyncio.sleep(0.1)
            writer.close()
            await asyncio.sleep(0.2)
        reply = await call(
            served,
            "WatchJobs",
            envelope({"afterVersion": 10**9}),
            content_type="application/connect+json",
            authorization=f"Bearer {token}",
        )
        assert next(envelopes(reply.body))[1]["error"]["code"] == "invalid_argument"


async def test_roles_and_tenants_hold_as_over_grpc(tmp_path: Path) -> None:
    house = House(tmp_path)
    viewer, submitter = house.token("eye", "viewer", "*"), house.token("ada", "submitter", "*")
    async with serving(
        tmp_path, console=LOCAL, access=house.access(), channel=house.channel
    ) as served:
        nobody = await call(served, "GetStatus")
        assert (nobody.status, nobody.json["code"]) == (401, "unauthenticated")
        assert nobody.headers["www-authenticate"].startswith("Bearer")
        bearer = {"authorization": f"Bearer {viewer}"}
        assert (await call(served, "GetStatus", **bearer)).status == 200
        assert (await call(served, "CreateJob", JOB, **bearer)).status == 403
        made = await call(served, "CreateJob", JOB, authorization=f"Bearer {submitter}")
        assert made.status == 200
        assert (await call(served, "GetStatus", authorization="Bearer nonsense")).status == 401


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
    files = TlsFiles(str(house.certificate), str(house.key))
    for endpoint, lacking in (
        (ConsoleEndpoint("0.0.0.0", 0), "no encryption"),
        (ConsoleEndpoint("0.0.0.0", 0, files), "auth file"),
    ):
        access = {"access": house.access()} if lacking == "no encryption" else {}
        with pytest.raises(CannotListen, match=lacking):
            async with serving(tmp_path, console=endpoint, **access):
                pass
    token = house.token("eye", "viewer", "*")
    endpoint = ConsoleEndpoint("0.0.0.0", 0, files)
    async with serving(
        tmp_path, console=endpoint, access=house.access(), channel=house.channel
    ) as served:
        assert served.ready.console.startswith("https://0.0.0.0:")
        reply = await call(served, "GetStatus", authorization=f"Bearer {token}")
        assert reply.status == 200


async def test_a_port_that_is_taken_is_refused_unless_another_will_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match="for the console"):
            async with serving(tmp_path, console=ConsoleEndpoint("127.0.0.1", port)):
                pass
        left_open = ConsoleEndpoint("127.0.0.1", port, may_move=True)
        async with serving(tmp_path, console=left_open) as served:
            assert urlsplit(served.ready.console).port not in (None, port)
            assert (await call(served, "GetStatus")).status == 200
