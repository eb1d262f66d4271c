"""A tenant acts on its own jobs alone, and is told of no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.launch.service import AgentSettings
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from tests.secured import House
from tests.serving import Served, create, refused, serving
from tests.waiting import until

TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))


async def test_a_uid_shows_nobody_the_job_of_another_tenant(tmp_path: Path) -> None:
    """The name is bob's own again; the uid is of ada's job, which had it before."""
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        old = await hers.CreateJob(create("a"))
        await hers.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid))
        new = await his.CreateJob(create("a"))
        own = service_pb2.GetJobRequest(name="a", uid=new.uid)
        assert (await his.GetJob(own)).uid == new.uid
        for call in (
            his.GetJob(service_pb2.GetJobRequest(name="a", uid=old.uid)),
            his.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid)),
            his.UpdateJob(
                service_pb2.UpdateJobRequest(
                    job=job_pb2.Job(name="a", uid=old.uid, spec=job_pb2.JobSpec(priority=3))
                )
            ),
        ):
            error = await refused(call)
            assert error.code is grpc.StatusCode.NOT_FOUND
            assert "ads" not in str(error)


async def test_no_filter_tells_the_names_of_others_jobs(tmp_path: Path) -> None:
    """Reports on stragglers name the gang that they slow; answers hide it, so filters must."""
    house = House(tmp_path)
    root, bob = house.token("root", "admin"), house.token("bob", "viewer", "bots")
    name = "z0-r0-h0"
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, root) as operator,
        house.calling(served, bob) as his,
    ):
        await operator.CreateJob(create("secret", tenant="ads"))
        detail = "12% slower at its part of ads/secret"
        report = service_pb2.ReportHostRequest(name=name, signal="gpu-lost", detail=detail)
        await operator.ReportHost(report)
        link = service_pb2.ReportLinkRequest(name="z0", share=0.5, detail=detail)
        await operator.ReportLink(link)
        asked = service_pb2.CordonLinkRequest(name="z1", reason="for ads/secret")
        await operator.CordonLink(asked)

        async def found(text: str) -> list[str]:
            hosts = await his.ListHosts(service_pb2.ListHostsRequest(filter=f"reason = {text}"))
            names = [host.name for host in hosts.hosts]
            for field in ("detail", "reason"):
                request = service_pb2.ListLinksRequest(filter=f"{field} = {text}")
                names += [each.name for each in (await his.ListLinks(request)).links]
            return names

        assert await found('"*part of (hidden)"') == [name, "z0"]
        assert await found('"*(hidden)"') == [name, "z0", "z1"]
        for text in ('"*ads*"', '"*secre*"', '"*/s*"'):
            assert await found(text) == []
        hosts = await operator.ListHosts(service_pb2.ListHostsRequest(filter="reason:secret"))
        assert [host.name for host in hosts.hosts] == [name]


async def test_names_of_a_tenant_that_is_gone_stay_hidden(tmp_path: Path) -> None:
    """Its jobs have ended, and what speaks of them is still there."""
    house = House(tmp_path)
    root, bob = house.token("root", "admin"), house.token("bob", "viewer", "bots")
    file, detail = tmp_path / "tenants.yaml", "12% slower at its part of ads/secret, and/or so"
    file.write_text("tenants: [{name: default}, {name: bots}]\n", encoding="utf-8")
    access = house.access()
    async with (
        serving(tmp_path, access=access, tenants=TENANTS, tenants_file=str(file)) as served,
        house.calling(served, root) as operator,
        house.calling(served, bob) as his,
    ):
        await operator.CreateJob(create("secret", tenant="ads"))
        await operator.ReportHost(
            service_pb2.ReportHostRequest(name="z1-r1-h1", signal="gpu-lost", detail=detail)
        )
        await operator.CancelJob(service_pb2.CancelJobRequest(name="ads/secret"))
        served.reload.set()
        listing = service_pb2.ListTenantsRequest()
        known = len(TENANTS.tenants)
        await until(lambda: operator.ListTenants(listing), lambda a: len(a.tenants) != known)
        host = await his.GetHost(service_pb2.GetHostRequest(name="z1-r1-h1"))
        status = await his.GetStatus(service_pb2.GetStatusRequest())
    assert host.reason.endswith("its part of (hidden), and/or so")
    assert [each.detail for each in status.incidents] == [host.reason]


async def test_a_host_is_the_same_by_itself_and_in_a_list(tmp_path: Path) -> None:
    """Of somebody else's gang the block on a host is not told either."""
    house = House(tmp_path)
    root, bob = house.token("root", "admin"), house.token("bob", "viewer", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, root) as operator,
        house.calling(served, bob) as his,
    ):
        await operator.CreateJob(create("secret", 2, tenant="ads"))
        job = await until(lambda: _got(operator, "ads/secret"), lambda job: job.placement.hosts)
        for stub, has_block in ((his, False), (operator, True)):
            request = service_pb2.ListHostsRequest(filter=f'name = "{job.placement.hosts[1]}"')
            listed = (await stub.ListHosts(request)).hosts[0]
            host = await stub.GetHost(service_pb2.GetHostRequest(name=listed.name))
            assert host.HasField("block") == has_block
            assert host == listed


async def _got(stub: Any, name: str) -> job_pb2.Job:
    job: job_pb2.Job = await stub.GetJob(service_pb2.GetJobRequest(name=name))
    return job


async def test_a_request_id_is_the_callers_own(tmp_path: Path) -> None:
    """An id that ada used says nothing to bob, and does not stand in his way."""
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        first = await hers.CreateJob(create("secret", request_id="r"))
        again = await hers.CreateJob(create("secret", request_id="r"))
        assert again.uid == first.uid
        other = await his.CreateJob(create("b", request_id="r"))
        assert other.name == "tenants/bots/jobs/b"
        error = await refused(his.CreateJob(create("c", request_id="r")))
        assert error.fields == ("request_id",)
        assert "secret" not in str(error)


async def test_a_repeat_is_answered_as_the_first_time(served: Served) -> None:
    """Whatever happened since, and also where the first time changed nothing."""
    stub = served.stub
    first = await stub.CreateJob(create("a", request_id="c"))
    await stub.UpdateJob(
        service_pb2.UpdateJobRequest(
            job=job_pb2.Job(name="a", spec=job_pb2.JobSpec(labels={"k": "v"}))
        )
    )
    again = await stub.CreateJob(create("a", request_id="c"))
    assert (again.uid, dict(again.spec.labels)) == (first.uid, {"k": "v"})
    cancel = service_pb2.CancelJobRequest(name="a", request_id="e")
    await stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    assert (await stub.CancelJob(cancel)).uid == first.uid  # it was cancelled already
    second = await stub.CreateJob(create("a"))
    repeat = await stub.CancelJob(cancel)
    assert (repeat.uid, repeat.state) == (first.uid, job_pb2.JOB_STATE_CANCELLED)
    assert (await served.get("a")).uid == second.uid
    assert (await served.get("a")).state != job_pb2.JOB_STATE_CANCELLED
    cancel.reason = "another request"
    error = await refused(stub.CancelJob(cancel))
    assert (error.fields, error.message) == (
        ("request_id",),
        "request_id: 'e' was used for another request: cancelled a",
    )
    healthy = service_pb2.ReportHostRequest(name="z1-r1-h1", signal="repaired", request_id="h")
    await stub.ReportHost(healthy)
    await stub.ReportHost(service_pb2.ReportHostRequest(name="z1-r1-h1", signal="nic-down"))
    host = (await stub.ReportHost(healthy)).host
    assert host.state == host_pb2.HOST_STATE_FAILED
    nothing = service_pb2.DefragmentRequest(hosts=1, apply=True, request_id="d")
    sentence = (await stub.Defragment(nothing)).sentence
    assert (await stub.Defragment(nothing)).sentence == sentence


async def test_callers_of_one_name_and_two_tenants_keep_their_request_ids(tmp_path: Path) -> None:
    house = House(tmp_path)
    ada, bob = house.token("ci", "submitter", "ads"), house.token("ci", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        first = await hers.CreateJob(create("secret", request_id="r"))
        other = await his.CreateJob(create("secret", request_id="r"))
        assert (first.tenant, other.tenant) == ("ads", "bots")


async def test_jobs_that_end_do_not_push_out_those_of_another_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 3)
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        await hers.CreateJob(create("kept"))
        await hers.CancelJob(service_pb2.CancelJobRequest(name="kept"))
        for turn in range(8):
            await his.CreateJob(create(f"flood{turn}"))
            await his.CancelJob(service_pb2.CancelJobRequest(name=f"flood{turn}"))
        assert (await hers.GetJob(service_pb2.GetJobRequest(name="kept"))).spec.name == "kept"
        for stub, at_hand in ((hers, 1), (his, 3)):
            recent = await stub.ListJobs(service_pb2.ListJobsRequest(recent_only=True))
            assert len(recent.jobs) == at_hand


def held(name: str, tenant: str = "") -> service_pb2.CreateJobRequest:
    request = create(name, tenant=tenant)
    request.spec.hold = True
    return request


async def test_a_circle_of_dependencies_names_no_job_of_another_tenant(tmp_path: Path) -> None:
    house = House(tmp_path)
    root, bob = house.token("root", "admin"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, root) as operator,
        house.calling(served, bob) as his,
    ):
        for name in ("first", "last"):
            await his.CreateJob(held(name))
        await operator.CreateJob(held("secret", tenant="ads"))
        ends = job_pb2.DEPENDENCY_KIND_AFTERANY

        def after(name: str, awaited: str) -> service_pb2.UpdateJobRequest:
            spec = job_pb2.JobSpec(dependencies=[job_pb2.Dependency(kind=ends, job=awaited)])
            return service_pb2.UpdateJobRequest(
                job=job_pb2.Job(name=name, spec=spec),
                update_mask={"paths": ["spec.dependencies"]},
            )

        await operator.UpdateJob(after("ads/secret", "bots/last"))
        await operator.UpdateJob(after("bots/first", "ads/secret"))
        his_error = await refused(his.UpdateJob(after("last", "first")))
        error = await refused(operator.UpdateJob(after("bots/last", "bots/first")))
    circle = "bots/last waits for bots/first waits for {} waits for bots/last"
    assert circle.format("ads/secret") in error.message
    assert circle.format("a job of another tenant") in his_error.message
    assert "secret" not in str(his_error)


async def test_who_is_of_a_tenant_that_is_not_there_learns_of_no_others(tmp_path: Path) -> None:
    """Tokens may come before the tenants file names their tenant."""
    house = House(tmp_path)
    bob, ada = house.token("bob", "submitter", "cats"), house.token("ada", "submitter", "ads")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, bob) as his,
        house.calling(served, ada) as hers,
    ):
        errors = [await refused(his.CreateJob(create("a")))]
        errors.append(await refused(his.ListSlots(service_pb2.ListSlotsRequest())))
        await hers.CreateJob(held("a"))
        suppose = service_pb2.ExplainJobRequest(name="a", suppose=["tenant cats"])
        errors.append(await refused(hers.ExplainJob(suppose)))
    assert "no tenant 'cats'" in errors[0].message
    for error in errors:
        assert "bots" not in str(error)


async def test_the_command_of_a_job_is_shown_as_it_was_written(tmp_path: Path) -> None:
    """A path may look like the full name of a job: `ads/train.py`."""
    house = House(tmp_path)
    bob = house.token("bob", "submitter", "bots")
    run = job_pb2.Run(command=["python", "ads/train.py"], workdir="/data/bots/x")
    agents = AgentSettings(GatewayOptions("127.0.0.1:0"))
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS, agents=agents) as served,
        house.calling(served, bob) as his,
    ):
        request = held("a")
        request.spec.run.CopyFrom(run)
        await his.CreateJob(request)
        job = await his.GetJob(service_pb2.GetJobRequest(name="a"))
    assert list(job.spec.run.command) == ["python", "ads/train.py"]
    assert job.spec.run.workdir == "/data/bots/x"
