"""Windows through a real server: made, listed, changed, removed; opened by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler.core.model.job import SECOND_NS
from scheduler.v1 import host_pb2, service_pb2, window_pb2
from tests.serving import QUEUED, RUNNING, START_NS, Served, create, refused, serving
from tests.waiting import until

PENDING, OPEN = window_pb2.WINDOW_STATE_PENDING, window_pb2.WINDOW_STATE_OPEN
MAINTENANCE = window_pb2.WINDOW_KIND_MAINTENANCE


def at(seconds: float) -> Timestamp:
    moment = Timestamp()
    moment.FromNanoseconds(START_NS + round(seconds * SECOND_NS))
    return moment


def wanted(
    name: str = "w", start_s: float = 3_600, end_s: float = 7_200, **more: Any
) -> window_pb2.Window:
    given = {"kind": MAINTENANCE, "hosts": ["z0"], **more}
    return window_pb2.Window(name=name, start_time=at(start_s), end_time=at(end_s), **given)


def making(**window: Any) -> service_pb2.CreateWindowRequest:
    return service_pb2.CreateWindowRequest(window=wanted(**window))


async def windows(served: Served) -> list[window_pb2.Window]:
    answer = await served.stub.ListWindows(service_pb2.ListWindowsRequest())
    return list(answer.windows)


async def test_what_is_wrong_is_named_by_field(served: Served) -> None:
    cases = {
        "window.end_time": wanted(end_s=0),
        "window.hosts.0": wanted(hosts=["z9"]),
        "window.start_time": window_pb2.Window(name="w", kind=MAINTENANCE, end_time=at(9)),
        "window.kind": window_pb2.Window(name="w", start_time=at(0), end_time=at(9)),
    }
    for field, window in cases.items():
        request = service_pb2.CreateWindowRequest(window=window)
        error = await refused(served.stub.CreateWindow(request))
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.fields == (field,)
    request = making()
    request.validate_only = True
    assert (await served.stub.CreateWindow(request)).state == PENDING
    assert await windows(served) == []
    await served.stub.CreateWindow(making())
    for request in (
        service_pb2.UpdateWindowRequest(window=window_pb2.Window(name="w", kind=99)),  # type: ignore[arg-type]
        service_pb2.UpdateWindowRequest(
            window=window_pb2.Window(name="w"), update_mask=FieldMask(paths=["kind"])
        ),
    ):
        assert (await refused(served.stub.UpdateWindow(request))).fields == ("window.kind",)


async def test_the_clock_opens_and_closes_a_window(tmp_path: Path) -> None:
    """Nothing else happens: no command, no end of a gang."""
    now_ns = START_NS

    def clock() -> int:
        return now_ns

    async with serving(tmp_path, clock=clock) as served:
        await served.stub.CreateWindow(making(start_s=0.05, end_s=1_000))
        waiting = create("a", hosts=8)
        waiting.spec.time_limit.seconds = 60
        await served.stub.CreateJob(waiting)
        now_ns += SECOND_NS // 10
        await until(lambda: windows(served), lambda listed: listed[0].state == OPEN)
        hosts = await served.stub.ListHosts(
            service_pb2.ListHostsRequest(states=[host_pb2.HOST_STATE_CORDONED])
        )
        assert {host.reason for host in hosts.hosts} == {"window w"}
        assert len(hosts.hosts) == 4
        job = await served.until("a", QUEUED)
        assert "window w ends in" in job.reason
        shorter = service_pb2.UpdateWindowRequest(
            window=window_pb2.Window(name="w", end_time=at(0.15))
        )
        await served.stub.UpdateWindow(shorter)
        now_ns += SECOND_NS // 10
        await served.until("a", RUNNING)
        assert await windows(served) == []


async def test_a_window_is_a_resource_with_its_times_and_a_name_for_what_it_is(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        made = await served.stub.CreateWindow(making())
        assert list(made.chosen_hosts) == ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0", "z0-r1-h1"]
        assert await served.stub.CreateWindow(making()) == made
        found = await served.stub.GetWindow(service_pb2.GetWindowRequest(name="w"))
        assert found == made
        assert made.create_time == made.update_time
        longer = service_pb2.UpdateWindowRequest(
            window=window_pb2.Window(name="w", end_time=at(9_000), reason="no field of the mask"),
            update_mask=FieldMask(paths=["end_time"]),
        )
        changed = await served.stub.UpdateWindow(longer)
        assert (changed.end_time, changed.reason) == (at(9_000), "")
        assert (changed.uid, changed.create_time) == (made.uid, made.create_time)
        assert changed.update_time.ToNanoseconds() > made.update_time.ToNanoseconds()
        assert changed.etag != made.etag
        remove = service_pb2.DeleteWindowRequest(name="w")
        assert (await served.stub.DeleteWindow(remove)).name == "w"
        assert await windows(served) == []
        missing = await refused(served.stub.DeleteWindow(remove))
        other = await served.stub.CreateWindow(making())
        assert other.uid != made.uid
    async with serving(tmp_path) as served:
        again = await served.stub.GetWindow(service_pb2.GetWindowRequest(name="w"))
        assert (again.uid, again.etag) == (other.uid, other.etag)
        error = await refused(served.stub.GetWindow(service_pb2.GetWindowRequest(name="v")))
    for answer in (missing, error):
        assert (answer.code, answer.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


async def test_who_has_seen_another_window_changes_nothing(served: Served) -> None:
    old = await served.stub.CreateWindow(making())
    longer = service_pb2.UpdateWindowRequest(
        window=window_pb2.Window(name="w", end_time=at(9_000), etag=old.etag)
    )
    now = await served.stub.UpdateWindow(longer)
    longer.window.end_time.CopyFrom(at(9_500))
    stale = await refused(served.stub.UpdateWindow(longer))
    gone = service_pb2.DeleteWindowRequest(name="w", etag=old.etag)
    kept = await refused(served.stub.DeleteWindow(gone))
    assert await windows(served) == [now]
    gone.etag = now.etag
    await served.stub.DeleteWindow(gone)
    assert await windows(served) == []
    assert {stale.reason, kept.reason} == {"ETAG_MISMATCH"}
    assert stale.code is grpc.StatusCode.ABORTED


async def test_a_repeat_speaks_of_the_window_that_it_made_or_removed(served: Served) -> None:
    made, remove = making(), service_pb2.DeleteWindowRequest(name="w")
    made.request_id, remove.request_id = "r1", "r2"
    first = await served.stub.CreateWindow(made)
    assert (await served.stub.DeleteWindow(remove)).uid == first.uid
    error = await refused(served.stub.CreateWindow(made))
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_STATE")
    assert "this request made before, is over" in error.message
    second = await served.stub.CreateWindow(making())
    again = await served.stub.DeleteWindow(remove)
    assert (again.uid, again.state) == ("", window_pb2.WINDOW_STATE_OVER)
    assert [window.uid for window in await windows(served)] == [second.uid]


async def test_windows_come_in_pages(served: Served) -> None:
    for name in ("c", "a", "b"):
        await served.stub.CreateWindow(making(name=name))
    request = service_pb2.ListWindowsRequest(page_size=2, order_by="name")
    first = await served.stub.ListWindows(request)
    request.page_token = first.next_page_token
    rest = await served.stub.ListWindows(request)
    assert [w.name for w in (*first.windows, *rest.windows)] == ["a", "b", "c"]
    assert rest.next_page_token == ""
    request.order_by = "size"
    assert (await refused(served.stub.ListWindows(request))).fields == ("order_by",)
    bad = service_pb2.ListWindowsRequest(filter="start_time = soon")
    assert (await refused(served.stub.ListWindows(bad))).fields == ("filter",)
