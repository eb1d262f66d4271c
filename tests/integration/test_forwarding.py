"""Changes put to a server that does not lead, which passes them on to the one that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access.certificates import issue, make_ca
from scheduler.access.forwarding import Forwarding
from scheduler.access.listener import Access
from scheduler.access.tls import TlsFiles
from scheduler.client.failover import FailoverChannel
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.integration.test_console import JOB, LOCAL, call
from tests.integration.test_replicas import LEASE_S, replicas, until_led
from tests.ports import free_port
from tests.serving import Served, create, path, refused, serving

FORWARD = ("muster-forward", "1")
FROM_ELSEWHERE = ("muster-peer", "ipv4:192.0.2.1:1")
TAKEN_FOR_BOB = ("muster-caller-bin", b'[["bob"], "bob"]')


class Site:
    """Certificates of `muster certs` for servers, a submitter and an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder, now = folder / "tls", datetime.now(UTC)
        self.folder.mkdir()
        make_ca(self.folder, now)
        issue(self.folder, "server", ["localhost", "127.0.0.1"], 365, now, replace=False)
        for name in ("ada", "bob", "eve"):
            issue(self.folder, name, [name], 30, now, replace=False)
        issue(self.folder, "node", [], 30, now, replace=False, is_host=True)
        roles = {"ada": 'submitter, tenant: "*"', "bob": "operator", "eve": 'viewer, tenant: "*"'}
        entries = [f"  - {{san: {name}, role: {role}}}\n" for name, role in roles.items()]
        (folder / "auth.yaml").write_text("certificates:\n" + "".join(entries))
        files = (self.path("server.pem"), self.path("server.key"), self.path("ca.pem"))
        self.access = Access(TlsFiles(*files), str(folder / "auth.yaml"))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def channel(self, address: str, name: str) -> grpc.aio.Channel:
        read = (self.folder / each for each in ("ca.pem", f"{name}.key", f"{name}.pem"))
        ca, key, certificate = (path.read_bytes() for path in read)
        shown = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.aio.secure_channel(address, shown)


@asynccontextmanager
async def pair(folder: Path, database: str, site: Site) -> AsyncIterator[list[Served]]:
    """A leader and a follower that ask for certificates."""
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(2):
            one = serving(
                folder,
                store=database,
                lease_s=LEASE_S,
                access=site.access,
                channel=lambda address: site.channel(address, "bob"),
            )
            servers.append(await stack.enter_async_context(one))
            await until_led(servers[0])
        yield servers


async def test_a_follower_passes_a_change_on_to_the_leader(tmp_path: Path, database: str) -> None:
    """Also for a client that is cut off from the leader, without being asked."""

    def submit(leader: str, follower: str) -> Any:
        nobody = f"127.0.0.1:{free_port()}"

        def connect(address: str) -> grpc.Channel:
            return grpc.insecure_channel(nobody if address == leader else address)

        with FailoverChannel([leader, follower], connect) as channel:
            stub = service_pb2_grpc.SchedulerServiceStub(channel)
            return stub.CreateJob(create("cut-off"), timeout=60)

    async with replicas(tmp_path, database, 2) as (leader, follower):
        call = follower.stub.CreateJob(create("a", request_id="r"), metadata=(FORWARD,))
        made = await call
        assert dict(await call.trailing_metadata())["muster-role"] == "leader"
        again = await leader.stub.CreateJob(create("a", request_id="r"))
        assert made.uid == again.uid  # the request is the same one there
        missing = service_pb2.CancelJobRequest(name="b")
        error = await refused(follower.stub.CancelJob(missing, metadata=(FORWARD,)))
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        addresses = leader.ready.address, follower.ready.address
        assert (await asyncio.to_thread(submit, *addresses)).spec.name == "cut-off"


async def test_a_follower_passes_a_change_of_its_console_on(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, store=database, lease_s=LEASE_S) as leader:
        await until_led(leader)
        one = serving(tmp_path, store=database, lease_s=LEASE_S, console=LOCAL)
        async with one as follower:
            asked, made = {**JOB, "requestId": "r"}, None
            async with asyncio.timeout(60):  # a busy machine may change leaders meanwhile
                while made is None or made.status != 200:
                    made = await call(follower, "CreateJob", asked, muster_forward="1")
            assert made.json["name"] == path("a")


async def test_the_leader_knows_the_caller_by_the_certificate_that_the_follower_verified(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    async with pair(tmp_path, database, site) as (_, follower):
        async with site.channel(follower.ready.address, "ada") as channel:
            stub = service_pb2_grpc.SchedulerServiceStub(channel)
            made = await stub.CreateJob(create("a"), metadata=(FORWARD, TAKEN_FOR_BOB))
            assert made.user == "ada"
        async with site.channel(follower.ready.address, "eve") as channel:
            stub = service_pb2_grpc.SchedulerServiceStub(channel)
            asked = (FORWARD, TAKEN_FOR_BOB, FROM_ELSEWHERE)
            error = await refused(stub.CreateJob(create("b"), metadata=asked))
            assert error.code is grpc.StatusCode.PERMISSION_DENIED
    (peer,) = (vars(r)["peer"] for r in caplog.records if r.name == "muster.access")
    client, through, _ = peer.partition(" through ")
    assert (through, "192.0.2.1" in peer, client[:3]) == (" through ", False, "ipv")


async def test_nobody_but_a_server_vouches_for_others_and_it_is_no_caller(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    cases: list[tuple[str, list[tuple[str, bytes]]]] = [
        ("ada", [TAKEN_FOR_BOB]),
        ("node", [TAKEN_FOR_BOB]),
        ("server", []),
        ("server", [("muster-caller-bin", b"[")]),
        ("server", [("muster-caller-bin", b'[["urn:muster:server", "bob"], "bob"]')]),
    ]
    async with pair(tmp_path, database, site) as (leader, _):
        for shown, more in cases:
            caplog.clear()
            async with site.channel(leader.ready.address, shown) as channel:
                stub = service_pb2_grpc.SchedulerServiceStub(channel)
                error = await refused(stub.CreateJob(create("a"), metadata=[*more, FROM_ELSEWHERE]))
                assert error.code is grpc.StatusCode.UNAUTHENTICATED, (shown, more)
            assert ("192.0.2.1" in caplog.text) is (shown == "server")


async def test_a_change_does_not_wait_for_calls_to_an_earlier_leader() -> None:
    forwarding = Forwarding(None, lambda: "")
    earlier = service_pb2_grpc.SchedulerServiceStub(forwarding._to(f"127.0.0.1:{free_port()}"))
    call = earlier.CreateJob(create("a"), wait_for_ready=True, timeout=60)
    waiting = asyncio.ensure_future(call.wait_for_connection())
    await asyncio.sleep(0)
    forwarding._to("127.0.0.1:1")
    await asyncio.sleep(0.1)
    assert not call.done()  # it has its time, and nobody waits for that
    await forwarding.close()
    call.cancel()
    await asyncio.wait({waiting})


async def test_a_leader_that_the_follower_does_not_reach_either_is_said(
    tmp_path: Path, database: str
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    one = serving(tmp_path, store=database, lease_s=LEASE_S, advertise=nobody)
    async with one as leader:
        await until_led(leader)
        async with serving(tmp_path, store=database, lease_s=LEASE_S) as follower:
            error = await refused(follower.stub.CreateJob(create("a"), metadata=(FORWARD,)))
            assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_FAILED")
            assert f"{nobody} leads and did not answer this server" in error.message
