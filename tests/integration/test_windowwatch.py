"""Watching windows: every change once, in order, from any version, and for whom it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from scheduler.client import Client
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import service_pb2, window_pb2
from tests.integration.test_accounting import Clock
from tests.integration.test_windows import at
from tests.secured import House
from tests.serving import Served, serving
from tests.waiting import until

Seen = tuple[int, str, str, str]  # version, window, what happened, state after it

LIFE: list[Seen] = [
    (2, "a", "CREATED", "PENDING"),
    (3, "b", "CREATED", "PENDING"),
    (5, "b", "UPDATED", "PENDING"),
    (6, "b", "REMOVED", "OVER"),
    (7, "a", "OPENED", "OPEN"),
    (8, "a", "CLOSED", "OVER"),
]


def window(name: str, start_s: float = 600, **more: Any) -> window_pb2.Window:
    given = {"kind": window_pb2.WINDOW_KIND_MAINTENANCE, "hosts": ["z0"], **more}
    times = {"start_time": at(start_s), "end_time": at(start_s + 0.05)}
    return window_pb2.Window(name=name, **times, **given)


def reservation(name: str, tenant: str, hosts: str) -> window_pb2.Window:
    kind = window_pb2.WINDOW_KIND_RESERVATION
    return window(name, kind=kind, tenant=tenant, hosts=[hosts])


def making(made: window_pb2.Window) -> service_pb2.CreateWindowRequest:
    return service_pb2.CreateWindowRequest(window=made)


def _seen(change: service_pb2.WatchWindowsResponse) -> Seen:
    kind = service_pb2.WindowChange.Name(change.change).removeprefix("WINDOW_CHANGE_")
    state = window_pb2.WindowState.Name(change.window.state).removeprefix("WINDOW_STATE_")
    return (change.version, change.window.name, kind, state)


async def _read(stub: Any, count: int, **request: Any) -> list[Seen]:
    """The next `count` changes."""
    stream = stub.WatchWindows(service_pb2.WatchWindowsRequest(**request))
    seen = []
    async for change in stream:
        seen.append(_seen(change))
        if len(seen) == count:
            stream.cancel()
            return seen
    raise AssertionError("the stream ended")


async def _listed(served: Served) -> list[tuple[str, int]]:
    answer = await served.stub.ListWindows(service_pb2.ListWindowsRequest())
    return [(window.name, window.state) for window in answer.windows]


async def _life(served: Served, clock: Clock) -> None:
    """Versions 2 to 8, of which 4 changes no window."""
    stub = served.stub
    await stub.CreateWindow(making(window("a", 0.05)))
    await stub.CreateWindow(making(window("b")))
    await stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h0"))
    changed = window_pb2.Window(name="b", reason="firmware")
    await stub.UpdateWindow(service_pb2.UpdateWindowRequest(window=changed))
    await stub.DeleteWindow(service_pb2.DeleteWindowRequest(name="b"))
    for expected in ([("a", window_pb2.WINDOW_STATE_OPEN)], []):
        clock.now_ns += 60 * SECOND_NS // 1_000
        await until(lambda: _listed(served), lambda listed, due=expected: listed == due)


async def test_a_live_watch_sees_what_a_replay_sees(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path, clock=clock) as served:
        live = asyncio.create_task(_read(served.stub, len(LIFE), after_version=1))
        await _life(served, clock)
        assert await live == LIFE
    async with serving(tmp_path, clock=clock) as served:
        assert await _read(served.stub, len(LIFE), after_version=0) == LIFE
        for after in range(1, 8):
            expected = [seen for seen in LIFE if seen[0] > after]
            found = await _read(served.stub, len(expected), after_version=after)
            assert found == expected, after
        of_b = [seen for seen in LIFE if seen[1] == "b"]
        assert await _read(served.stub, len(of_b), after_version=0, name="b") == of_b


async def test_a_filter_lets_a_window_in_and_out_with_a_change(served: Served) -> None:
    stub = served.stub
    for name, reason in (("a", "firmware"), ("b", "cables")):
        await stub.CreateWindow(making(window(name, reason=reason)))
    changes = [("b", "firmware"), ("a", "cables"), ("a", "fans"), ("b", "firmware again")]
    request = service_pb2.WatchWindowsRequest(filter='reason = "firmware*"', initial_list=True)
    stream = aiter(watching := stub.WatchWindows(request))
    start = [_seen(await anext(stream)) for _ in range(2)]
    for name, reason in changes:
        changed = window_pb2.Window(name=name, reason=reason)
        await stub.UpdateWindow(service_pb2.UpdateWindowRequest(window=changed))
    await stub.DeleteWindow(service_pb2.DeleteWindowRequest(name="b"))
    later = [_seen(await anext(stream)) for _ in range(4)]
    watching.cancel()
    assert [(name, kind) for _, name, kind, _ in (*start, *later)] == [
        ("a", "LISTED"),
        ("", "BOOKMARK"),
        ("b", "UPDATED"),
        ("a", "UPDATED"),
        ("b", "UPDATED"),
        ("b", "REMOVED"),
    ]


async def test_the_client_resumes_where_the_server_restarts(tmp_path: Path) -> None:
    """From now on, then across a restart: no change is missed, none told twice."""
    async with serving(tmp_path) as served:
        address = served.ready.address
        client = Client(address)
        changes = client.watch_windows(after_version=1)
        await served.stub.CreateWindow(making(window("a")))
        first = await asyncio.to_thread(next, changes)
        await served.stub.DeleteWindow(service_pb2.DeleteWindowRequest(name="a"))
    async with serving(tmp_path, listen=address) as served:
        await served.stub.CreateWindow(making(window("c")))
        rest = [await asyncio.to_thread(next, changes) for _ in range(2)]
        await asyncio.to_thread(client.close)
    assert [_seen(change)[1:3] for change in (first, *rest)] == [
        ("a", "CREATED"),
        ("a", "REMOVED"),
        ("c", "CREATED"),
    ]


async def test_a_tenant_is_told_of_its_own_windows_alone(tmp_path: Path) -> None:
    """One that goes to another tenant is gone for those it was held for."""
    house = House(tmp_path)
    tenants = Tenants((Tenant("nlp"), Tenant("vision")), "vision")
    root, ada = house.token("root", "admin"), house.token("ada", "viewer", "nlp")
    async with (
        serving(tmp_path, access=house.access(), tenants=tenants) as served,
        house.calling(served, root) as stub,
        house.calling(served, ada) as bound,
    ):
        live = asyncio.create_task(_read(bound, 4, after_version=2))
        await stub.CreateWindow(making(reservation("theirs", "vision", "z0-r0")))
        await stub.CreateWindow(making(reservation("ours", "nlp", "z0-r1")))
        for name, tenant in (("ours", "vision"), ("theirs", "nlp")):
            moved = window_pb2.Window(name=name, tenant=tenant)
            await stub.UpdateWindow(service_pb2.UpdateWindowRequest(window=moved))
        await stub.CreateWindow(making(window("everybodys", hosts=["z1"])))
        seen = await live
        again = await _read(bound, 4, after_version=0)
        whole = await _read(stub, 5, after_version=0)
    assert [one[1:] for one in seen] == [
        ("ours", "CREATED", "PENDING"),
        ("ours", "REMOVED", "OVER"),
        ("theirs", "CREATED", "PENDING"),
        ("everybodys", "CREATED", "PENDING"),
    ]
    assert again == seen
    assert [one[2] for one in whole] == ["CREATED", "CREATED", "UPDATED", "UPDATED", "CREATED"]
