"""Work that takes long holds up nobody who changes something: it has threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.access.listener import Access
from scheduler.access.options import CallLimits
from scheduler.core.model.events import Event
from scheduler.engine import feed
from scheduler.engine.planning import loop
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.service.rpc.cluster import hosts
from scheduler.service.rpc.jobs import jobs
from scheduler.v1 import service_pb2
from tests.secured import House
from tests.serving import CANCELLED, RUNNING, create, refused, serving, until_running

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


async def test_a_watch_resumes_without_the_log_as_far_as_memory_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, watch_changes=4, watch_depth=4) as served:
        for number in range(6):
            await served.stub.CreateJob(create(f"j{number}", 8))
        last = (await served.get("j5")).version
        reads: list[int] = []
        read = SqliteStore.read

        def counted(self: SqliteStore, after_version: int = 0) -> Iterator[tuple[int, Event]]:
            reads.append(after_version)
            return read(self, after_version)

        monkeypatch.setattr(SqliteStore, "read", counted)
        for after, expected in ((last - 1, 0), (0, 1)):
            watch = served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=after))
            async for change in watch:
                if change.version == last:
                    break
            watch.cancel()
            assert len(reads) == expected


@pytest.mark.parametrize(
    ("owner", "name"),
    [(SqliteStore, "append"), (loop, "decide_restarts")],
    ids=["write", "restart"],
)
async def test_watches_that_resume_let_writes_and_restarts_go_first(
    owner: object,
    name: str,
    tmp_path: Path,
    held: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_LOOK_S", 60.0)  # for which they may be kept waiting
    begun = threading.Event()

    def begins(*arguments: Any) -> Any:
        begun.set()
        return waiting(held, work)(*arguments)

    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        job = await served.until("a", RUNNING)
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
    house = House(tmp_path)
    ada, bob = (house.token(name, "operator", "") for name in ("ada", "bob"))
    access = house.access(limits={"questions": 3, "questions_per_caller": 2})
    request = create("would-be")
    request.validate_only = True
    async with (
        serving(tmp_path, access=access) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
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
            cancelled = await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        assert cancelled.state == CANCELLED
        held.set()
        for each in lists:
            assert len((await each).hosts) == 8
