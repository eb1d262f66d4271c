"""/metrics of a running server, as Prometheus reads it, and whom it lets read them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import grpc
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from scheduler.access.listener import CannotListen
from scheduler.console import http_server
from scheduler.observe.catalogue import METRICS, PER_JOB, MetricKind
from scheduler.server.metrics.exposition import MetricsEndpoint
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import exactly
from tests.secured import House
from tests.serving import Served, create, refused, rest, serving
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
    await served.start("a", 3, spares=exactly(1))
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
    job = await served.start("a", 3, spares=exactly(1))
    await served.report(job.placement.hosts[0], "nic-down")
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


async def test_who_connects_and_asks_for_nothing_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "PATIENCE_S", 0.1)
    port = int(served.ready.metrics.removesuffix("/metrics").rpartition(":")[2])
    for begun in (b"", b"GET /metrics HTTP/1.1\r\nHost: "):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
            slow.sendall(begun)
            assert await asyncio.to_thread(slow.recv, 1) == b""
    await scraped(served)


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
        await served.start("a")
        await served.cancel("a")
        await served.start("b", 8)
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


# --- a client that opens a watch and reads nothing -----------------------------------

DEPTH, JOBS = 20, 61
BULK = {f"l{number}": "x" * 250 for number in range(60)}  # 15 kB a change
# No more than this is on its way before the client reads: else windows grow to megabytes.
NARROW = (("grpc.http2.lookahead_bytes", 65_535), ("grpc.http2.bdp_probe", 0))


async def test_a_client_that_stops_reading_is_cut_off_and_resumes_where_it_was(
    tmp_path: Path,
) -> None:
    async with (
        serving(tmp_path, watch_depth=DEPTH, metrics=HERE) as served,
        grpc.aio.insecure_channel(served.ready.address, options=NARROW) as channel,
    ):
        stub = service_pb2_grpc.SchedulerServiceStub(channel)
        stream = stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0))
        await stream.initial_metadata()
        lags = []
        for number in range(JOBS):
            request = create(f"j{number}", 8)
            request.spec.labels.update(BULK)
            await served.stub.CreateJob(request)
            if number % 5 == 0:
                lags.append((await scraped(served))("muster_watch_lag_changes"))
        assert 0 < max(lags) <= DEPTH
        assert lags[-1] == 0  # it is cut off, and what it did not read is dropped
        left, error = await asyncio.wait_for(rest(stream), 20)
        assert error.reason == "WATCH_BEHIND"
        seen = [change.version for change in left]
        assert 0 < len(seen) < JOBS
        again = stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=seen[-1]))
        async for change in again:
            seen.append(change.version)
            if change.job.spec.name == f"j{JOBS - 1}":
                break
        again.cancel()
    assert seen == sorted(set(seen))
    assert len(seen) >= JOBS  # each submitted, and some started


# --- beyond this machine -----------------------------------------------------------------------


EVERYWHERE = MetricsEndpoint("0.0.0.0", 0)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def get(
    served: Served,
    house: House,
    token: str | None,
    scheme: str = "Bearer",
    shown: trustme.LeafCert | None = None,
) -> tuple[int, str]:
    """Status and text, as a scraper on this machine is answered. `shown`: its certificate."""
    url = served.ready.metrics.replace("0.0.0.0", "127.0.0.1")
    headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
    trusted = ssl.create_default_context(cadata=house.ca.cert_pem.bytes().decode())
    if shown is not None:
        shown.configure_cert(trusted)
    over = trusted if url.startswith("https") else None
    try:
        with urlopen(Request(url, headers=headers), timeout=60, context=over) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_token_of_a_viewer_of_all_reads_metrics_and_no_other(
    tmp_path: Path, house: House
) -> None:
    good = house.token("prometheus", "viewer", "*")
    expired = house.token("old", "viewer", "*", ", expires: 2020-01-01")
    bound = house.token("ada", "viewer", "vision")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        assert served.ready.metrics.startswith("https://")
        port = int(served.ready.metrics.removesuffix("/metrics").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):  # who says nothing holds up nobody
            status, text = await asyncio.to_thread(get, served, house, good)
        assert (status, "muster_ready 1.0" in text) == (200, True)
        for token, scheme, expected, said in (
            (None, "Bearer", 401, "give the token of a viewer of all"),
            ("x" * 40, "Bearer", 401, "not known"),
            (expired, "Bearer", 401, "expired"),
            (good, "Basic", 401, "not known"),
            (bound, "Bearer", 403, "belongs to tenant vision"),
        ):
            status, text = await asyncio.to_thread(get, served, house, token, scheme)
            assert (status, said in text, "muster_ready" in text) == (expected, True, False), text


async def test_a_revoked_token_and_a_new_certificate_count_at_once(
    tmp_path: Path, house: House
) -> None:
    token = house.token("prometheus", "viewer", "*")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        assert (await asyncio.to_thread(get, served, house, token))[0] == 200
        house.tokens.clear()
        house.write()
        house.issue()
        ask = partial(asyncio.to_thread, get, served, house, token)
        await until(ask, lambda answer: answer[0] == 401)  # files are looked at once a second


async def test_where_clients_need_a_certificate_a_scraper_needs_one_and_a_token(
    tmp_path: Path, house: House
) -> None:
    token = house.token("prometheus", "viewer", "*")
    house.admit("{san: prometheus.example, name: prometheus, role: viewer, tenant: '*'}")
    shown = house.client_ca.issue_cert("prometheus.example")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access(mtls=True)) as served:
        with pytest.raises((URLError, ConnectionError, ssl.SSLError)):
            await asyncio.to_thread(get, served, house, token)
        for given, status, said in (
            (token, 200, "ready 1"),
            (None, 401, "this server must know who scrapes"),
            ("revoked", 401, "not known"),
        ):
            found = await asyncio.to_thread(get, served, house, given, shown=shown)
            assert (found[0], said in found[1]) == (status, True), found


async def test_on_loopback_names_are_for_callers_who_may_see_all(
    tmp_path: Path, house: House
) -> None:
    """Jobs and users of a host reach loopback as well."""
    here = MetricsEndpoint("127.0.0.1", 0, is_per_job=True)
    admin = house.token("root", "admin")
    bound = house.token("ada", "submitter", "vision")
    access = house.access()
    async with (
        serving(tmp_path, metrics=here, access=access) as served,
        house.calling(served, token=admin) as stub,
    ):
        assert served.ready.metrics.startswith("http://")
        await stub.CreateJob(create("secret", tenant="default"))
        texts = [await asyncio.to_thread(get, served, house, t) for t in (None, bound, admin)]
    assert [status for status, _ in texts] == [200, 403, 200]
    assert ["default" in text for _, text in texts] == [False, False, True]
    assert "secret" not in texts[0][1]
    assert "muster_hosts{" in texts[0][1]


async def test_metrics_are_not_served_beside_others_or_to_anybody(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = f"cannot listen on 127.0.0.1:{port} for metrics"
        open_to_all = "for metrics, beyond this machine: anybody may read"
        for host, wanted, refusal in (
            ("127.0.0.1", port, taken),
            ("0.0.0.0", 0, open_to_all),
            ("::", 0, open_to_all),
        ):
            with pytest.raises(CannotListen, match=refusal):
                async with serving(tmp_path, metrics=MetricsEndpoint(host, wanted)):
                    pass


async def test_in_the_clear_only_where_the_operator_insists(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    token = house.token("prometheus", "viewer", "*")
    clear = replace(house.access(), tls=None)
    with pytest.raises(CannotListen, match=r"for metrics.*: no encryption"):
        async with serving(tmp_path, metrics=EVERYWHERE, access=clear):
            pass
    clear = replace(clear, is_insecure=True)
    async with serving(tmp_path, metrics=EVERYWHERE, access=clear) as served:
        asked = [await asyncio.to_thread(get, served, house, one) for one in (None, token)]
    assert [status for status, _ in asked] == [401, 200]
    assert "insecure on 0.0.0.0:0 for metrics" in caplog.text


# --- bytes that are no message -----------------------------------------------------------------


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
            for _ in range(3):
                call = make(path)(GARBAGE)
                error = await refused(anext(aiter(call)) if is_watch else call)
                assert error.code is grpc.StatusCode.INVALID_ARGUMENT
                assert error.reason == "INVALID"
                assert error.message.startswith("the message is not what this method takes: ")
            labels = {"method": f"SchedulerService/{method}", "code": "INVALID_ARGUMENT"}
            assert (await scraped(served))("muster_rpc_total", **labels) == 3
    (line,) = (record.message for record in caplog.records if record.name == "muster.access")
    assert line.startswith("messages that cannot be decoded: 1, the last one for GetJob")
    assert "Traceback" not in caplog.text


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
