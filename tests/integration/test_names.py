"""Each tenant has names of its own: on the wire, in sentences, in filters, on the command line."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.core.model.events import NamesQualified
from scheduler.core.policies.affinity import Affinity
from scheduler.v1 import job_pb2, placement_pb2, service_pb2, window_pb2
from tests.commands import muster
from tests.integration.test_owners import TENANTS
from tests.secured import callers
from tests.serving import (
    CANCELLED,
    RUNNING,
    create,
    logged,
    messages,
    path,
    refused,
    serving,
    until_running,
)

Get, Watch = service_pb2.GetJobRequest, service_pb2.WatchJobsRequest


WHO = ("ada", "submitter", "ads"), ("bob", "submitter", "bots"), ("root", "operator", "")


async def test_two_tenants_have_jobs_of_one_name(tmp_path: Path) -> None:
    async with callers(tmp_path, *WHO, tenants=TENANTS) as (_, ada, bob, root):
        hers, his = await ada.CreateJob(create("train")), await bob.CreateJob(create("train"))
        assert (hers.name, his.name) == (path("train", "ads"), path("train", "bots"))
        assert hers.spec.name == his.spec.name == "train"
        assert (await ada.GetJob(Get(name="train"))).uid == hers.uid
        assert (await bob.GetJob(Get(name="train"))).uid == his.uid
        again = await refused(ada.CreateJob(create("train")))
        assert again.code is grpc.StatusCode.ALREADY_EXISTS
        for name in ("bots/train", path("train", "bots")):
            assert (await refused(ada.GetJob(Get(name=name)))).code is grpc.StatusCode.NOT_FOUND
            assert (await root.GetJob(Get(name=name))).uid == his.uid
        error = await refused(root.CancelJob(service_pb2.CancelJobRequest(name="train")))
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert "of tenant default; there is ads/train, bots/train" in error.message
        gone = await root.CancelJob(service_pb2.CancelJobRequest(name=his.name))
        assert (gone.uid, gone.state) == (his.uid, CANCELLED)
        assert (await ada.GetJob(Get(name="train"))).state != CANCELLED


async def test_a_watch_and_a_filter_are_for_the_job_of_the_callers_tenant(tmp_path: Path) -> None:
    async with callers(tmp_path, *WHO, tenants=TENANTS) as (_, ada, bob, root):
        his = await bob.CreateJob(create("x", 8))
        hers = await ada.CreateJob(create("x", 8))
        first = await anext(aiter(ada.WatchJobs(Watch(name="x", after_version=0))))
        assert first.job.uid == hers.uid
        first = await anext(aiter(root.WatchJobs(Watch(name=his.name, after_version=0))))
        assert first.job.uid == his.uid
        found = await root.ListJobs(service_pb2.ListJobsRequest(filter='name = "x"'))
        assert {job.uid for job in found.jobs} == {hers.uid, his.uid}
        await until_running(bob, "x")
        ask = service_pb2.ListHostsRequest(job="x")
        assert not (await ada.ListHosts(ask)).hosts
        assert {host.job for host in (await bob.ListHosts(ask)).hosts} == {his.name}
        why = await ada.ExplainJob(service_pb2.ExplainJobRequest(name="x"))
        assert list(why.reason.waits_for) == ["(hidden)"]
        assert "(hidden)" in why.reason.sentence
        assert "bots" not in str(why)
        why = await root.ExplainJob(service_pb2.ExplainJobRequest(name="ads/x"))
        assert list(why.reason.waits_for) == [his.name]
        assert "bots/x ends in" in why.reason.sentence


async def test_jobs_are_kept_apart_from_those_of_their_own_tenant(tmp_path: Path) -> None:
    """A pattern of ada's is for ads alone: bob's job of that name does not stand in its way."""
    alone = Affinity(avoid=(("zone", ("other",)),))
    async with callers(tmp_path, *WHO, tenants=TENANTS) as (_, ada, bob, root):
        for zone in range(2):
            await bob.CreateJob(create("other" if zone else "filler", 3))
        asked = create("a", affinity=alone)
        asked.validate_only = True
        answer = (await ada.CreateJob(asked)).answer
        assert answer.outcome == placement_pb2.OUTCOME_PLACED
        made = await ada.CreateJob(create("a", affinity=alone))
        assert list(made.spec.constraints.avoid[0].jobs) == ["other"]
        theirs = create("b", affinity=Affinity(avoid=(("zone", ("bots/*",)),)))
        for only_checked in (True, False):
            theirs.validate_only = only_checked
            error = await refused(ada.CreateJob(theirs))
            assert error.fields == ("spec.constraints.avoid.zone",)
        theirs.spec.tenant = "ads"
        kept = await root.CreateJob(theirs)
        assert list(kept.spec.constraints.avoid[0].jobs) == ["bots/*"]


async def test_without_authentication_a_bare_name_is_of_the_default_tenant(tmp_path: Path) -> None:
    """On the wire, and on the command line, which says tenant/name."""

    async def asked(*words: str) -> Any:
        done = await muster(served, *words, "--format", "json")
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    async with serving(tmp_path, tenants=TENANTS) as served:
        first = await served.start("a", 8)
        second = await served.stub.CreateJob(create("a", 8, tenant="ads"))
        for name in ("a", "default/a", path("a")):
            assert (await served.get(name)).uid == first.uid
        assert (await served.get("ads/a")).uid == second.uid
        stated = await refused(served.stub.CreateJob(create("a", tenant="default")))
        assert stated.code is grpc.StatusCode.ALREADY_EXISTS
        mine = await asked("job", "a")
        assert (mine["name"], mine["spec"]["name"], mine["tenant"]) == ("a", "a", "default")
        other = await asked("explain", "ads/a")
        assert (other["name"], other["reason"]["waits_for"]) == ("ads/a", ["a"])
        jobs = (await asked("jobs"))["jobs"]
        assert [job["name"] for job in jobs] == ["a", "ads/a"]
        hosts = (await asked("hosts", "--job", "a"))["hosts"]
        assert {host["job"] for host in hosts} == {"a"}
        gone = await asked("cancel", "ads/a")
        assert gone["state"] == "JOB_STATE_CANCELLED"
        assert (await served.get("a")).state == job_pb2.JOB_STATE_RUNNING


async def test_jobs_from_before_there_was_an_auth_file_are_hidden_from_others(
    tmp_path: Path,
) -> None:
    """`filler` and `last` came when nobody was asked who they are: they are of the default tenant,
    and their names say so once callers are told apart."""
    async with serving(tmp_path, tenants=TENANTS) as served:
        filler = await served.stub.CreateJob(create("filler", 8))
        await served.stub.CreateJob(create("last", 8))
        await served.until("filler", RUNNING)
    async with callers(tmp_path, *WHO, tenants=TENANTS) as (_, ada, _, root):
        await ada.CreateJob(create("mine", 8))
        why = await ada.ExplainJob(service_pb2.ExplainJobRequest(name="mine"))
        assert "(hidden)" in why.reason.sentence
        assert not re.search("filler|last", str(why))
        everything = await root.ListJobs(service_pb2.ListJobsRequest())
        names = [job.name for job in everything.jobs]
        assert names == [path("filler"), path("last"), path("mine", "ads")]
        same = await root.GetJob(Get(name="filler"))
        assert (same.uid, same.state) == (filler.uid, RUNNING)
        ended = await root.CancelJob(service_pb2.CancelJobRequest(name="filler"))
        assert ended.state == CANCELLED
        for name in ("ads/mine", "last"):  # ads has had less
            await until_running(root, name)
            await root.CancelJob(service_pb2.CancelJobRequest(name=name))
    async with callers(tmp_path, *WHO, tenants=TENANTS):  # the log says so once
        pass
    assert sum(isinstance(event, NamesQualified) for event in logged(tmp_path)) == 1


async def test_what_was_said_before_there_was_an_auth_file_is_shown_to_nobody_of_one_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may call jobs by their bare names, which do not say whose they are."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 1)
    said, hosts = "makes room for secret", ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0"]
    window = window_pb2.Window(
        name="firmware", kind=window_pb2.WINDOW_KIND_MAINTENANCE, hosts=["z1-r1-h1"], reason=said
    )
    window.start_time.FromSeconds(4_000_000_000)
    window.end_time.FromSeconds(4_000_003_600)
    async with serving(tmp_path, tenants=TENANTS, clock=time.time_ns) as served:
        stub = served.stub
        for tenant, name in (("", "secret"), ("bots", "older"), ("bots", "gone")):
            await stub.CreateJob(create(name, tenant=tenant))
        for name in ("older", "gone"):  # the first one remains in the store alone
            await stub.CancelJob(service_pb2.CancelJobRequest(name=f"bots/{name}", reason=said))
        await stub.CordonHost(service_pb2.CordonHostRequest(name=hosts[0], reason=said))
        await stub.DrainHost(service_pb2.DrainHostRequest(name=hosts[1], reason=said))
        report = service_pb2.ReportHostRequest(name=hosts[2], signal="gpu-lost", detail=said)
        await stub.ReportHost(report)
        await stub.ReportLink(service_pb2.ReportLinkRequest(name="z0", share=0.5, detail=said))
        await stub.CordonLink(service_pb2.CordonLinkRequest(name="z1", reason=said))
        await stub.CreateWindow(service_pb2.CreateWindowRequest(window=window))
    settings: Any = {"tenants": TENANTS, "clock": time.time_ns}
    async with callers(tmp_path, *WHO, **settings) as (_, _, bob, root):
        # It fails after that, and the words of its cordon outlast the failure.
        failed = service_pb2.ReportHostRequest(name=hosts[0], signal="host-down", detail="now")
        await root.ReportHost(failed)

        async def called(stub: Any, method: str, **fields: Any) -> Any:
            return await getattr(stub, method)(getattr(service_pb2, f"{method}Request")(**fields))

        async def answers(stub: Any) -> list[Any]:
            begun = stub.WatchHosts(service_pb2.WatchHostsRequest(initial_list=True))
            found = await messages(begun, 1)
            found += [await called(stub, "GetHost", name=host) for host in hosts]
            lists = ("ListHosts", "ListLinks", "ListWindows", "GetStatus")
            return found + [await called(stub, method) for method in lists]

        async def found(stub: Any) -> int:
            """How many things are listed by a word of what was said."""
            asked = {"filter": "reason:secret"}
            listed = [*(await called(stub, "ListHosts", **asked)).hosts]
            listed += (await called(stub, "ListWindows", **asked)).windows
            for field in ("detail", "reason"):
                listed += (await called(stub, "ListLinks", filter=f"{field}:secret")).links
            return len(listed)

        assert all(said in str(answer) for answer in await answers(root))
        assert await found(root) == 5
        his = await answers(bob)
        assert "secret" not in str(his)
        assert [each.reason for each in his[1:4]] == ["host-down: now", "(hidden)", "(hidden)"]
        assert his[1].cordon_reason == "(hidden)"
        assert await found(bob) == 0
        gone = await bob.GetJob(Get(name="gone"))
        assert gone.reason == said.replace("secret", "(hidden)")
        assert (await bob.GetJob(Get(name="older"))).reason == "(hidden)"
        assert (await root.GetJob(Get(name="bots/older"))).reason == said
        for behind in (
            bob.WatchHosts(service_pb2.WatchHostsRequest(after_version=1)),
            bob.WatchJobs(Watch(after_version=1)),
        ):
            assert (await refused(anext(aiter(behind)))).reason == "COMPACTED"
        changes = aiter(root.WatchHosts(service_pb2.WatchHostsRequest(after_version=1)))
        assert (await anext(changes)).version > 1
