"""Watches that list first, that bookmark, and that filter."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.client import Client
from scheduler.service.rpc.overview import watch
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.durations import duration
from tests.integration.test_windows import making
from tests.serving import COMPLETED, RUNNING, Served, create, refused, serving

LISTED, BOOKMARK = service_pb2.JOB_CHANGE_LISTED, service_pb2.JOB_CHANGE_BOOKMARK
SECOND = duration(1)


@contextmanager
def opened(stream: Any) -> Iterator[AsyncIterator[Any]]:
    try:
        yield aiter(stream)
    finally:
        stream.cancel()


def labelled(name: str, **labels: str) -> Any:
    request = create(name)
    request.spec.labels.update(labels)
    return request


async def relabel(served: Served, name: str, **labels: str) -> None:
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(labels=labels))
    mask = FieldMask(paths=["spec.labels"])
    await served.stub.UpdateJob(service_pb2.UpdateJobRequest(job=job, update_mask=mask))


async def test_jobs_at_hand_come_first_then_a_bookmark_then_every_change(served: Served) -> None:
    for name in ("a", "b"):
        await served.stub.CreateJob(create(name))
        await served.until(name, RUNNING)
    await served.stub.EndJob(service_pb2.EndJobRequest(name="a", outcome=COMPLETED))
    request = service_pb2.WatchJobsRequest(initial_list=True)
    with opened(served.stub.WatchJobs(request)) as changes:
        first, second, mark = [await anext(changes) for _ in range(3)]
        listed = await served.stub.ListJobs(service_pb2.ListJobsRequest())
        await served.stub.CreateJob(create("c"))
        after = await anext(changes)
    assert [(c.change, c.job.spec.name, c.job.state) for c in (first, second)] == [
        (LISTED, "a", COMPLETED),
        (LISTED, "b", RUNNING),
    ]
    assert first.version == mark.version == listed.version
    assert (mark.change, mark.HasField("job"), mark.HasField("change_time")) == (
        BOOKMARK,
        False,
        False,
    )
    assert (after.change, after.job.spec.name, after.version) == (
        service_pb2.JOB_CHANGE_SUBMITTED,
        "c",
        mark.version + 1,
    )


async def test_a_list_in_batches_has_all_jobs_in_one_message(served: Served) -> None:
    for name in ("a", "b"):
        await served.stub.CreateJob(create(name))
        await served.until(name, RUNNING)
    request = service_pb2.WatchJobsRequest(initial_list=True, in_batches=True)
    with opened(served.stub.WatchJobs(request)) as messages:
        listed, mark = [await anext(messages) for _ in range(2)]
    assert [(each.change, each.job.spec.name) for each in listed.changes] == [
        (LISTED, "a"),
        (LISTED, "b"),
    ]
    assert mark.change == BOOKMARK


async def test_a_list_has_what_the_watch_is_for(served: Served) -> None:
    async with asyncio.timeout(60):
        for name in ("a", "b", "c"):
            await served.stub.CreateJob(create(name))
            await served.until(name, RUNNING)
        for name in ("v", "w"):
            await served.stub.CreateWindow(making(name=name))
        await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z0", share=0.5))
        await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z1", share=0.5))
        seen = {}
        for kind, name, thing in (
            ("Jobs", "b", "job"),
            ("Hosts", "z1-r0-h1", "hosts"),
            ("Windows", "w", "window"),
            ("Links", "z1", "link"),
        ):
            request = getattr(service_pb2, f"Watch{kind}Request")(initial_list=True, name=name)
            with opened(getattr(served.stub, f"Watch{kind}")(request)) as changes:
                first, mark = await anext(changes), await anext(changes)
            assert is_bookmark(mark)
            of = getattr(first, thing)
            seen[name] = [each.name for each in of] if kind == "Hosts" else [of.name]
    assert seen == {
        name: [f"tenants/default/jobs/{name}" if name == "b" else name] for name in seen
    }
    assert len(seen) == 4


async def test_a_filter_lets_a_job_in_and_out_with_a_change(served: Served) -> None:
    await served.stub.CreateJob(labelled("mine", team="nlp"))
    await served.stub.CreateJob(labelled("other", team="vision"))
    for name in ("mine", "other"):
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

    await asyncio.gather(*map(watch_and_change, ("Jobs", "Hosts", "Windows", "Links")))


async def _is_told_how_far(kind: str, served: Served) -> None:
    other = {"Jobs": "nobody", "Hosts": "z1", "Windows": "w", "Links": "z1"}[kind]
    async with asyncio.timeout(60):
        await served.stub.CreateJob(create("a"))
        await served.until("a", RUNNING)
        request = getattr(service_pb2, f"Watch{kind}Request")
        watch = getattr(served.stub, f"Watch{kind}")
        with opened(watch(request(bookmark_interval=SECOND))) as idle:
            first = await anext(idle)
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
    match kind:
        case "Jobs":
            await relabel(served, "a", number=str(number))
        case "Hosts":
            call = served.stub.UncordonHost if number % 2 else served.stub.CordonHost
            verb = "Uncordon" if number % 2 else "Cordon"
            await call(getattr(service_pb2, f"{verb}HostRequest")(name="z0-r1-h1"))
        case "Windows":
            await served.stub.CreateWindow(making(name=f"w{number}"))
        case _:
            share = 1.0 if number % 2 else 0.5
            await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z0", share=share))


def is_bookmark(message: Any) -> bool:
    """Of a watch of any kind, and nothing besides."""
    if isinstance(message, service_pb2.WatchHostsResponse):
        return message.bookmark and not message.hosts
    if isinstance(message, service_pb2.WatchLinksResponse):
        return message.bookmark and not message.HasField("link")
    marks = {BOOKMARK, service_pb2.WINDOW_CHANGE_BOOKMARK}
    thing = "job" if isinstance(message, service_pb2.WatchJobsResponse) else "window"
    return message.change in marks and not message.HasField(thing)


async def test_what_a_watch_cannot_do_is_refused(served: Served) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"bookmark_interval": duration(0.5)}, "bookmark_interval"),
        ({"bookmark_interval": duration(3_601)}, "bookmark_interval"),
        ({"initial_list": True, "after_version": 0}, "after_version"),
    ]
    for method, (fields, field) in product(("WatchJobs", "WatchHosts", "WatchWindows"), wrong):
        request = getattr(service_pb2, f"{method}Request")(**fields)
        error = await refused(anext(aiter(getattr(served.stub, method)(request))))
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))


async def test_hosts_and_windows_are_listed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_HOSTS", 3)
    async with serving(tmp_path) as served:
        await served.stub.CreateWindow(making())
        hosts = service_pb2.WatchHostsRequest(initial_list=True, name="z0")
        with opened(served.stub.WatchHosts(hosts)) as changes:
            first, second, mark = [await anext(changes) for _ in range(3)]
        windows = service_pb2.WatchWindowsRequest(initial_list=True, filter="kind = MAINTENANCE")
        with opened(served.stub.WatchWindows(windows)) as changes:
            window, end = [await anext(changes) for _ in range(2)]
    names = [host.name for host in (*first.hosts, *second.hosts)]
    assert names == ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0", "z0-r1-h1"]
    assert (first.more, second.more, mark.more, mark.bookmark) == (True, True, False, True)
    assert (window.change, window.window.name) == (service_pb2.WINDOW_CHANGE_LISTED, "w")
    assert end.change == service_pb2.WINDOW_CHANGE_BOOKMARK


async def test_the_client_shows_the_bookmark_that_ends_a_list_and_no_other(served: Served) -> None:
    await served.stub.CreateJob(create("a"))
    await served.until("a", RUNNING)

    has_listed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> list[int]:
        seen = []
        with Client(served.ready.address) as client:
            for change in islice(client.watch_jobs(initial_list=True), 3):
                seen.append(change.change)
                if change.change == BOOKMARK:
                    loop.call_soon_threadsafe(has_listed.set)
        return seen

    reading = asyncio.create_task(asyncio.to_thread(read))
    listed = asyncio.create_task(has_listed.wait())
    await asyncio.wait({reading, listed}, return_when=asyncio.FIRST_COMPLETED)
    listed.cancel()
    await relabel(served, "a", team="nlp")
    assert await reading == [LISTED, BOOKMARK, service_pb2.JOB_CHANGE_UPDATED]
