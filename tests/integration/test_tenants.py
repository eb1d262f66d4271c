"""Tenants over the wire: quotas, standings, reasons, and a restart with another file."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from scheduler.client import Client
from scheduler.core.tenancy.tenants import Cell, PriorityClass, Tenant, Tenants
from scheduler.specproto import spec_to_proto
from scheduler.store import StoreError
from scheduler.v1 import advice_pb2, job_pb2, service_pb2, tenant_pb2
from tests.build import spec
from tests.serving import RUNNING, refused, serving

GPUS = 8
TENANTS = Tenants(
    (
        Tenant("research", limit_gpus=5 * GPUS),
        Tenant("vision", "research", cells=(Cell("rack", 1),)),
        Tenant("language", "research", weight=2),
        Tenant("default"),
    ),
    classes=(PriorityClass("spot", -7, True),),
)


def create(
    name: str, hosts: int, tenant: str = "", level: str = ""
) -> service_pb2.CreateJobRequest:
    job = spec(name, hosts, tenant=tenant, priority_class=level)
    return service_pb2.CreateJobRequest(spec=spec_to_proto(job))


async def test_standings_and_jobs_tell_whose_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        made = await served.stub.CreateJob(create("a", 3, "language", "spot"))
        assert (made.job.tenant, made.job.priority, made.job.preemptible) == ("language", -7, True)
        await served.until("a", RUNNING)
        await served.stub.CreateJob(create("b", 4, "language"))
        job = (await served.stub.GetJob(service_pb2.GetJobRequest(name="b"))).job
        limited = "needs 4 hosts; tenant research holds 3 of its limit of 5; a ends in 2"
        assert job.reason.startswith(limited)
        why = await served.stub.ExplainJob(service_pb2.ExplainJobRequest(name="b"))
        assert why.reason.cause == advice_pb2.WAIT_CAUSE_LIMIT
        answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest())
        rows = {t.name: (t.parent, t.held_gpus, t.queued_gpus) for t in answer.tenants}
        assert rows == {
            "research": ("", 24, 32),
            "vision": ("research", 0, 0),
            "language": ("research", 24, 32),
            "default": ("", 0, 0),
        }
        assert (answer.default_tenant, answer.digest) == ("default", TENANTS.digest)
        research, vision, *_ = answer.tenants
        assert (research.limit_gpus, research.guaranteed_gpus) == (40, 16)
        assert (vision.HasField("limit_gpus"), vision.kept_hosts) == (False, 2)
        assert [(c.tier, c.count, c.hosts) for c in vision.cells] == [("rack", 1, 0)]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (create("a", 1, "nobody"), "spec.tenant"),
        (create("a", 1, "research"), "spec.tenant"),
        (create("a", 1, "", "gold"), "spec.priority_class"),
    ],
)
async def test_names_that_do_not_exist(
    tmp_path: Path, request_: service_pb2.CreateJobRequest, field: str
) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.stub.CreateJob(request_)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(refused.value.details()).startswith(field.removeprefix("spec."))


async def test_more_than_the_limit_is_never(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.stub.CreateJob(create("a", 6, "language"))
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_restart_keeps_the_tenants_or_takes_new_ones(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        await served.stub.CreateJob(create("a", 2, "language"))
        await served.until("a", RUNNING)
    async with serving(tmp_path) as served:
        answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest())
        assert (answer.digest, answer.tenants[2].held_gpus) == (TENANTS.digest, 16)
    fewer = Tenants((Tenant("language", limit_gpus=16), Tenant("default")))
    async with serving(tmp_path, tenants=fewer) as served:
        answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest())
        assert [(t.name, t.held_gpus) for t in answer.tenants] == [("language", 16), ("default", 0)]
        job = (await served.stub.GetJob(service_pb2.GetJobRequest(name="a"))).job
        assert job.state == job_pb2.JOB_STATE_RUNNING


async def test_a_tenant_with_live_jobs_cannot_go(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        await served.stub.CreateJob(create("a", 2, "language"))
        await served.until("a", RUNNING)
    with pytest.raises(StoreError, match="job a is running: no tenant 'language'"):
        async with serving(tmp_path, tenants=Tenants()):
            pass


async def test_tenants_and_spares_come_in_pages(tmp_path: Path) -> None:
    tenants = Tenants(tuple(Tenant(name) for name in "abc"), "a")
    async with serving(tmp_path, tenants=tenants) as served:
        ask = service_pb2.ListTenantsRequest(page_size=2)
        first = await served.stub.ListTenants(ask)
        ask.page_token = first.next_page_token
        rest = await served.stub.ListTenants(ask)
        assert [t.name for t in (*first.tenants, *rest.tenants)] == ["a", "b", "c"]
        assert rest.next_page_token == ""
        zones = service_pb2.ListSparesRequest(page_size=1)
        one = await served.stub.ListSpares(zones)
        zones.page_token = one.next_page_token
        two = await served.stub.ListSpares(zones)
        assert [zone.domain for zone in (*one.zones, *two.zones)] == ["z0", "z1"]
        zones.page_token = first.next_page_token
        error = await refused(served.stub.ListSpares(zones))
        assert error.fields == ("page_token",)


def test_the_client_puts_pages_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the server's size of a page."""
    pages = {"": (["a", "b"], "x"), "x": (["c"], "")}

    def answer(request: service_pb2.ListTenantsRequest, **_: object) -> object:
        names, token = pages[request.page_token]
        found = [tenant_pb2.Tenant(name=name) for name in names]
        return service_pb2.ListTenantsResponse(tenants=found, next_page_token=token)

    with Client("127.0.0.1:1") as client:
        monkeypatch.setattr(client._stub, "ListTenants", answer)
        assert [tenant.name for tenant in client.list_tenants().tenants] == ["a", "b", "c"]
