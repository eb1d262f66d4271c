"""What a job's time went to, as a server tells it, before and after a restart."""

from pathlib import Path

from google.protobuf.timestamp_pb2 import Timestamp

from scheduler.cli.render.goodput import goodput_text
from scheduler.server.metrics.exposition import MetricsEndpoint
from scheduler.v1 import job_pb2, service_pb2
from tests.integration.test_metrics import scraped
from tests.serving import COMPLETED, RUNNING, Served, create, serving

HERE = MetricsEndpoint("127.0.0.1", 0, is_per_job=True)


async def shown(served: Served, name: str) -> job_pb2.Job:
    return await served.stub.GetJob(service_pb2.GetJobRequest(name=name))


async def finish(served: Served, name: str) -> None:
    await served.stub.EndJob(service_pb2.EndJobRequest(name=name, outcome=COMPLETED))


def ns(moment: Timestamp) -> int:
    return moment.seconds * 10**9 + moment.nanos


def times(goodput: job_pb2.Goodput) -> dict[int, int]:
    return {share.part: share.duration.ToNanoseconds() for share in goodput.parts}


async def test_a_restart_of_the_server_forgets_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a", hosts=2))
        await served.until("a", RUNNING)
        found = await shown(served, "a")
        goodput, host = found.goodput, found.placement.hosts[0]
        assert sum(times(goodput).values()) == ns(goodput.count_time) - ns(found.create_time)
        assert [share.part for share in goodput.parts] == list(job_pb2.GoodputPart.values())[1:]
        assert "productive" in goodput_text(goodput)
        await served.stub.ReportHost(service_pb2.ReportHostRequest(name=host, signal="gpu-lost"))
        await served.until("a", RUNNING)
        await finish(served, "a")
        before = (await shown(served, "a")).goodput
    async with serving(tmp_path) as served:
        after = (await shown(served, "a")).goodput
        assert after == before
    assert (
        times(after)[job_pb2.GOODPUT_PART_REWORK] + times(after)[job_pb2.GOODPUT_PART_RESTART] > 0
    )


async def test_the_metrics_have_all_jobs(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics=HERE) as served:
        await served.stub.CreateJob(create("a", hosts=2))
        await served.until("a", RUNNING)
        found = await scraped(served)
        assert 0 <= found("muster_job_ettr_ratio", job_name="a") <= 1
        await finish(served, "a")
        goodput = (await shown(served, "a")).goodput
        found = await scraped(served)
        for share in goodput.parts:
            part = job_pb2.GoodputPart.Name(share.part).removeprefix("GOODPUT_PART_").lower()
            seconds = found("muster_gpu_seconds_total", part=part)
            assert abs(seconds - share.gpu_hours * 3_600) < 1e-6 * (1 + seconds)
