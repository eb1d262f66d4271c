"""Limits of calls, reloads, and who the log says it was: against a real server."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access.listener import Access
from scheduler.access.options import CallLimits
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.engine import feed
from scheduler.engine.planning import loop
from scheduler.eventlog.store.sqlite import SqliteStore, look_at
from scheduler.server import serve
from scheduler.service.rpc.cluster import hosts
from scheduler.service.rpc.jobs import jobs
from scheduler.v1 import service_pb2
from tests.secured import House, callers, replace
from tests.serving import CANCELLED, RUNNING, create, refused, rest, serving, until_running, url
from tests.waiting import until

Code = grpc.StatusCode
LIST = service_pb2.ListHostsRequest()
TENANTS = Tenants((Tenant("default"), Tenant("vision")))


def limited(**limits: int) -> Access:
    return Access(limits=CallLimits(**limits))


async def test_a_tenant_with_too_many_waiting_jobs_gets_no_more(tmp_path: Path) -> None:
    """Also where they are submitted at once; a repeat and another tenant are not in the way."""
    async with serving(tmp_path, access=limited(waiting_jobs=3), tenants=TENANTS) as served:
        await served.start("big", 8)
        names = [f"j{number}" for number in range(20)]
        calls = [served.stub.CreateJob(create(name, 8, request_id=name)) for name in names]
        results = await asyncio.gather(*calls, return_exceptions=True)
        made = [result for result in results if not isinstance(result, BaseException)]
        assert len(made) == 3
        name = made[0].spec.name
        again = await served.stub.CreateJob(create(name, 8, request_id=name))
        other = await served.stub.CreateJob(create("d", 8, tenant="vision"))
    refusals = {result.code() for result in results if isinstance(result, grpc.aio.AioRpcError)}
    assert refusals == {Code.RESOURCE_EXHAUSTED}
    assert (again.uid, other.spec.name) == (made[0].uid, "d")


async def test_streams_of_one_caller_and_of_all_are_counted(tmp_path: Path) -> None:
    who = [(name, "viewer", "*") for name in ("ada", "bob", "eve")]
    limits = {"streams": 3, "streams_per_caller": 2}
    async with callers(tmp_path, *who, limits=limits) as (_, ada, bob, eve):

        async def watching(stub: Any) -> Any:
            call = stub.WatchJobs(service_pb2.WatchJobsRequest())
            await call.initial_metadata()
            return call

        first, second = await watching(ada), await watching(ada)
        third = await watching(ada)
        assert await third.code() is Code.RESOURCE_EXHAUSTED
        await watching(bob)
        full = await watching(eve)
        assert await full.code() is Code.RESOURCE_EXHAUSTED
        first.cancel()
        await asyncio.sleep(0.1)
        assert not (await watching(eve)).done()
        assert not second.done()


async def test_a_caller_that_calls_too_often_is_told_to_wait(tmp_path: Path) -> None:
    async with serving(tmp_path, access=limited(calls_per_s=5)) as served:
        results = await asyncio.gather(
            *(served.stub.ListHosts(LIST) for _ in range(20)), return_exceptions=True
        )
    codes = [r.code() for r in results if isinstance(r, grpc.aio.AioRpcError)]
    assert set(codes) == {Code.RESOURCE_EXHAUSTED}
    assert 10 <= len(codes) <= 15


async def test_texts_and_messages_have_a_length(tmp_path: Path) -> None:
    limits = limited(text_bytes=100, message_bytes=2_000)
    async with serving(tmp_path, access=limits) as served:
        request = service_pb2.CancelJobRequest(name="a", reason="x" * 101)
        long = await refused(served.stub.CancelJob(request))
        request = service_pb2.CancelJobRequest(name="a", reason="x" * 3_000)
        huge = await refused(served.stub.CancelJob(request))
        states = service_pb2.ListJobsRequest(states=[1] * 1_001)
        many = await refused(served.stub.ListJobs(states))
    assert (long.code, long.fields) == (Code.INVALID_ARGUMENT, ("reason",))
    assert huge.code is Code.RESOURCE_EXHAUSTED
    assert (many.code, many.fields) == (Code.INVALID_ARGUMENT, ("states",))


async def test_a_new_certificate_serves_the_next_connection(tmp_path: Path) -> None:
    house = House(tmp_path)
    token = house.token("ada", "viewer", "*")
    async with (
        serving(tmp_path, access=house.access()) as served,
        house.calling(served, token) as old,
    ):
        await old.ListHosts(LIST)
        before = house.ca
        house.ca = type(house.ca)()  # a new authority: the old one does not vouch for it
        house.issue()
        async with house.calling(served, token) as new:
            assert (await new.ListHosts(LIST)).hosts
        assert (await old.ListHosts(LIST)).hosts  # over the connection it has
        house.ca = before
        async with house.calling(served, token) as stale:
            assert (await refused(stale.ListHosts(LIST))).code is Code.UNAVAILABLE


async def test_a_revoked_token_is_refused_and_its_watch_ends(tmp_path: Path) -> None:
    house = House(tmp_path)
    root, ada = house.token("root", "admin"), house.token("ada", "viewer", "*")
    async with serving(tmp_path, access=house.access()) as served, AsyncExitStack() as stack:
        operator = await stack.enter_async_context(house.calling(served, root))
        stub = await stack.enter_async_context(house.calling(served, ada))
        watching = stub.WatchJobs(service_pb2.WatchJobsRequest())
        await watching.initial_metadata()
        house.tokens.pop()
        house.write()
        await served.read_again()
        assert (await refused(stub.ListHosts(LIST))).code is Code.UNAUTHENTICATED
        await operator.CreateJob(create("a"))
        assert await watching.code() is Code.UNAUTHENTICATED


async def test_a_watch_ends_when_its_caller_moves_to_another_tenant(tmp_path: Path) -> None:
    """It would go on with the jobs of the tenant that its caller had when it began."""
    house = House(tmp_path)
    root, ada = house.token("root", "admin"), house.token("ada", "viewer", "vision")
    access = house.access()
    async with (
        serving(tmp_path, access=access, tenants=TENANTS) as served,
        house.calling(served, root) as operator,
        house.calling(served, ada) as stub,
    ):
        watching = stub.WatchJobs(service_pb2.WatchJobsRequest())
        await watching.initial_metadata()
        await operator.CreateJob(create("seen", tenant="vision"))
        assert (await anext(aiter(watching))).job.spec.name == "seen"
        house.tokens[-1] = house.tokens[-1].replace('"vision"', '"default"')
        house.write()
        await served.read_again()
        await operator.CreateJob(create("unseen", tenant="vision"))
        left, error = await rest(watching)
        assert {change.job.spec.name for change in left} <= {"seen"}
        assert error.code is Code.PERMISSION_DENIED
        told = "ada is of tenant default now, not of vision: open the stream again"
        assert error.message == told


async def test_what_is_broken_leaves_the_old_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An auth file, and a certificate without its key."""
    house = House(tmp_path)
    token = house.token("ada", "viewer", "*")
    async with serving(tmp_path, access=house.access()) as served:
        replace(house.certificate, house.ca.issue_cert("localhost").cert_chain_pems[0].bytes())
        replace(house.auth, "tokens: [{id: x}]\n")
        await served.read_again()
        async with house.calling(served, token) as stub:
            assert (await stub.ListHosts(LIST)).hosts
    assert "auth.yaml:1: tokens.0" in caplog.text
    assert "rejected, the old one stays in use" in caplog.text


