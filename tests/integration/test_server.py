"""The server around the service: health, reflection, address, stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from scheduler.eventlog.recovery import Recovered, recover
from scheduler.eventlog.store import Store
from scheduler.server.serve import SERVICE, CannotListen, Settings, Signals, serve
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import fabric_spec
from tests.serving import Served, create, refused, serving, slow_disk, url

Status = health_pb2.HealthCheckResponse


def _channel(served: Served) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(served.ready.address)


async def _health(channel: grpc.aio.Channel, service: str = SERVICE) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


@pytest.mark.parametrize("service", ["", "scheduler.v1.SchedulerService"])
async def test_a_ready_server_is_healthy(tmp_path: Path, service: str) -> None:
    async with serving(tmp_path) as served, _channel(served) as channel:
        assert await _health(channel, service) == Status.SERVING


async def test_a_server_that_replays_its_log_is_up_but_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    go = threading.Event()

    def slowly(store: Store, spec: object, *args: Any, **options: Any) -> Recovered:
        assert go.wait(5)
        return recover(store, fabric_spec(), *args, **options)

    monkeypatch.setattr("scheduler.server.serve.recover", slowly)
    signals, ready = Signals(), asyncio.Event()
    address = f"127.0.0.1:{unused_tcp_port}"
    running = asyncio.create_task(
        serve(Settings(url(tmp_path), address, fabric_spec()), lambda _: ready.set(), signals)
    )
    async with grpc.aio.insecure_channel(address) as channel:
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        await asyncio.wait_for(channel.channel_ready(), 5)
        assert await _health(channel) == Status.NOT_SERVING
        error = await refused(stub.GetJob(service_pb2.GetJobRequest(name="a")))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        go.set()
        await ready.wait()
        assert await _health(channel) == Status.SERVING
    signals.stop.set()
    await running


async def test_reflection_lists_the_service(tmp_path: Path) -> None:
    async def ask() -> object:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    async with serving(tmp_path) as served, _channel(served) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        async for answer in stub.ServerReflectionInfo(ask()):
            names = {s.name for s in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_a_taken_address_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serving(tmp_path) as served:
        with pytest.raises(CannotListen, match="is another server there"):
            async with serving(tmp_path / "other", listen=served.ready.address):
                pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_port_that_others_would_share_is_refused(tmp_path: Path, host: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(CannotListen, match="is another server there"):
            async with serving(tmp_path, listen=f"{host}:{other.getsockname()[1]}"):
                pass


@pytest.mark.parametrize("listen", ["localhost", "127.0.0.1:http", ""])
async def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(CannotListen, match="give HOST:PORT"):
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
