"""Watching: every change once, in order, from any version, across reconnection."""

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path
from random import Random

import grpc
import pytest

from scheduler.service.rpc.overview import watch
from scheduler.v1 import host_pb2, service_pb2, window_pb2
from tests.serving import (
    CANCELLED,
    QUEUED,
    RUNNING,
    START_NS,
    Served,
    create,
    error_of,
    refused,
    serving,
    slow_disk,
)

Seen = tuple[int, str, str]


def _seen(change: service_pb2.WatchJobsResponse) -> Seen:
    kind = service_pb2.JobChange.Name(change.change).removeprefix("JOB_CHANGE_").lower()
    return (change.version, change.job.spec.name, kind)


async def _read(served: Served, count: int, **request: object) -> list[Seen]:
    """The next `count` changes."""
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest(**request))  # type: ignore[arg-type]
    seen = []
    async for change in stream:
        seen.append(_seen(change))
        if len(seen) == count:
            stream.cancel()
            return seen
    raise AssertionError("the stream ended")


async def _some_life(served: Served) -> None:
    """Versions 2 to 9, of which 6 changes a job and a host at once, and 8 no job."""
    await served.stub.CreateJob(create("a", 8))
    await served.until("a", RUNNING)
    await served.stub.CreateJob(create("b"))
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="b"))
    await served.stub.ReportHost(service_pb2.ReportHostRequest(name="z0-r0-h0", signal="gpu-lost"))
    while (await served.get("a")).state == RUNNING:
        await asyncio.sleep(0)
    await served.until("a", QUEUED)
    await served.stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h0"))
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))


LIFE = [
    (2, "a", "submitted"),
    (3, "a", "started"),
    (4, "b", "submitted"),
    (5, "b", "ended"),
    (6, "a", "interrupted"),
    (7, "a", "requeued"),
    (9, "a", "ended"),
]


async def test_a_watch_from_any_version_sees_what_was_seen_live(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reading = asyncio.create_task(_read(served, len(LIFE), after_version=1))
        await _some_life(served)
        assert await reading == LIFE
    async with serving(tmp_path) as served:
        for after in (0, 2, 4, 6, 8):
            expected = [seen for seen in LIFE if seen[0] > after]
            assert await _read(served, len(expected), after_version=after) == expected
        of_b = [seen for seen in LIFE if seen[1] == "b"]
        assert await _read(served, len(of_b), after_version=0, name="b") == of_b

        request = service_pb2.WatchJobsRequest(after_version=1)
        stream = served.stub.WatchJobs(request)
        one_by_one = [await anext(aiter(stream)) for _ in LIFE]
        stream.cancel()
        request.in_batches = True
        stream = served.stub.WatchJobs(request)
        assert [*(await anext(aiter(stream))).changes] == one_by_one
        stream.cancel()
        started, now = one_by_one[1], await served.get("a")  # the job as it was then
        assert (started.job.state, len(started.job.placement.hosts)) == (RUNNING, 8)
        assert now.state == CANCELLED


async def test_changes_while_the_log_is_read_come_once_and_in_order(served: Served) -> None:
    names = [f"j{i}" for i in range(60)]
    await asyncio.gather(*(served.stub.CreateJob(create(n, 8)) for n in names[:30]))
    watches = [asyncio.create_task(_read(served, 61, after_version=0)) for _ in range(5)]
    for name in names[30:]:
        await served.stub.CreateJob(create(name, 8))
    watched = [await watch for watch in watches]
    assert all(seen == watched[0] for seen in watched)
    versions = [version for version, _, _ in watched[0]]
    assert versions == sorted(set(versions))
    assert {name for _, name, kind in watched[0] if kind == "submitted"} == set(names)


async def test_a_watch_from_now_on_misses_nothing_after_its_first_word(served: Served) -> None:
    await served.stub.CreateJob(create("before"))
    await served.until("before", RUNNING)
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
    from_version = dict(await stream.initial_metadata())["muster-version"]
    await served.stub.CreateJob(create("after"))
    first = await anext(aiter(stream))
    stream.cancel()
    assert from_version == "3"
    assert _seen(first) == (4, "after", "submitted")


async def _drained(stream: AsyncIterable[service_pb2.WatchJobsResponse]) -> None:
    async for _ in stream:
        pass


async def test_a_watcher_that_falls_behind_is_told_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk(monkeypatch)  # so that many changes become visible at once
    async with serving(tmp_path, watch_depth=2) as served:
        stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
        await stream.initial_metadata()
        submits = [served.stub.CreateJob(create(f"j{i}", 8)) for i in range(30)]
        await asyncio.gather(*submits)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(_drained(stream), 5)
    error = error_of(caught.value)
    assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "WATCH_BEHIND")


async def test_a_stopping_server_ends_its_watches_as_unavailable(served: Served) -> None:
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
    await stream.initial_metadata()
    served.stop.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(stream))
    await asyncio.wait_for(served.task, 30)
    assert error_of(caught.value).code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("seed", range(2))
async def test_streams_cut_off_at_random_and_resumed_have_neither_gap_nor_repeat(
    tmp_path: Path, seed: int
) -> None:
    """A watcher reads a few changes, is cut off in the midst of things, and resumes from
    the last version it has; the server stops and comes back once."""
    random = Random(seed)
    names = [f"j{i}" for i in range(24)]
    seen: list[Seen] = []

    async def live(served: Served, some: list[str]) -> None:
        for name in some:
            await served.stub.CreateJob(create(name, random.choice((1, 2, 8))))
            if random.random() < 0.5:
                await served.stub.CancelJob(service_pb2.CancelJobRequest(name=name))
            await asyncio.sleep(0)

    async def follow(served: Served, last: int) -> None:
        while not seen or seen[-1][0] < last:
            after = seen[-1][0] if seen else 0
            stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=after))
            for _ in range(random.randint(1, 4)):
                change = await anext(aiter(stream))
                seen.append(_seen(change))
                if seen[-1][0] >= last:
                    break
            stream.cancel()

    for half in (names[:12], names[12:]):
        async with serving(tmp_path) as served:
            living = asyncio.create_task(live(served, half))
            await asyncio.wait_for(follow(served, 2 + len(seen)), 20)
            await living
            mark = await served.stub.CreateJob(create(f"last-of-{half[0]}", 8))
            await asyncio.wait_for(follow(served, mark.version), 20)
    async with serving(tmp_path) as served:
        whole = await _read(served, len(seen), after_version=0)
    assert seen == whole
    assert len(seen) > len(names)


HostSeen = tuple[int, dict[str, str]]


def _hosts_seen(change: service_pb2.WatchHostsResponse) -> HostSeen:
    states = {h.name: host_pb2.HostState.Name(h.state)[len("HOST_STATE_") :] for h in change.hosts}
    return (change.version, states)


async def _read_hosts(served: Served, count: int, **request: object) -> list[HostSeen]:
    """The next `count` messages about hosts."""
    stream = served.stub.WatchHosts(service_pb2.WatchHostsRequest(**request))  # type: ignore[arg-type]
    seen = []
    async for change in stream:
        seen.append(_hosts_seen(change))
        if len(seen) == count:
            stream.cancel()
            return seen
    raise AssertionError("the stream ended")


HOST_LIFE = [
    (6, {"z0-r0-h0": "FAILED"}),
    (8, {"z1-r0-h0": "CORDONED"}),
    (10, {"z0-r0-h0": "HEALTHY"}),
]


async def _host_life(served: Served) -> None:
    await _some_life(served)
    await served.stub.ReportHost(service_pb2.ReportHostRequest(name="z0-r0-h0", signal="repaired"))


async def test_a_watch_of_hosts_from_any_version_sees_what_was_seen_live(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        live = asyncio.create_task(_read_hosts(served, 3, after_version=1))
        await _host_life(served)
        assert await live == HOST_LIFE
    async with serving(tmp_path) as served:
        for after in (0, 5, 6, 9):
            expected = [seen for seen in HOST_LIFE if seen[0] > after]
            assert await _read_hosts(served, len(expected), after_version=after) == expected
        assert await _read_hosts(served, 1, after_version=0, name="z1") == HOST_LIFE[1:2]
        nobody = served.stub.WatchHosts(service_pb2.WatchHostsRequest(name="z9"))
        error = await refused(anext(aiter(nobody)))
        assert error.reason == "NOT_FOUND"


async def test_a_window_is_told_of_in_as_many_messages_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_HOSTS", 3)
    window = window_pb2.Window(name="w", kind=window_pb2.WINDOW_KIND_MAINTENANCE, hosts=["z0"])
    window.start_time.FromNanoseconds(START_NS)
    window.end_time.FromNanoseconds(START_NS + 3_600 * 10**9)
    async with serving(tmp_path) as served:
        stream = served.stub.WatchHosts(service_pb2.WatchHostsRequest(after_version=1))
        await served.stub.CreateWindow(service_pb2.CreateWindowRequest(window=window))
        first, rest = await anext(aiter(stream)), await anext(aiter(stream))
        stream.cancel()
    assert (len(first.hosts), first.more, len(rest.hosts), rest.more) == (3, True, 1, False)
    assert first.version == rest.version
    assert {host.reason for host in (*first.hosts, *rest.hosts)} == {"window w"}