async def test_a_reload_takes_new_tenants_and_says_who_did_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads and checks their file beside the loop that renews the lease: 10,000 took 6 s."""
    readers, check = list[threading.Thread](), serve._checked_tenants

    def seen(*arguments: Any) -> Any:
        readers.append(threading.current_thread())
        return check(*arguments)

    monkeypatch.setattr(serve, "_checked_tenants", seen)
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: [{name: vision}]\n", encoding="utf-8")
    async with serving(tmp_path, tenants_file=str(file), tenants=TENANTS) as served:
        replace(file, "tenants: [{name: audio}]\n")
        served.reload.set()
        await until(lambda: _tenants(served.stub), lambda names: "audio" in names)
    assert threading.main_thread() not in readers
    asked = list(look_at(url(tmp_path)).requests())
    assert [(type(a.event).__name__, a.actor) for a in asked][-1] == ("TenantsLoaded", "server")


async def _tenants(stub: Any) -> set[str]:
    answer = await stub.ListTenants(service_pb2.ListTenantsRequest())
    return {tenant.name for tenant in answer.tenants}


async def test_a_second_signal_ends_a_server_that_drains() -> None:
    """The first one waits for watches that do not end; the second does what it does to any."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signals = serve.Signals().listen()
    try:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(signals.stop.wait(), 60)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        for number, handler in before.items():
            signal.signal(number, handler)


# --- work that takes long holds up nobody ------------------------------------------------------


