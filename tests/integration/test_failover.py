"""A client of several servers: whoever can answer does, and nothing seen is taken back."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import grpc
import pytest
from grpc_status import rpc_status

from scheduler.client import Client, ServiceError
from scheduler.client.failover import addresses
from scheduler.service.errors import not_leader
from tests.build import spec
from tests.integration.test_replicas import replicas, stopped
from tests.ports import free_port
from tests.serving import CANCELLED, Served


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
        with Client(listed, deadline_s=1) as client, pytest.raises(ServiceError) as caught:
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
