"""A client that opens a watch and reads nothing: HTTP/2 stops the server from sending, so what
it may not send must not gather."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from scheduler.server.metrics.exposition import MetricsEndpoint
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.serving import Served, create, error_of, serving

DEPTH, JOBS = 20, 120
BULK = {f"l{number}": "x" * 250 for number in range(60)}  # 15 kB a change
# No more than this is on its way before the client reads: else windows grow to megabytes.
NARROW = (("grpc.http2.lookahead_bytes", 65_535), ("grpc.http2.bdp_probe", 0))


async def _lag(served: Served) -> float:
    """Changes that the server keeps for the slowest watcher."""

    def text() -> str:
        with urlopen(served.ready.metrics, timeout=5) as answer:
            return str(answer.read().decode())

    lines = (await asyncio.to_thread(text)).splitlines()
    return float(next(s for s in lines if s.startswith("muster_watch_lag_changes")).split()[1])


async def _submit(served: Served) -> float:
    """Many changes; the most that were ever kept."""
    most = 0.0
    for number in range(JOBS):
        request = create(f"j{number}", 8)
        request.spec.labels.update(BULK)
        await served.stub.CreateJob(request)
        if number % 5 == 0:
            most = max(most, await _lag(served))
    return most


async def _rest(stream: grpc.aio.UnaryStreamCall) -> list[int]:  # type: ignore[type-arg]
    """The versions that were on their way, until the stream ends as cut off."""
    versions: list[int] = []

    async def read() -> None:
        async for change in stream:
            versions.append(change.version)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read()
    assert error_of(caught.value).reason == "WATCH_BEHIND"
    return versions


async def test_a_client_that_stops_reading_is_cut_off_and_resumes_where_it_was(
    tmp_path: Path,
) -> None:
    exposed = MetricsEndpoint("127.0.0.1", 0)
    async with (
        serving(tmp_path, watch_depth=DEPTH, metrics=exposed) as served,
        grpc.aio.insecure_channel(served.ready.address, options=NARROW) as channel,
    ):
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        stream = stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0))
        await stream.initial_metadata()
        most = await _submit(served)
        assert 0 < most <= DEPTH
        assert await _lag(served) == 0  # cut off, and what it did not read is dropped
        seen = await asyncio.wait_for(_rest(stream), 20)
        assert 0 < len(seen) < JOBS
        again = stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=seen[-1]))
        async for change in again:
            seen.append(change.version)
            if change.job.spec.name == f"j{JOBS - 1}":
                break
        again.cancel()
    assert seen == sorted(set(seen))
    assert len(seen) >= JOBS  # each submitted, and some started
