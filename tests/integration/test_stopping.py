"""Calls that arrive while a server stops: gRPC drops them as CANCELLED, and a client asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from scheduler.client import Client, ServiceError
from scheduler.v1 import job_pb2, service_pb2, service_pb2_grpc
from tests.build import spec
from tests.serving import create, serving


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
            self.is_heard.wait(10)
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
