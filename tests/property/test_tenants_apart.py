"""Whatever jobs there are, a tenant sees and touches its own alone.

Names of others are random words that no sentence has; they may appear in no answer, and
an answer to them must be the one to a name that nobody has.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2, window_pb2
from tests.secured import House
from tests.serving import START_NS, create, error_of, serving

TENANTS = Tenants(
    (Tenant("default"), Tenant("vision"), Tenant("video", "vision"), Tenant("language"))
)
LEAVES = ("default", "video", "language")
OWN = {"default": {"default"}, "vision": {"video"}, "video": {"video"}, "language": {"language"}}
ABSENT = "nobodys"

Job = tuple[str, str, int, bool]  # name, tenant, hosts, cancelled

jobs = st.lists(
    st.tuples(
        st.from_regex(r"qq[a-z]{6}", fullmatch=True),
        st.sampled_from(LEAVES),
        st.integers(1, 8),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
    unique_by=lambda job: job[0],
)


def naming(name: str) -> list[tuple[str, Any]]:
    """Every request in which a tenant can name a job."""
    messages = service_pb2
    return [
        ("GetJob", messages.GetJobRequest(name=name)),
        ("CancelJob", messages.CancelJobRequest(name=name, validate_only=True)),
        ("CancelJob", messages.CancelJobRequest(name=name)),
        ("UpdateJob", messages.UpdateJobRequest(job=job_pb2.Job(name=name))),
        ("ExplainJob", messages.ExplainJobRequest(name=name)),
        ("GetTenant", messages.GetTenantRequest(name=name)),
        ("GetWindow", messages.GetWindowRequest(name=name)),
        ("ListHosts", messages.ListHostsRequest(job=name)),
        ("ListHosts", messages.ListHostsRequest(filter=f'job = "{name}"')),
        ("ListJobs", messages.ListJobsRequest(filter=f'name = "{name}"')),
    ]


def looking() -> list[tuple[str, Any]]:
    return [
        ("ListJobs", service_pb2.ListJobsRequest()),
        ("ListHosts", service_pb2.ListHostsRequest()),
        ("ListTenants", service_pb2.ListTenantsRequest()),
        ("ListSlots", service_pb2.ListSlotsRequest()),
        ("GetStatus", service_pb2.GetStatusRequest()),
        ("GetHost", service_pb2.GetHostRequest(name="z0-r0-h0")),
        ("GetFabric", service_pb2.GetFabricRequest()),
        ("ListSpares", service_pb2.ListSparesRequest()),
        ("ListWindows", service_pb2.ListWindowsRequest()),
        ("GetWindow", service_pb2.GetWindowRequest(name="service")),
    ]


def _window() -> window_pb2.Window:
    """Maintenance of every host, which every gang holds."""
    window = window_pb2.Window(name="service", kind=window_pb2.WINDOW_KIND_MAINTENANCE)
    window.start_time.FromNanoseconds(START_NS)
    window.end_time.FromNanoseconds(START_NS + 3_600 * 10**9)
    window.hosts.extend(("z0", "z1"))
    return window


async def answer(stub: Any, method: str, request: Any) -> tuple[str, str]:
    """Code and text of what comes back."""
    try:
        return "OK", str(await getattr(stub, method)(request))
    except grpc.aio.AioRpcError as error:
        found = error_of(error)
        return found.code.name, f"{found.reason} {found.message} {found.fields}"


async def watched(stream: Any) -> str:
    seen: list[str] = []
    try:
        async with asyncio.timeout(0.1):
            async for change in stream:
                seen.append(str(change))
    except TimeoutError:
        stream.cancel()
    return "".join(seen)


async def check(folder: Path, made: Sequence[Job], tenant: str) -> None:
    house = House(folder)
    admin, bound = house.token("root", "admin"), house.token("ada", "submitter", tenant)
    others = [(of, name) for name, of, _, _ in made if of not in OWN[tenant]]
    mine = [f"{of}/{name}" for name, of, _, _ in made if of in OWN[tenant]]
    async with serving(folder, access=house.access(), tenants=TENANTS) as served:
        async with house.calling(served, admin) as root:
            for name, of, hosts, cancelled in made:
                await root.CreateJob(create(name, hosts, tenant=of))
                if cancelled:
                    await root.CancelJob(service_pb2.CancelJobRequest(name=f"{of}/{name}"))
            await root.CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0"))
            await root.CreateWindow(service_pb2.CreateWindowRequest(window=_window()))
        async with house.calling(served, bound) as stub:
            told = [await answer(stub, *asked) for asked in looking()]
            for name in mine:
                told += [await answer(stub, "ExplainJob", naming(name)[4][1])]
                told += [await answer(stub, "GetJob", naming(name)[0][1])]
                assert told[-1][0] == "OK"
            jobs = stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0))
            hosts = stub.WatchHosts(service_pb2.WatchHostsRequest(after_version=0))
            told += [("OK", await watched(jobs)), ("OK", told_of := await watched(hosts))]
            assert "HOST_STATE_CORDONED" in told_of
            for of, name in others:
                nobodys_name = f"{of}/{ABSENT}"
                asked_of = zip(naming(f"{of}/{name}"), naming(nobodys_name), strict=True)
                for theirs, nobodys in asked_of:
                    found = await answer(stub, *theirs)
                    missing = await answer(stub, *nobodys)
                    assert _anonymous(found, name) == _anonymous(missing, ABSENT), theirs
                if mine:
                    await _suppose(stub, mine[0], f"{of}/{name}", nobodys_name)
        async with house.calling(served, admin) as root:
            listed = await root.ListJobs(service_pb2.ListJobsRequest())
    text = "".join(text for _, text in told)
    assert not [name for _, name in others if name in text]
    assert all(name.partition("/")[2] in told[0][1] for name in mine)
    ended = [job for job in listed.jobs if job.state == job_pb2.JOB_STATE_CANCELLED]
    cancelled = {job.name.rpartition("/")[2] for job in ended}
    assert cancelled == {name for name, _, _, is_cancelled in made if is_cancelled}


async def _suppose(stub: Any, mine: str, name: str, absent: str) -> None:
    """A condition on somebody else's job is answered as one on nobody's."""
    found, missing = [
        await answer(
            stub,
            "ExplainJob",
            service_pb2.ExplainJobRequest(name=mine, suppose=[f"cancel {which}"]),
        )
        for which in (name, absent)
    ]
    assert _anonymous(found, name.partition("/")[2]) == _anonymous(missing, ABSENT)


def _anonymous(found: tuple[str, str], name: str) -> tuple[str, str]:
    """But for the name that was asked for, which tokens of pages depend on."""
    return found[0], found[1].replace(name, "NAME")


@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow])
@given(jobs, st.sampled_from(tuple(OWN)))
def test_a_tenant_sees_and_touches_its_own_jobs_alone(made: list[Job], tenant: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), made, tenant))
