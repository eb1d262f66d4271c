"""Watching: every change once, in order, from any version, across reconnection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.client import Client
from scheduler.service.rpc.overview import watch
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scheduler.wire.durations import duration
from tests.integration.test_windows import making
from tests.serving import (
    CANCELLED,
    COMPLETED,
    QUEUED,
    RUNNING,
    Served,
    create,
    messages,
    refused,
    serving,
)

Seen = tuple[int, str, str]


def _seen(change: service_pb2.WatchJobsResponse) -> Seen:
    kind = service_pb2.JobChange.Name(change.change).removeprefix("JOB_CHANGE_").lower()
    return (change.version, change.job.spec.name, kind)


async def _read(served: Served, count: int, **request: Any) -> list[Seen]:
    """The next `count` changes."""
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest(**request))
    return [_seen(change) for change in await messages(stream, count)]


async def _some_life(served: Served) -> None:
    """Versions 2 to 9, of which 6 changes a job and a host at once, and 8 no job."""
    await served.start("a", 8)
    await served.stub.CreateJob(create("b"))
    await served.cancel("b")
    await served.report("z0-r0-h0")
    while (await served.get("a")).state == RUNNING:
        await asyncio.sleep(0)
    await served.until("a", QUEUED)
    await served.stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h0"))
    await served.cancel("a")


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
        one_by_one = await messages(served.stub.WatchJobs(request), len(LIFE))
        request.in_batches = True
        (batch,) = await messages(served.stub.WatchJobs(request), 1)
        assert [*batch.changes] == one_by_one
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
    await served.start("before")
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
    from_version = dict(await stream.initial_metadata())["muster-version"]
    await served.stub.CreateJob(create("after"))
    (first,) = await messages(stream, 1)
    assert from_version == "3"
    assert _seen(first) == (4, "after", "submitted")


async def test_a_stopping_server_ends_its_watches_as_unavailable(served: Served) -> None:
    stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
    await stream.initial_metadata()
    served.stop.set()
    error = await refused(anext(aiter(stream)))
    await asyncio.wait_for(served.task, 30)
    assert error.code is grpc.StatusCode.UNAVAILABLE


HostSeen = tuple[int, dict[str, str]]


def _hosts_seen(change: service_pb2.WatchHostsResponse) -> HostSeen:
    states = {h.name: host_pb2.HostState.Name(h.state)[len("HOST_STATE_") :] for h in change.hosts}
    return (change.version, states)


async def _read_hosts(served: Served, count: int, **request: Any) -> list[HostSeen]:
    """The next `count` messages about hosts."""
    stream = served.stub.WatchHosts(service_pb2.WatchHostsRequest(**request))
    return [_hosts_seen(change) for change in await messages(stream, count)]


HOST_LIFE = [
    (6, {"z0-r0-h0": "FAILED"}),
    (8, {"z1-r0-h0": "CORDONED"}),
    (10, {"z0-r0-h0": "HEALTHY"}),
]


async def test_a_watch_of_hosts_from_any_version_sees_what_was_seen_live(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        live = asyncio.create_task(_read_hosts(served, 3, after_version=1))
        await _some_life(served)
        await served.report("z0-r0-h0", "repaired")
        assert await live == HOST_LIFE
    async with serving(tmp_path) as served:
        for after in (0, 5, 6, 9):
            expected = [seen for seen in HOST_LIFE if seen[0] > after]
            assert await _read_hosts(served, len(expected), after_version=after) == expected
        assert await _read_hosts(served, 1, after_version=0, name="z1") == HOST_LIFE[1:2]
        nobody = served.stub.WatchHosts(service_pb2.WatchHostsRequest(name="z9"))
        error = await refused(anext(aiter(nobody)))
        assert error.reason == "NOT_FOUND"


async def test_many_hosts_are_told_of_in_as_many_messages_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a window, and those of a list."""
    monkeypatch.setattr(watch, "MOST_HOSTS", 3)
    async with serving(tmp_path) as served:
        stream = served.stub.WatchHosts(service_pb2.WatchHostsRequest(after_version=1))
        await served.stub.CreateWindow(making(start_s=0))
        first, rest = await messages(stream, 2)
        listing = service_pb2.WatchHostsRequest(initial_list=True, name="z0")
        some, others, mark = await messages(served.stub.WatchHosts(listing), 3)
    assert (len(first.hosts), first.more, len(rest.hosts), rest.more) == (3, True, 1, False)
    assert first.version == rest.version
    assert {host.reason for host in (*first.hosts, *rest.hosts)} == {"window w"}
    names = [host.name for host in (*some.hosts, *others.hosts)]
    assert names == ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0", "z0-r1-h1"]
    assert (some.more, others.more, mark.more, mark.bookmark) == (True, True, False, True)


