"""Hosts join the fabric by themselves: those whose agents prove their names and say where."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access.tokens import join_token
from scheduler.agent.place import parse_place
from scheduler.files.errors import InputError
from scheduler.launch.service import AgentSettings
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.server.config import AgentKeys
from scheduler.v1 import agent_pb2, agent_pb2_grpc, service_pb2
from tests.serving import RUNNING, Served, create, serving
from tests.waiting import until

SECRET = "s" * 40


@asynccontextmanager
async def with_agents(
    folder: Path, *, may_join: bool = True, **options: Any
) -> AsyncIterator[tuple[Served, Any]]:
    """A server and a stub of its port for agents."""
    gateway = GatewayOptions("127.0.0.1:0", **({"join_secrets": (SECRET,)} | options))
    settings = AgentSettings(gateway, 5.0, may_join=may_join)
    async with (
        serving(folder, agents=settings) as served,
        grpc.aio.insecure_channel(served.ready.agents) as channel,
    ):
        yield served, agent_pb2_grpc.AgentServiceStub(channel)


async def hello(stub: Any, host: str, token: str | None = None, **place: str) -> Any:
    """The session of an agent that says where it is."""
    secret = join_token(SECRET, host) if token is None else token
    call = stub.Session(metadata=[("authorization", f"Bearer {secret}")] if secret else [])
    await call.write(agent_pb2.SessionRequest(hello=agent_pb2.Hello(host=host, place=place)))
    assert (await call.read()).HasField("lease")
    return call


async def ended(call: Any) -> str:
    """Why the server ends a session."""
    async with asyncio.timeout(60):
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return str(await call.details())


async def hosts(served: Served) -> dict[str, list[str]]:
    """Every host with its domains."""
    listed = await served.stub.ListHosts(service_pb2.ListHostsRequest())
    return {host.name: list(host.domains) for host in listed.hosts}


async def until_there(served: Served, *names: str) -> dict[str, list[str]]:
    return await until(lambda: hosts(served), lambda known: {*names} <= {*known})


async def test_hosts_join_where_they_say_that_they_are(tmp_path: Path) -> None:
    async with with_agents(tmp_path) as (served, stub):
        await served.start("a", 8)
        await served.stub.CreateJob(create("b", 3))
        sessions = [
            await hello(stub, "new-0", rack="z0-r1"),
            await hello(stub, "new-1", **{"topology.kubernetes.io/zone": "z1", "rack": "z1-r9"}),
            await hello(stub, "new-2", zone="west", rack="west-0"),
        ]
        known = await until_there(served, "new-0", "new-1", "new-2")
        assert [known[f"new-{n}"] for n in range(3)] == [
            ["z0", "z0-r1"],
            ["z1", "z1-r9"],
            ["west", "west-0"],
        ]
        assert {*(await served.until("b", RUNNING)).placement.hosts} == {"new-0", "new-1", "new-2"}
        page = await served.stub.ListAuditRecords(
            service_pb2.ListAuditRecordsRequest(filter="event = FabricChanged")
        )
        assert {each.actor for each in page.audit_records} == {"server"}
        assert 1 <= len(page.audit_records) <= 3
        again = await hello(stub, "new-0", rack="z0-r0")  # it is known, and stays where it is
        await asyncio.sleep(0.5)
        assert (await hosts(served))["new-0"] == ["z0", "z0-r1"]
        for session in (*sessions, again):
            session.cancel()
    async with serving(tmp_path) as served:
        assert (await hosts(served))["new-2"] == ["west", "west-0"]


async def test_a_host_without_a_place_that_can_be_does_not_join(tmp_path: Path) -> None:
    async with with_agents(tmp_path) as (served, stub):
        lost = await hello(stub, "new")
        assert "the fabric has no host new, and its agent does not say where" in await ended(lost)
        wrong = await hello(stub, "new", zone="z0", rack="z1-r0")
        assert "rack z1-r0 is in zone z1, not z0" in await ended(wrong)
        torn = await hello(stub, "new", zone="z9")
        assert "its place does not say in which rack it is" in await ended(torn)
        odd = await hello(stub, "new", zone="z0", rack="a\nb")
        assert "is not a name: must be" in await ended(odd)
        assert "new" not in await hosts(served)


async def test_no_host_joins_unless_the_operator_says_so(tmp_path: Path) -> None:
    async with with_agents(tmp_path, may_join=AgentKeys().join) as (served, stub):
        session = await hello(stub, "new", rack="z0-r0")
        words = "the fabric has no host new, and none joins by itself (agents.join is off)"
        assert words in await ended(session)
        assert "new" not in await hosts(served)


@pytest.mark.parametrize("options", [{"is_insecure": True, "join_secrets": ()}])
async def test_an_agent_that_proves_nothing_joins_nothing(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with with_agents(tmp_path, **options) as (served, stub):
        session = await hello(stub, "new", token="", rack="z0-r0")
        assert "the fabric has no host new" in await ended(session)
        assert "new" not in await hosts(served)


async def test_many_hosts_join_in_few_changes(tmp_path: Path) -> None:
    async with with_agents(tmp_path) as (served, stub):
        names = [f"new-{n}" for n in range(40)]
        sessions = [await hello(stub, name, rack="z0-r0") for name in names]
        known = await until_there(served, *names)
        assert len(known) == 48
        page = await served.stub.ListAuditRecords(
            service_pb2.ListAuditRecordsRequest(filter="event = FabricChanged")
        )
        assert len(page.audit_records) < 10
        for session in sessions:
            session.cancel()


def test_a_place_is_read_from_words_and_from_files(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('topology.kubernetes.io/zone="z0"\nrack=z0-r1\n\nempty=""\n')
    assert parse_place("", str(labels)) == {"topology.kubernetes.io/zone": "z0", "rack": "z0-r1"}
    assert parse_place("rack=r2, zone=z1", str(labels))["rack"] == "r2"
    assert parse_place("", "") == {}
    with pytest.raises(InputError, match="place: must be KEY=VALUE, as rack=z0-r001, not 'z0'"):
        parse_place("z0", "")
    labels.write_text("rack=a\nwhat is this\n")
    with pytest.raises(InputError, match=rf"{labels}:2: must be KEY=VALUE"):
        parse_place("", str(labels))
