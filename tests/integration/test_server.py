"""The server around the service: health, reflection, address, stop."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scheduler.client import Client, ServiceError
from scheduler.eventlog.recovery import Recovered, recover
from scheduler.eventlog.store import Store
from scheduler.server.config import ServerKeys
from scheduler.server.serve import SERVICE, CannotListen, Settings, Signals, serve
from scheduler.v1 import job_pb2, service_pb2, service_pb2_grpc
from tests.build import fabric_spec, spec
from tests.serving import Served, create, refused, serving, slow_disk, url

Status = health_pb2.HealthCheckResponse


def _channel(served: Served) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(served.ready.address)


async def _health(channel: grpc.aio.Channel, service: str = SERVICE) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_a_server_that_replays_its_log_is_up_but_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    go = threading.Event()

    def slowly(store: Store, spec: object, *args: Any, **options: Any) -> Recovered:
        assert go.wait(60)
        return recover(store, fabric_spec(), *args, **options)

    monkeypatch.setattr("scheduler.server.serve.recover", slowly)
    signals, ready = Signals(), asyncio.Event()
    address = f"127.0.0.1:{unused_tcp_port}"
    keys = ServerKeys(store=url(tmp_path), listen=address)
    running = asyncio.create_task(
        serve(Settings(keys, fabric_spec()), lambda _: ready.set(), signals)
    )
    async with grpc.aio.insecure_channel(address) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        await asyncio.wait_for(channel.channel_ready(), 5)
        assert await _health(channel) == Status.NOT_SERVING
        error = await refused(stub.GetJob(service_pb2.GetJobRequest(name="a")))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "STARTING")
        go.set()
        await ready.wait()
        for service in ("", SERVICE):
            assert await _health(channel, service) == Status.SERVING
    signals.stop.set()
    await running


async def test_an_address_that_is_taken_or_none_is_refused(tmp_path: Path) -> None:
    """Also where others would share its port, and where one of several addresses is taken."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = [f"{host}:{other.getsockname()[1]}" for host in ("127.0.0.1", "localhost")]
        for listen in (*taken, "localhost", "127.0.0.1:http", ""):
            words = "is another server there" if listen in taken else "give HOST:PORT"
            with pytest.raises(CannotListen, match=words):
                async with serving(tmp_path, listen=listen):
                    pass


async def test_a_stopping_server_finishes_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("before"))  # the connection stands
        slow_disk(monkeypatch, 0.2)
        submit = asyncio.ensure_future(served.stub.CreateJob(create("a")))
        await asyncio.sleep(0.05)
        served.stop.set()
        assert (await submit).spec.name == "a"
        await asyncio.wait_for(served.task, 30)
    async with serving(tmp_path) as served:
        assert (await served.get("a")).spec.name == "a"


# --- calls that arrive while a server stops ------------------------------------------


class Stopping(service_pb2_grpc.SchedulerServiceServicer):
    """Drops so many calls as a server does that stops, then answers. `asked`: request ids.

    A watch that it drops has begun: it is dropped once the client has heard of it.
    """

    def __init__(self, drops: int) -> None:
        self.drops = drops
        self.asked: list[str] = []
        self.is_heard = Event()

    def CreateJob(self, request: service_pb2.CreateJobRequest, context: Any) -> Any:
        self.asked.append(request.request_id)
        self._drop(context)
        return job_pb2.Job(name=request.spec.name)

    def WatchHosts(
        self, request: service_pb2.WatchHostsRequest, context: Any
    ) -> Iterator[service_pb2.WatchHostsResponse]:
        context.send_initial_metadata((("muster-version", "7"),))
        if self.drops:
            yield service_pb2.WatchHostsResponse(version=8, more=True)
            self.is_heard.wait(60)
        self._drop(context)
        yield service_pb2.WatchHostsResponse(version=request.after_version + 1)

    def _drop(self, context: Any) -> None:
        if self.drops:
            self.drops -= 1
            context.abort(grpc.StatusCode.CANCELLED, "")


@contextmanager
def stopping(drops: int) -> Iterator[tuple[Stopping, str]]:
    servicer, server = Stopping(drops), grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield servicer, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "one of two"])
def test_a_dropped_call_is_made_again_with_its_request_id(count: int) -> None:
    with stopping(drops=2) as (servicer, address), Client(",".join([address] * count)) as client:
        assert client.create_job(spec("a")).name == "a"
    assert len(servicer.asked) == 3
    assert len(set(servicer.asked)) == 1


def test_a_dropped_watch_goes_on_where_it_was() -> None:
    with stopping(drops=1) as (servicer, address), Client(address) as client:
        changes = client.watch_hosts()
        assert next(changes).more  # not yet a whole change
        servicer.is_heard.set()
        again = next(changes)
        assert (again.version, again.more) == (8, False)
        changes.close()


def test_a_call_that_is_always_dropped_ends_with_a_sentence() -> None:
    with (
        stopping(drops=100) as (_, address),
        Client(address) as client,
        pytest.raises(ServiceError, match=f"{address} stopped before it answered") as caught,
    ):
        client.create_job(spec("a"))
    assert caught.value.code == "CANCELLED"


async def test_a_server_that_waits_for_calls_as_it_stops_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("scheduler.engine.writer.Writer.submit", never)
    with caplog.at_level(logging.WARNING):
        async with serving(tmp_path, drain_s=0.4) as served:
            call = served.stub.CreateJob(create("a"))
            await begun.wait()
            served.stop.set()
            with pytest.raises(grpc.aio.AioRpcError):
                await call
    assert "have not ended 0.2 s after the stop: 1;" in caplog.text
