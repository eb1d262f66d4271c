"""A real server in the test's own event loop, on a store that outlives it.

async with serving(tmp_path) as served:
    await served.stub.CreateJob(create("a", hosts=2))
    await served.until("a", RUNNING)
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from scheduler.core.model.events import Event
from scheduler.eventlog.store import open_store
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.server.config import ServerKeys
from scheduler.server.serve import Ready, Settings, Signals, serve
from scheduler.v1 import host_pb2, job_pb2, service_pb2, service_pb2_grpc
from scheduler.wire.specs import spec_to_proto
from tests.build import fabric_spec, spec
from tests.waiting import until

QUEUED, RUNNING = job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING
COMPLETED, CANCELLED = job_pb2.JOB_STATE_COMPLETED, job_pb2.JOB_STATE_CANCELLED
START_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Served:
    """A running server: its address and a stub for it."""

    ready: Ready
    stub: service_pb2_grpc.SchedulerServiceAsyncStub
    task: asyncio.Task[None]
    stop: asyncio.Event
    reload: asyncio.Event

    async def read_again(self) -> None:
        """Have the server read its files anew, as SIGHUP does, and wait until it has."""
        self.reload.set()
        await until(lambda: not self.reload.is_set())

    async def get(self, name: str) -> job_pb2.Job:
        """The job without its goodput, which time changes."""
        job = await self.stub.GetJob(service_pb2.GetJobRequest(name=name))
        job.ClearField("goodput")
        return job

    async def until(self, name: str, state: job_pb2.JobState.ValueType) -> job_pb2.Job:
        """The job once it is in `state`."""
        return await until(lambda: self.get(name), lambda job: job.state == state)

    async def start(self, name: str, hosts: int = 1, **job: Any) -> job_pb2.Job:
        """Submit a job, as `create` makes it, and return it once it runs."""
        made = await self.stub.CreateJob(create(name, hosts, **job))
        return await self.until(made.name, RUNNING)

    async def cancel(self, name: str) -> job_pb2.Job:
        return await self.stub.CancelJob(service_pb2.CancelJobRequest(name=name))

    async def report(self, host: str, signal: str = "gpu-lost", **more: str) -> host_pb2.Host:
        """Report a signal of a host, which fails by the one that is not given."""
        request = service_pb2.ReportHostRequest(name=host, signal=signal, **more)
        return (await self.stub.ReportHost(request)).host

    async def hosts(self) -> dict[str, host_pb2.Host]:
        """Every host by its name."""
        answer = await self.stub.ListHosts(service_pb2.ListHostsRequest())
        return {host.name: host for host in answer.hosts}

    async def hosts_of(self, name: str, *, but: list[str] | None = None) -> list[str]:
        """Those of a job in block order, once it has any and they are no longer `but`."""
        job = await until(lambda: self.get(name), lambda job: job.placement.hosts not in ([], but))
        return list(job.placement.hosts)


async def messages(stream: Any, count: int) -> list[Any]:
    """Return the next `count` messages of a stream, which is cancelled after them."""
    found = [await anext(aiter(stream)) for _ in range(count)]
    stream.cancel()
    return found


async def until_running(stub: Any, name: str) -> job_pb2.Job:
    """The job of that name, as the caller of `stub` names it, once it runs."""
    request = service_pb2.GetJobRequest(name=name)
    return await until(lambda: stub.GetJob(request), lambda job: job.state == RUNNING)


def ticking() -> Callable[[], int]:
    """A clock that moves one millisecond a reading."""
    readings = count(START_NS, 1_000_000)
    return lambda: next(readings)


# Settings that are keys of the server file.
KEYS = {
    **{key: key for key in ("store", "listen", "drain_s", "advertise", "lease_s", "watch_changes")},
    **{key: key for key in ("init", "mark", "notify")},
    **{"tenants_file": "tenants", "health_file": "health"},
}


@asynccontextmanager
async def serving(
    folder: Path, *, channel: Callable[[str], grpc.aio.Channel] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Serve eight hosts from the store in `folder` until the block ends.

    `channel`: how the stub gets there, in the clear when it is not given.
    """
    chosen: dict[str, Any] = {
        "store": url(folder),
        "listen": "127.0.0.1:0",
        "fabric_spec": fabric_spec(),
        "clock": ticking(),
        "measure": None,
        **settings,
    }
    ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    signals = Signals()
    keys = {key: chosen.pop(name) for name, key in KEYS.items() if name in chosen}
    made = Settings(ServerKeys().model_copy(update=keys), **chosen)
    task = asyncio.create_task(serve(made, ready.set_result, signals))
    waiting: set[asyncio.Future[Any]] = {task, ready}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await task
    async with (channel or grpc.aio.insecure_channel)(ready.result().address) as opened:
        stub = service_pb2_grpc.SchedulerServiceStub(opened)
        yield Served(ready.result(), stub, task, signals.stop, signals.reload)
    signals.stop.set()
    await task


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'muster.db'}"


def change(path: Path, statement: str) -> None:
    """Change the file of a store behind its back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def logged(folder: Path) -> list[Event]:
    """The events in the store of a server that has stopped."""
    store = open_store(url(folder))
    try:
        return [event for _, event in store.read()]
    finally:
        store.close()


def slow_disk(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.02) -> list[int]:
    """Delay every append; the list grows by the number of events of each."""
    sizes: list[int] = []
    append = SqliteStore.append

    def slowly(self: SqliteStore, expected: int, events: Sequence[Event], *more: Any) -> int:
        time.sleep(seconds)
        sizes.append(len(events))
        return append(self, expected, events, *more)

    monkeypatch.setattr(SqliteStore, "append", slowly)
    return sizes


def path(name: str, tenant: str = "default") -> str:
    """The resource name of a job."""
    return f"tenants/{tenant}/jobs/{name}"


def create(name: str, hosts: int = 1, *, request_id: str = "", **job: Any) -> Any:
    """A CreateJobRequest; `job` as for tests.build.spec."""
    message = spec_to_proto(spec(name, hosts, **job))
    return service_pb2.CreateJobRequest(spec=message, request_id=request_id)


@dataclass(frozen=True)
class Error:
    """How a call ended: code, sentence, ErrorInfo's reason, domain and facts, fields at fault."""

    code: grpc.StatusCode
    message: str
    reason: str
    domain: str
    fields: tuple[str, ...]
    facts: dict[str, str]


async def refused(call: Any) -> Error:
    """The error of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_of(caught.value)


async def rest(stream: Any) -> tuple[list[Any], Error]:
    """The messages that a stream still has, and how it ends."""
    found: list[Any] = []
    try:
        async for each in stream:
            found.append(each)
    except grpc.aio.AioRpcError as error:
        return found, error_of(error)
    raise AssertionError("it ended well")


def error_of(error: grpc.aio.AioRpcError) -> Error:
    info, bad = ErrorInfo(), BadRequest()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        _ = detail.Unpack(info) or detail.Unpack(bad)
    fields = tuple(violation.field for violation in bad.field_violations)
    said, facts = error.details() or "", dict(info.metadata)
    return Error(error.code(), said, info.reason, info.domain, fields, facts)