# --- lists, bookmarks and filters --------------------------------------------------------------


LISTED, BOOKMARK = service_pb2.JOB_CHANGE_LISTED, service_pb2.JOB_CHANGE_BOOKMARK
SECOND = duration(1)


@contextmanager
def opened(stream: Any) -> Iterator[AsyncIterator[Any]]:
    try:
        yield aiter(stream)
    finally:
        stream.cancel()


async def relabel(served: Served, name: str, **labels: str) -> None:
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(labels=labels))
    mask = FieldMask(paths=["spec.labels"])
    await served.stub.UpdateJob(service_pb2.UpdateJobRequest(job=job, update_mask=mask))


async def test_jobs_at_hand_come_first_then_a_bookmark_then_every_change(served: Served) -> None:
    for name in ("a", "b"):
        await served.start(name)
    await served.stub.EndJob(service_pb2.EndJobRequest(name="a", outcome=COMPLETED))
    request = service_pb2.WatchJobsRequest(initial_list=True)
    with opened(served.stub.WatchJobs(request)) as changes:
        first, second, mark = [await anext(changes) for _ in range(3)]
        listed = await served.stub.ListJobs(service_pb2.ListJobsRequest())
        request.in_batches = True
        batch, end = await messages(served.stub.WatchJobs(request), 2)
        await served.stub.CreateJob(create("c"))
        after = await anext(changes)
    assert ([*batch.changes], end.change) == ([first, second], BOOKMARK)
    assert [(c.change, c.job.spec.name, c.job.state) for c in (first, second)] == [
        (LISTED, "a", COMPLETED),
        (LISTED, "b", RUNNING),
    ]
    assert first.version == mark.version == listed.version
    assert is_bookmark(mark)
    assert not mark.HasField("change_time")
    submitted = (service_pb2.JOB_CHANGE_SUBMITTED, "c", mark.version + 1)
    assert (after.change, after.job.spec.name, after.version) == submitted


async def test_a_list_has_what_the_watch_is_for(served: Served) -> None:
    async with asyncio.timeout(60):
        for name in ("a", "b", "c"):
            await served.start(name)
        seen = {}
        for kind, name, thing in (("Jobs", "b", "job"), ("Hosts", "z1-r0-h1", "hosts")):
            request = getattr(service_pb2, f"Watch{kind}Request")(initial_list=True, name=name)
            first, mark = await messages(getattr(served.stub, f"Watch{kind}")(request), 2)
            assert is_bookmark(mark)
            of = getattr(first, thing)
            seen[name] = [each.name for each in of] if kind == "Hosts" else [of.name]
    assert seen == {
        name: [f"tenants/default/jobs/{name}" if name == "b" else name] for name in seen
    }
    assert len(seen) == 2


async def test_a_filter_lets_a_job_in_and_out_with_a_change(served: Served) -> None:
    for name, team in (("mine", "nlp"), ("other", "vision")):
        asked = create(name)
        asked.spec.labels["team"] = team
        await served.stub.CreateJob(asked)
        await served.until(name, RUNNING)
    request = service_pb2.WatchJobsRequest(filter="labels.team = nlp", initial_list=True)
    with opened(served.stub.WatchJobs(request)) as changes:
        start = [await anext(changes) for _ in range(2)]
        await relabel(served, "other", team="nlp")
        await relabel(served, "mine", team="vision")
        await relabel(served, "mine", team="speech")
        await relabel(served, "other", team="nlp", more="1")
        seen = [await anext(changes) for _ in range(3)]
    bad = await refused(
        anext(aiter(served.stub.WatchJobs(service_pb2.WatchJobsRequest(filter="team = nlp"))))
    )
    assert [c.job.spec.name for c in start] == ["mine", ""]
    assert [(c.job.spec.name, c.job.spec.labels["team"]) for c in seen] == [
        ("other", "nlp"),
        ("mine", "vision"),
        ("other", "nlp"),
    ]
    assert (bad.code, bad.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ("filter",))


async def test_a_watch_without_news_is_told_how_far_it_has_come(tmp_path: Path) -> None:
    """Where nothing happens, and where nothing that happens concerns it; and not beyond what came
    before it."""

    async def watch_and_change(kind: str) -> None:
        (tmp_path / kind).mkdir()
        async with serving(tmp_path / kind) as served:
            await _is_told_how_far(kind, served)

    await asyncio.gather(*map(watch_and_change, ("Jobs", "Hosts")))


async def _is_told_how_far(kind: str, served: Served) -> None:
    other = {"Jobs": "nobody", "Hosts": "z1"}[kind]
    async with asyncio.timeout(60):
        await served.start("a")
        request = getattr(service_pb2, f"Watch{kind}Request")
        watch = getattr(served.stub, f"Watch{kind}")
        (first,) = await messages(watch(request(bookmark_interval=SECOND)), 1)
        with opened(watch(request(bookmark_interval=SECOND, name=other))) as busy:
            marking = asyncio.create_task(anext(busy))
            for number in range(60):
                await _change(served, kind, number)
                await asyncio.sleep(0.05)
                if marking.done():
                    break
            mark = await marking
            newest = (await served.get("a")).version
            seen = [mark.version]
            while seen[-1] < newest:
                seen.append((await anext(busy)).version)
    assert is_bookmark(first)
    assert is_bookmark(mark)
    assert first.version < newest - 3 <= mark.version < newest
    assert seen[-1] == newest


async def _change(served: Served, kind: str, number: int) -> None:
    """One event of this kind, about something else than `busy` watches."""
    if kind == "Jobs":
        await relabel(served, "a", number=str(number))
    else:
        verb = "Uncordon" if number % 2 else "Cordon"
        request = getattr(service_pb2, f"{verb}HostRequest")(name="z0-r1-h1")
        await getattr(served.stub, f"{verb}Host")(request)


def is_bookmark(message: Any) -> bool:
    """Of a watch of any kind, and nothing besides."""
    if isinstance(message, service_pb2.WatchHostsResponse):
        return message.bookmark and not message.hosts
    return message.change == BOOKMARK and not message.HasField("job")


async def test_what_a_watch_cannot_do_is_refused(served: Served) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"bookmark_interval": duration(0.5)}, "bookmark_interval"),
        ({"bookmark_interval": duration(3_601)}, "bookmark_interval"),
        ({"initial_list": True, "after_version": 0}, "after_version"),
    ]
    for method, (fields, field) in product(("WatchJobs", "WatchHosts"), wrong):
        request = getattr(service_pb2, f"{method}Request")(**fields)
        error = await refused(anext(aiter(getattr(served.stub, method)(request))))
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))


async def test_the_client_shows_the_bookmark_that_ends_a_list_and_no_other(served: Served) -> None:
    await served.start("a")
    with Client(served.ready.address) as client:
        changes = client.watch_jobs(initial_list=True)
        seen = [await asyncio.to_thread(next, changes) for _ in range(2)]
        await relabel(served, "a", team="nlp")
        seen.append(await asyncio.to_thread(next, changes))
    assert [c.change for c in seen] == [LISTED, BOOKMARK, service_pb2.JOB_CHANGE_UPDATED]
