"""Bytes that are no message: refused as the caller's mistake, counted, and hardly logged."""

from pathlib import Path

import grpc
import pytest

from tests.integration.test_metrics import HERE, scraped
from tests.serving import refused, serving

GARBAGE = b"\x0a\xff\xff\xff\xff"  # a text of four gigabytes that is not there


@pytest.mark.parametrize("method", ["GetJob", "CreateJob", "WatchJobs"])
async def test_garbage_is_the_callers_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with (
        serving(tmp_path, metrics=HERE) as served,
        grpc.aio.insecure_channel(served.ready.address) as channel,
    ):
        path = f"/scheduler.v1.SchedulerService/{method}"
        make = channel.unary_stream if method.startswith("Watch") else channel.unary_unary
        for _ in range(20):
            call = make(path)(GARBAGE)
            error = await refused(call if method[0] != "W" else _first(call))
            assert error.code is grpc.StatusCode.INVALID_ARGUMENT
            assert error.reason == "INVALID"
            assert error.message.startswith("the message is not what this method takes: ")
        found = await scraped(served)
    labels = {"method": f"SchedulerService/{method}", "code": "INVALID_ARGUMENT"}
    assert found("muster_rpc_total", **labels) == 20
    lines = [record.message for record in caplog.records if record.name == "muster.access"]
    assert len(lines) == 1
    assert lines[0].startswith(f"messages that cannot be decoded: 1, the last one for {method}")
    assert "Traceback" not in caplog.text


async def _first(call: grpc.aio.UnaryStreamCall[bytes, bytes]) -> bytes | None:
    async for message in call:
        return message
    return None


async def test_garbage_in_a_stream_of_requests_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    async with (
        serving(tmp_path) as served,
        grpc.aio.insecure_channel(served.ready.address) as channel,
    ):
        call = channel.stream_stream(path)(iter([GARBAGE]))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in caplog.text
