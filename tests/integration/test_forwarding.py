"""Changes put to a server that does not lead, and clients of several: whoever can answer does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from scheduler.access.certificates import issue, make_ca
from scheduler.access.forwarding import Forwarding
from scheduler.access.listener import Access
from scheduler.access.tls import TlsFiles
from scheduler.client import Client, ServiceError
from scheduler.client.failover import FailoverChannel, addresses
from scheduler.service.errors import not_leader
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import spec
from tests.integration.test_console import JOB, LOCAL, call
from tests.integration.test_replicas import LEASE_S, replicas, stopped, until_led
from tests.ports import free_port
from tests.serving import CANCELLED, Served, create, path, refused, serving
from tests.waiting import until

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
        files = (str(self.folder / name) for name in ("server.pem", "server.key", "ca.pem"))
        self.settings: dict[str, Any] = {
            "access": Access(TlsFiles(*files), str(folder / "auth.yaml")),
            "channel": self.channel,
        }

    def channel(self, address: str, name: str = "bob") -> grpc.aio.Channel:
        read = (self.folder / each for each in ("ca.pem", f"{name}.key", f"{name}.pem"))
        shown = grpc.ssl_channel_credentials(*(path.read_bytes() for path in read))
        return grpc.aio.secure_channel(address, shown)

    @asynccontextmanager
    async def calling(self, served: Served, name: str) -> AsyncIterator[Any]:
        async with self.channel(served.ready.address, name) as channel:
            yield service_pb2_grpc.SchedulerServiceStub(channel)


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
    async with replicas(tmp_path, database, 2, console=LOCAL) as (_, follower):
        asked = {**JOB, "requestId": "r"}
        made = await until(  # a busy machine may change leaders meanwhile
            lambda: call(follower, "CreateJob", asked, muster_forward="1"),
            lambda made: made.status == 200,
        )
        assert made.json["name"] == path("a")


async def test_the_leader_knows_the_caller_by_the_certificate_that_the_follower_verified(
    tmp_path: Path, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    async with replicas(tmp_path, database, 2, **site.settings) as (_, follower):
        async with site.calling(follower, "ada") as stub:
            made = await stub.CreateJob(create("a"), metadata=(FORWARD, TAKEN_FOR_BOB))
            assert made.user == "ada"
        async with site.calling(follower, "eve") as stub:
            asked = (FORWARD, TAKEN_FOR_BOB, FROM_ELSEWHERE)
            error = await refused(stub.CreateJob(create("b"), metadata=asked))
            assert error.code is grpc.StatusCode.PERMISSION_DENIED
    (peer,) = (vars(r)["peer"] for r in caplog.records if r.name == "muster.access")
    client, through, _ = peer.partition(" through ")
    assert (through, "192.0.2.1" in peer, client[:3]) == (" through ", False, "ipv")


async def test_nobody_but_a_server_vouches_for_others_and_it_is_no_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    async with serving(tmp_path, **site.settings) as served:
        for shown, more in (
            ("ada", [TAKEN_FOR_BOB]),
            ("node", [TAKEN_FOR_BOB]),
            ("server", []),
            ("server", [("muster-caller-bin", b"[")]),
            ("server", [("muster-caller-bin", b'[["urn:muster:server", "bob"], "bob"]')]),
        ):
            caplog.clear()
            async with site.calling(served, shown) as stub:
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


# --- a client of several servers -----------------------------------------------------


def listed(servers: list[Served]) -> str:
    return ",".join(server.ready.address for server in servers)


def test_a_list_of_addresses_is_read_in_its_order() -> None:
    assert addresses("b:1, a:2,") == ["b:1", "a:2"]


async def test_calls_and_watches_go_on_elsewhere_and_nothing_seen_is_taken_back(
    tmp_path: Path, database: str
) -> None:
    def write_and_read(writing: Client, reading: Client) -> None:
        for name in (f"job-{n}" for n in range(20)):
            writing.create_job(spec(name))
            seen = writing._to.channel._servers._version  # type: ignore[attr-defined]
            reading._to.channel._servers.saw(seen)  # type: ignore[attr-defined]
            assert reading.get_job(name).spec.name == name
            assert writing.cancel_job(name).state == CANCELLED

    async with replicas(tmp_path, database, 3) as servers:
        with Client(listed(servers[::-1])) as client, Client(listed(servers)) as watching:
            await asyncio.to_thread(write_and_read, client, watching)
            status = await asyncio.to_thread(client.get_status)
            changes = watching.watch_jobs(status.version)

            async def take(count: int) -> list[tuple[int, str]]:
                found = await asyncio.to_thread(lambda: list(islice(changes, count)))
                return [(change.version, change.job.spec.name) for change in found]

            await asyncio.to_thread(client.create_job, spec("a"))
            seen = await take(2)
            await stopped(servers[0])
            await asyncio.to_thread(client.create_job, spec("b"))
            seen += await take(2)
            changes.close()
            jobs = await asyncio.to_thread(client.list_jobs, filter="state = RUNNING")
    assert [name for _, name in seen] == ["a", "a", "b", "b"]
    versions = [version for version, _ in seen]
    assert versions == sorted(set(versions))
    assert [job.spec.name for job in jobs] == ["a", "b"]


async def test_dead_addresses_are_passed_over(served: Served) -> None:
    dead = f"127.0.0.1:{free_port()}"
    with Client(f"{dead},{served.ready.address}") as client:
        assert await asyncio.to_thread(client.list_jobs) == []


def test_nobody_at_all_is_said_with_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.client.failover.SILENCE_S", 0.3)
    dead = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with Client(dead) as client, pytest.raises(ServiceError, match=f"no server answers at {dead}"):
        client.list_jobs()


class _Follower(grpc.GenericRpcHandler):
    """A server that names a leader, whatever it is asked."""

    def __init__(self, leader: str) -> None:
        self._leader = leader

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
            context.abort_with_status(rpc_status.to_status(not_leader(self._leader).status()))
            return b""

        return grpc.unary_unary_rpc_method_handler(refuse)


def test_a_client_that_is_cut_off_from_the_leader_says_so_before_it_gives_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.client.failover.TELL_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # connections open, and nothing comes
        leader = f"127.0.0.1:{mute.getsockname()[1]}"
        follower = grpc.server(ThreadPoolExecutor(2), handlers=[_Follower(leader)])
        listed = f"127.0.0.1:{follower.add_insecure_port('127.0.0.1:0')},{leader}"
        follower.start()
        with Client(listed, deadline_s=3) as client, pytest.raises(ServiceError) as caught:
            client.list_jobs()
        follower.stop(None)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{leader} leads, as others say, and does not answer")
    assert f"another server leads: {leader}; of {listed} it was asked" in caught.value.message
    assert f"no server answers at {leader}" in caught.value.message


def test_a_client_says_that_nobody_leads_before_it_gives_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.client.failover.TELL_S", 0.1)
    follower = grpc.server(ThreadPoolExecutor(2), handlers=[_Follower("")])
    port = follower.add_insecure_port("127.0.0.1:0")
    follower.start()
    client = Client(f"127.0.0.1:{port},localhost:{port}", deadline_s=1)
    with client, pytest.raises(ServiceError, match="no server leads just now"):
        client.list_jobs()
    follower.stop(None)
    (record,) = caplog.records
    assert "says: no server leads just now; trying again" in record.getMessage()
