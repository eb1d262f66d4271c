"""Limits of calls, reloads, and who the log says it was: against a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status

from scheduler.access.listener import Access
from scheduler.access.options import CallLimits
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.eventlog.store.sqlite import look_at
from scheduler.server import serve
from scheduler.v1 import service_pb2
from tests.secured import House, replace
from tests.serving import RUNNING, create, refused, serving, until_running, url
from tests.waiting import until

Code = grpc.StatusCode
LIST = service_pb2.ListHostsRequest()
TENANTS = Tenants((Tenant("default"), Tenant("vision")))


def limited(**limits: int) -> Access:
    return Access(limits=CallLimits(**limits))


async def test_a_tenant_with_too_many_waiting_jobs_gets_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path, access=limited(waiting_jobs=2), tenants=TENANTS) as served:
        await served.stub.CreateJob(create("big", 8))
        await served.until("big", RUNNING)
        for name in ("a", "b"):
            await served.stub.CreateJob(create(name, 8, request_id=name))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.CreateJob(create("c", 8))
        again = await served.stub.CreateJob(create("b", 8, request_id="b"))
        other = await served.stub.CreateJob(create("d", 8, tenant="vision"))
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(caught.value)
    retry = RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.seconds == 1
    assert (again.spec.name, other.spec.name) == ("b", "d")


async def test_submits_at_once_do_not_pass_the_limit_together(tmp_path: Path) -> None:
    async with serving(tmp_path, access=limited(waiting_jobs=3)) as served:
        await served.stub.CreateJob(create("big", 8))
        await served.until("big", RUNNING)
        calls = [served.stub.CreateJob(create(f"j{n}", 8)) for n in range(20)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(result, Exception) for result in results) == 3


async def test_streams_of_one_caller_and_of_all_are_counted(tmp_path: Path) -> None:
    house = House(tmp_path)
    tokens = [house.token(name, "viewer", "*") for name in ("ada", "bob", "eve")]
    access = house.access(limits={"streams": 3, "streams_per_caller": 2})
    async with serving(tmp_path, access=access) as served, AsyncExitStack() as stack:
        ada, bob, eve = [
            await stack.enter_async_context(house.calling(served, token)) for token in tokens
        ]

        async def watching(stub: object) -> grpc.aio.UnaryStreamCall[object, object]:
            call = stub.WatchJobs(service_pb2.WatchJobsRequest())  # type: ignore[attr-defined]
            await call.initial_metadata()
            return call  # type: ignore[no-any-return]

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
        served.reload.set()  # SIGHUP: at once
        await until(lambda: not served.reload.is_set())
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
        served.reload.set()
        await until(lambda: not served.reload.is_set())
        await operator.CreateJob(create("unseen", tenant="vision"))
        assert {change.job.spec.name for change in await _until_end(watching)} <= {"seen"}
        assert await watching.code() is Code.PERMISSION_DENIED
        told = "ada is of tenant default now, not of vision: open the stream again"
        assert await watching.details() == told


async def _until_end(stream: Any) -> list[Any]:
    seen: list[Any] = []
    with suppress(grpc.aio.AioRpcError):
        async for each in stream:
            seen.append(each)
    return seen


async def test_what_is_broken_leaves_the_old_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An auth file, and a certificate without its key."""
    house = House(tmp_path)
    token = house.token("ada", "viewer", "*")
    async with serving(tmp_path, access=house.access()) as served:
        replace(house.certificate, house.ca.issue_cert("localhost").cert_chain_pems[0].bytes())
        replace(house.auth, "tokens: [{id: x}]\n")
        served.reload.set()
        await until(lambda: not served.reload.is_set())
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


async def _tenants(stub: object) -> set[str]:
    answer = await stub.ListTenants(service_pb2.ListTenantsRequest())  # type: ignore[attr-defined]
    return {tenant.name for tenant in answer.tenants}


async def test_the_log_has_who_asked_and_nobody_for_the_schedulers_own(tmp_path: Path) -> None:
    house = House(tmp_path)
    root = house.token("root", "admin")
    async with (
        serving(tmp_path, access=house.access()) as served,
        house.calling(served, root) as stub,
    ):
        await stub.CreateJob(create("a"))
        await until_running(stub, "a")
        await stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    copy = look_at(url(tmp_path))
    actors = {version: "" for version, _ in copy.read()} | {
        asked.version: asked.actor for asked in copy.requests()
    }
    names = [type(event).__name__ for _, event in copy.read()]
    assert list(zip(names, actors.values(), strict=True)) == [
        ("FabricLoaded", "server"),
        ("JobSubmitted", "root"),
        ("JobStarted", ""),
        ("JobEnded", "root"),
    ]


async def test_a_second_signal_ends_a_server_that_drains(tmp_path: Path) -> None:
    """The first one waits for a watch that does not end; the second waits for nothing."""
    script = (
        "import asyncio, scheduler.server.serve as s\n"
        "async def main():\n"
        "    signals = s.Signals().listen()\n"
        "    print('up', flush=True)\n"
        "    await signals.stop.wait()\n"
        "    print('draining', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ,
    )
    assert process.stdout
    for said in (b"up\n", b"draining\n"):
        assert await process.stdout.readline() == said
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGTERM
