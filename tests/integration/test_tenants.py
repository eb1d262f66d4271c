"""Tenants over the wire: quotas, standings, reasons, and a restart with another file."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.eventlog.store import StoreError
from scheduler.v1 import advice_pb2, service_pb2, tenant_pb2
from tests.serving import RUNNING, Served, create, refused, serving

GPUS = 8
TENANTS = Tenants(
    (
        Tenant("research", limit_gpus=5 * GPUS),
        Tenant("vision", "research", cells=(GuaranteedCell("rack", 1),)),
        Tenant("language", "research", weight=2),
        Tenant("default"),
    ),
    classes=(PriorityClass("spot", -7, True),),
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, tenants=TENANTS) as running:
        yield running


async def test_standings_and_jobs_tell_whose_they_are(served: Served) -> None:
    made = await served.start("a", 3, tenant="language", priority_class="spot")
    assert (made.tenant, made.priority, made.preemptible) == ("language", -7, True)
    await served.stub.CreateJob(create("b", 4, tenant="language"))
    job = await served.get("language/b")
    limited = "needs 4 hosts; tenant research holds 3 of its limit of 5; language/a ends in 2"
    assert job.reason.startswith(limited)
    why = await served.stub.ExplainJob(
        service_pb2.ExplainJobRequest(name="tenants/language/jobs/b")
    )
    assert why.reason.cause == advice_pb2.WAIT_REASON_LIMIT
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


async def test_a_restart_keeps_tenants_or_takes_new_ones(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        await served.start("a", 2, tenant="language")
    async with serving(tmp_path) as served:
        answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest())
        assert (answer.digest, answer.tenants[2].held_gpus) == (TENANTS.digest, 16)
    fewer = Tenants((Tenant("language", limit_gpus=16), Tenant("default")))
    async with serving(tmp_path, tenants=fewer) as served:
        answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest())
        assert [(t.name, t.held_gpus) for t in answer.tenants] == [("language", 16), ("default", 0)]
        assert (await served.get("language/a")).state == RUNNING
    with pytest.raises(StoreError, match="job language/a is running: no tenant 'language'"):
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


async def _tenants(served: Served, filter: str = "") -> dict[str, tenant_pb2.Tenant]:
    answer = await served.stub.ListTenants(service_pb2.ListTenantsRequest(filter=filter))
    return {tenant.name: tenant for tenant in answer.tenants}


async def test_a_tenant_has_times_and_an_etag_that_follow_the_file(tmp_path: Path) -> None:
    """What it holds changes neither; a file that says the same changes neither."""
    async with serving(tmp_path, tenants=TENANTS) as served:
        first = await _tenants(served)
        await served.start("a", 2, tenant="language")
        ask = service_pb2.GetTenantRequest(name="language")
        held = await served.stub.GetTenant(ask)
        error = await refused(served.stub.GetTenant(service_pb2.GetTenantRequest(name="x")))
    assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert (held.etag, held.held_gpus) == (first["language"].etag, 16)
    assert held.version > first["language"].version
    fewer = Tenants((Tenant("language", weight=3), Tenant("default")))
    async with serving(tmp_path, tenants=fewer) as served:
        second = await _tenants(served)
    async with serving(tmp_path, tenants=TENANTS) as served:
        third = await _tenants(served)

    def same(name: str, field: str, *all_: dict[str, tenant_pb2.Tenant]) -> bool:
        return len({str(getattr(found[name], field)) for found in all_}) == 1

    for field in ("uid", "create_time"):
        assert same("language", field, first, second, third)
    for field in ("etag", "update_time"):
        assert not same("language", field, first, second)
        assert same("default", field, first, second, third)
    assert not same("vision", "uid", first, third)
    assert third["vision"].create_time.ToNanoseconds() > first["vision"].create_time.ToNanoseconds()
    assert len({tenant.uid for tenant in (*first.values(), *third.values())}) == 4 + 2


async def test_tenants_without_a_file_are_as_old_as_the_fabric(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        fabric = await served.stub.GetFabric(service_pb2.GetFabricRequest())
        (tenant,) = (await _tenants(served)).values()
    assert tenant.create_time == tenant.update_time == fabric.create_time
    assert (fabric.host_count, fabric.gpus_per_host) == (8, 8)
    assert fabric.uid == served.ready.fabric.digest
    assert [(t.name, list(t.domains), t.most_hosts) for t in fabric.tiers] == [
        ("zone", ["z0", "z1"], 4),
        ("rack", ["z0-r0", "z0-r1", "z1-r0", "z1-r1"], 2),
    ]


async def test_tenants_are_filtered(served: Served) -> None:
    for filter, names in (
        ("parent = research AND weight > 1", ["language"]),
        ("guaranteed_gpus > 0", ["research", "vision"]),
        ('create_time < "2001-01-01T00:00Z"', []),
    ):
        assert [*await _tenants(served, filter)] == names
    assert (await refused(_tenants(served, "colour = red"))).fields == ("filter",)
