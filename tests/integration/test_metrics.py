"""/metrics of a running server, as Prometheus reads it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.observe.catalogue import METRICS, PER_JOB, MetricKind
from scheduler.server.metrics.exposition import MetricsEndpoint
from scheduler.server.serve import CannotListen
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import exactly
from tests.serving import RUNNING, Served, create, error_of, refused, serving
from tests.waiting import until

HERE = MetricsEndpoint("127.0.0.1", 0)


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    def __call__(self, name: str, **labels: str) -> float:
        """The sum over all series with these labels; fails when there is none."""
        found = [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} {labels}"
        return sum(found)

    def names(self) -> Iterator[str]:
        for family in self.families:
            is_counter = family.type == "counter"
            yield family.name + "_total" if is_counter else family.name


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, metrics=HERE) as running:
        yield running


async def scraped(served: Served) -> Scrape:
    return Scrape(await asyncio.to_thread(_get, served.ready.metrics))


def _get(address: str) -> str:
    with urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


async def test_the_state_is_exposed(served: Served) -> None:
    await served.stub.CreateJob(create("a", 3, spares=exactly(1)))
    await served.until("a", RUNNING)
    await served.stub.CreateJob(create("b", 8))
    found = await scraped(served)
    assert found("muster_gpus", use="running") == 24
    assert found("muster_gpus") == found("muster_hosts") * 8 == 64
    assert found("muster_spare_hosts") == 1
    assert found("muster_withheld_hosts", source="slurm", cause="refused") == 0
    assert found("muster_jobs", tenant="default", state="queued") == 1
    assert found("muster_queued_gpus") == 64
    assert found("muster_oldest_wait_seconds") > 0
    assert found("muster_log_version") == (await served.get("b")).version
    assert found("muster_running_gangs", proof="optimal") == 1
    assert found("muster_ready") == found("muster_leader") == 1
    assert found("muster_store_bytes") > 0
    assert {metric.name for metric in PER_JOB}.isdisjoint(found.names())
    free = (await served.stub.ListHosts(service_pb2.ListHostsRequest())).hosts[-1].name
    await served.stub.CordonHost(
        service_pb2.CordonHostRequest(name=free, reason="slurm: refused: QOS")
    )
    again = await scraped(served)
    assert again("muster_withheld_hosts", source="slurm", cause="refused") == 1


async def test_what_happened_is_counted(served: Served) -> None:
    await served.stub.CreateJob(create("a", 3, spares=exactly(1)))
    job = await served.until("a", RUNNING)
    report = service_pb2.ReportHostRequest(name=job.placement.hosts[0], signal="nic-down")
    await served.stub.ReportHost(report)
    # submitted, started, failed, swapped, its spare refilled
    found = await until(lambda: scraped(served), lambda found: found("muster_events_total") == 5)
    assert found("muster_host_failures_total", signal="nic-down") == 1
    assert found("muster_swaps_total", cause="failure") == 1
    assert found("muster_swapped_hosts_total", source="spare") == 1
    assert found("muster_restarts_total", how="swap") == 1
    assert found("muster_wait_seconds_count", size="9-64") == 1
    assert found("muster_gap_ratio_bucket", le="0.0") == 1
    assert found("muster_stage_seconds_count", stage="append") == found(
        "muster_append_events_count"
    )
    assert found("muster_append_events_sum") == found("muster_events_total") == 5
    assert found("muster_stage_seconds_count", stage="solve") == 1
    assert found("muster_commit_conflicts_total") == 0


async def test_calls_are_counted_by_how_they_ended(served: Served) -> None:
    await served.stub.CreateJob(create("a"))
    await refused(served.stub.GetJob(service_pb2.GetJobRequest(name="nobody")))
    async with grpc.aio.insecure_channel(served.ready.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/scheduler.v1.SchedulerService/Invented")(b"")
    watch = served.stub.WatchJobs(service_pb2.WatchJobsRequest())
    await watch.initial_metadata()
    assert (await scraped(served))("muster_watch_streams") == 1
    watch.cancel()
    await asyncio.sleep(0.1)
    found = await scraped(served)
    mine = "SchedulerService/"
    assert found("muster_rpc_total", method=mine + "CreateJob", code="OK") == 1
    assert found("muster_rpc_total", method=mine + "GetJob", code="NOT_FOUND") == 1
    assert found("muster_rpc_total", method="unknown", code="UNIMPLEMENTED") == 1
    assert found("muster_rpc_total", method=mine + "WatchJobs", code="CANCELLED") == 1
    assert found("muster_rpc_seconds_count", method=mine + "GetJob") == 1
    assert found("muster_watch_streams") == found("muster_watch_lag_changes") == 0


# Those of gangs whose ranks report their steps, which need agents.
OF_STEPS = {
    "muster_job_step_seconds",
    "muster_job_model_step_seconds",
    "muster_job_slower_than_model",
    "muster_cut_off_hosts",  # while a domain is cut off alone
    "muster_credential_expiry_seconds",  # with certificates or tokens
}


async def test_every_metric_is_in_the_catalogue_and_is_exposed(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics=MetricsEndpoint("127.0.0.1", 0, True)) as served:
        await served.stub.CreateJob(create("a"))
        await served.until("a", RUNNING)
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        await served.stub.CreateJob(create("b", 8))
        await served.until("b", RUNNING)
        await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z0", share=0.5))
        found = await scraped(served)
    cut = found("muster_job_cut_bytes_per_step", job_name="b", tier="zone")
    assert cut == found("muster_cut_bytes_per_step", tier="zone") > 0
    exposed = {name for name in found.names() if name.startswith("muster_")}
    assert exposed == {metric.name for metric in METRICS} - OF_STEPS  # one link is degraded
    assert {m.name for m in PER_JOB} - OF_STEPS < exposed
    kinds = {family.name: family.type for family in found.families}
    for metric in [metric for metric in METRICS if metric.name not in OF_STEPS]:
        assert kinds[metric.name.removesuffix("_total")] == metric.kind
        assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("_total")
        assert metric.text.endswith(".")


async def test_an_address_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serving(tmp_path, metrics=HERE) as served:
        port = urlsplit(served.ready.metrics).port or 0
        with pytest.raises(CannotListen, match=f"cannot serve metrics on 127.0.0.1:{port}"):
            async with serving(tmp_path / "other", metrics=MetricsEndpoint("127.0.0.1", port)):
                pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_others_read_metrics_only_where_the_operator_insists(
    tmp_path: Path, host: str
) -> None:
    with pytest.raises(CannotListen, match="for metrics, beyond this machine: anybody may read"):
        async with serving(tmp_path, metrics=MetricsEndpoint(host, 0)):
            pass


# --- a client that opens a watch and reads nothing -----------------------------------

DEPTH, JOBS = 20, 120
BULK = {f"l{number}": "x" * 250 for number in range(60)}  # 15 kB a change
# No more than this is on its way before the client reads: else windows grow to megabytes.
NARROW = (("grpc.http2.lookahead_bytes", 65_535), ("grpc.http2.bdp_probe", 0))


async def _submit(served: Served) -> float:
    """Many changes; the most that were ever kept."""
    most = 0.0
    for number in range(JOBS):
        request = create(f"j{number}", 8)
        request.spec.labels.update(BULK)
        await served.stub.CreateJob(request)
        if number % 5 == 0:
            most = max(most, (await scraped(served))("muster_watch_lag_changes"))
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
        # It is cut off, and what it did not read is dropped.
        assert (await scraped(served))("muster_watch_lag_changes") == 0
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
