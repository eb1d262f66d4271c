"""Servers that share a PostgreSQL: one writes, the others answer reads, and take over."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler.engine.replica import Replica
from scheduler.eventlog.store.postgres import PostgresStore
from scheduler.v1 import service_pb2
from tests.build import fabric_spec
from tests.postgres import Cluster
from tests.serving import RUNNING, Served, create, messages, refused, serving
from tests.waiting import until

LEASE_S = 1.0
LATEST = (("muster-read", "latest"),)


@asynccontextmanager
async def replicas(
    folder: Path, database: str, count: int, lease_s: float = LEASE_S, **settings: Any
) -> AsyncIterator[list[Served]]:
    """`count` servers, the first of which leads."""
    async with AsyncExitStack() as stack:
        servers = []
        for _ in range(count):
            one = serving(folder, store=database, lease_s=lease_s, **settings)
            servers.append(await stack.enter_async_context(one))
            await until_led(servers[0])
        yield servers


async def until_led(by: Served) -> None:
    await until(lambda: role(by), lambda found: found == "leader")


async def trailer(by: Served, **metadata: Any) -> dict[str, str]:
    call = by.stub.ListTenants(service_pb2.ListTenantsRequest(), **metadata)
    await call
    return {key: str(value) for key, value in await call.trailing_metadata()}


async def role(by: Served) -> str:
    return (await trailer(by))["muster-role"]


async def stopped(server: Served) -> None:
    server.stop.set()
    await asyncio.wait({server.task})


async def changes(server: Served, after: int, count: int) -> list[service_pb2.WatchJobsResponse]:
    request = service_pb2.WatchJobsRequest(after_version=after)
    return await messages(server.stub.WatchJobs(request), count)


async def test_one_leads_and_the_others_refuse_writes_and_answer_reads(
    tmp_path: Path, database: str
) -> None:
    async with replicas(tmp_path, database, 3) as servers:
        assert [await role(one) for one in servers] == ["leader", "follower", "follower"]
        for server in servers:
            async with grpc.aio.insecure_channel(server.ready.address) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                answer = await health.Check(health_pb2.HealthCheckRequest())
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
        leader, follower = servers[:2]
        error = await refused(follower.stub.CreateJob(create("a")))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADER")
        assert error.facts == {"leader": leader.ready.address}
        await leader.stub.CreateJob(create("a", 2))
        request = service_pb2.GetJobRequest(name="a")
        await follower.stub.GetJob(request, metadata=LATEST)
        assert (await follower.until("a", RUNNING)).spec.name == "a"
        said = await trailer(follower)
        assert said["muster-version"] == (await trailer(leader))["muster-version"]
        assert 0 <= int(said["muster-age-ms"]) < 2_000
        assert 0 <= int((await trailer(leader))["muster-age-ms"]) < 2_000


async def test_a_leader_that_is_cut_off_says_how_old_its_answers_are(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        time.sleep(1.5)

    async with replicas(tmp_path, database, 1, lease_s=4.0) as (leader,):
        await leader.stub.CreateJob(create("a"))
        monkeypatch.setattr(PostgresStore, "keep_lead", silent)
        await asyncio.sleep(2.2)
        said = await trailer(leader)
    assert said["muster-role"] == "leader"
    assert int(said["muster-age-ms"]) > 1_000


async def test_a_leader_that_does_not_know_of_its_successor_refuses_nothing(
    tmp_path: Path, database: str
) -> None:
    """It would say of a job that another has made that there is none."""
    async with replicas(tmp_path, database, 1, lease_s=60.0) as (leader,):
        cancel = service_pb2.CancelJobRequest(name="a")
        error = await refused(leader.stub.CancelJob(cancel))
        assert error.code is grpc.StatusCode.NOT_FOUND
        with psycopg.connect(database) as successor:
            successor.execute("UPDATE leader SET term = term + 1")
        error = await refused(leader.stub.CancelJob(cancel))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADER")


async def test_a_leader_lets_the_lead_go_to_another_server(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Replica] = []

    class Seen(Replica):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("scheduler.server.serve.Replica", Seen)
    async with replicas(tmp_path, database, 2) as (leader, follower):
        await leader.stub.CreateJob(create("a"))
        made[1].offer_lead("no agent reached it, in an earlier term")
        made[0].offer_lead("no agent reaches it")
        await until_led(follower)
        assert not made[1]._lets_go
        assert await role(leader) == "follower"
        await follower.stub.CreateJob(create("b"))


async def test_reads_and_watches_of_a_follower_are_as_new_as_is_asked(
    tmp_path: Path, database: str
) -> None:
    async with replicas(tmp_path, database, 2, lease_s=60.0) as (leader, follower):
        newest = int((await trailer(leader))["muster-version"])
        ask = service_pb2.WatchJobsRequest(after_version=newest + 9)
        error = await refused(anext(aiter(follower.stub.WatchJobs(ask))))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_CAUGHT_UP")
        error = await refused(anext(aiter(leader.stub.WatchJobs(ask))))
        assert (error.reason, error.fields) == ("INVALID", ("after_version",))

        watching = asyncio.create_task(changes(follower, 0, 6))
        least = (("muster-min-version", str(newest + 1)),)
        reading = asyncio.create_task(trailer(follower, metadata=least))
        await asyncio.sleep(0.2)
        assert not reading.done()
        for name in (f"job-{n}" for n in range(30)):
            await leader.stub.CreateJob(create(name))
            request = service_pb2.GetJobRequest(name=name)
            assert (await follower.stub.GetJob(request, metadata=LATEST)).spec.name == name
        assert int((await reading)["muster-version"]) > newest
        assert await asyncio.wait_for(watching, 10) == await changes(leader, 0, 6)


async def test_a_follower_takes_over_when_the_leader_stops(tmp_path: Path, database: str) -> None:
    async with replicas(tmp_path, database, 2) as (leader, follower):
        watching = asyncio.create_task(changes(follower, 0, 4))
        await leader.start("a")
        await stopped(leader)
        await until_led(follower)
        await follower.start("b")
        found = await asyncio.wait_for(watching, 10)
        seen = [(change.job.spec.name, change.change) for change in found]
        assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        with psycopg.connect(database) as connection:
            terms = connection.execute("SELECT DISTINCT term FROM log ORDER BY term").fetchall()
        assert terms == [(1,), (2,)]


async def test_a_leader_whose_sessions_are_ended_comes_back_in_a_later_term(
    tmp_path: Path, postgres: Cluster, database: str
) -> None:
    async with replicas(tmp_path, database, 1) as (leader,):
        await leader.start("a")
        await asyncio.to_thread(postgres.terminate_backends, database)
        error = await refused(leader.stub.CreateJob(create("b")))
        assert error.reason in ("STORE_FAILED", "NOT_LEADER")
        await until_led(leader)
        await leader.stub.CreateJob(create("b"))
        assert (await leader.until("b", RUNNING)).spec.name == "b"


async def test_all_follow_another_fabric_and_go_on_with_it(tmp_path: Path, database: str) -> None:
    file = yaml.safe_dump(fabric_spec(2, 2, 3)).encode()
    async with replicas(tmp_path, database, 2) as (first, second):
        held = (await first.start("a", 2)).placement
        made = await first.stub.ApplyFabric(service_pb2.ApplyFabricRequest(file=file))
        hosts = await second.stub.ListHosts(service_pb2.ListHostsRequest(), metadata=LATEST)
        assert (len(hosts.hosts), hosts.version >= made.version) == (12, True)
        await stopped(first)
        await until_led(second)
        await second.start("b", 10)
        assert (await second.get("a")).placement == held