MANY = 60  # more than asyncio's own threads


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What `waiting` holds goes on when this is set."""
    event = threading.Event()
    yield event
    event.set()


def waiting(held: threading.Event, call: Callable[..., Any]) -> Callable[..., Any]:
    def after(*arguments: Any) -> Any:
        held.wait(60)
        return call(*arguments)

    return after


async def test_a_submit_does_not_wait_for_watches_that_resume(
    tmp_path: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        for name in ("a", "b"):
            await served.stub.CreateJob(create(name))
    async with serving(tmp_path) as served:
        monkeypatch.setattr(SqliteStore, "read", waiting(held, SqliteStore.read))
        watches = [
            served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=number % 3))
            for number in range(MANY)
        ]
        for watch in watches:
            await watch.initial_metadata()
        await asyncio.wait_for(served.stub.CreateJob(create("meanwhile")), 5)
        await asyncio.wait_for(served.until("meanwhile", RUNNING), 5)
        held.set()
        for watch in watches:
            async for change in watch:
                if change.job.spec.name == "meanwhile":
                    break
            watch.cancel()


@pytest.mark.parametrize(
    ("owner", "name"),
    [(SqliteStore, "append"), (loop, "decide_restarts")],
    ids=["write", "restart"],
)
async def test_watches_that_resume_let_writes_and_restarts_go_first(
    owner: object, name: str, tmp_path: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_LOOK_S", 60.0)  # for which they may be kept waiting
    begun = threading.Event()

    def begins(*arguments: Any) -> Any:
        begun.set()
        return waiting(held, work)(*arguments)

    async with serving(tmp_path) as served:
        job = await served.start("a")
        work = getattr(owner, name)
        monkeypatch.setattr(owner, name, begins)
        report = service_pb2.ReportHostRequest(name=job.placement.hosts[0], signal="gpu-lost")
        reporting = asyncio.ensure_future(served.stub.ReportHost(report))
        await asyncio.wait_for(asyncio.to_thread(begun.wait), 5)
        changes = aiter(served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0)))
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.3)
        assert not first.done()
        held.set()
        assert (await asyncio.wait_for(first, 5)).job.spec.name == "a"
        await reporting


async def test_nobody_has_more_questions_under_way_than_the_limits_say(
    tmp_path: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a submit does not wait for them."""
    monkeypatch.setattr(jobs, "_dry_run", waiting(held, jobs._dry_run))
    who, limits = ("ada", "operator"), {"questions": 3, "questions_per_caller": 2}
    request = create("would-be")
    request.validate_only = True
    async with callers(tmp_path, who, ("bob", "operator"), limits=limits) as (_, hers, his):
        asking = [asyncio.ensure_future(hers.CreateJob(request)) for _ in range(3)]
        first, *_ = (await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED))[0]
        error = await refused(first)
        assert (error.reason, error.code) == ("EXHAUSTED", grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert error.message == "ada has 2 dry runs, what-ifs and the like under way"
        asking.remove(first)
        asking.append(asyncio.ensure_future(his.CreateJob(request)))
        await asyncio.sleep(0.1)
        error = await refused(his.CreateJob(request))
        assert error.message == "3 dry runs, what-ifs and the like wait; try again later"
        await asyncio.wait_for(his.CreateJob(create("now")), 5)
        await asyncio.wait_for(until_running(his, "now"), 5)
        held.set()
        assert len(await asyncio.gather(*asking)) == 3
        assert (await his.CreateJob(request)).spec.name == "would-be"  # they are forgotten


async def test_watches_resume_at_so_many_places_of_the_log_and_no_more(tmp_path: Path) -> None:
    limits = CallLimits().model_copy(update={"log_passes": 0})  # so that one is too many
    async with serving(tmp_path, access=Access(limits=limits), watch_changes=1) as served:
        for number in range(3):
            await served.stub.CreateJob(create(f"c{number}"))
        early = served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0))
        error = await refused(anext(aiter(early)))
    assert error.reason == "EXHAUSTED"
    assert error.message == "watches resume at 0 places of the log; try again later"


async def test_a_change_does_not_stand_behind_the_lists_of_others(
    tmp_path: Path, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is made in a thread too."""
    monkeypatch.setattr(hosts, "hosts_page", waiting(held, hosts.hosts_page))
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        ask = service_pb2.ListHostsRequest()
        lists = [served.stub.ListHosts(ask) for _ in range(MANY)]
        await asyncio.sleep(0.3)  # until they are there
        async with asyncio.timeout(30):
            cancelled = await served.cancel("a")
        assert cancelled.state == CANCELLED
        held.set()
        for each in lists:
            assert len((await each).hosts) == 8
