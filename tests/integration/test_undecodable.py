"""Bytes that are no message: refused as the caller's mistake, counted, and hardly logged."""

from pathlib import Path

import grpc
import pytest

from tests.integration.test_metrics import HERE, scraped
from tests.serving import refused, serving

GARBAGE = b"\x0a\xff\xff\xff\xff"  # a text of four gigabytes that is not there


async def test_garbage_is_the_callers_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(tmp_path, metrics=HERE) as served,
        grpc.aio.insecure_channel(served.ready.address) as channel,
    ):
        for method in ("GetJob", "CreateJob", "WatchJobs"):
            path = f"/scheduler.v1.SchedulerService/{method}"
            is_watch = method.startswith("Watch")
            make = channel.unary_stream if is_watch else channel.unary_unary
            for _ in range(20):
                call = make(path)(GARBAGE)
                error = await refused(_first(call) if is_watch else call)
                assert error.code is grpc.StatusCode.INVALID_ARGUMENT
                assert error.reason == "INVALID"
                assert error.message.startswith("the message is not what this method takes: ")
            labels = {"method": f"SchedulerService/{method}", "code": "INVALID_ARGUMENT"}
            assert (await scraped(served))("muster_rpc_total", **labels) == 20
    lines = [record.message for record in caplog.records if record.name == "muster.access"]
    assert len(lines) == 1
    assert lines[0].startswith("messages that cannot be decoded: 1, the last one for GetJob")
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
