"""A tenant acts on its own jobs alone, and is told of no others: no name of another tenant comes
out, wherever an answer speaks of what is in somebody's way."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.cli.render.status import status_text
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.launch.launcher import AgentSettings
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.v1 import advice_pb2, host_pb2, job_pb2, service_pb2, window_pb2
from scheduler.wire.jobs import timestamp
from tests.integration.test_console import LOCAL, call
from tests.secured import House, callers
from tests.serving import (
    START_NS,
    Served,
    create,
    error_of,
    path,
    refused,
    serving,
    until_running,
)
from tests.waiting import until

TENANTS = Tenants(
    (Tenant("default"), Tenant("ads", guaranteed_gpus=24), Tenant("bots")),
    classes=(PriorityClass("spot", -1, is_preemptible=True),),
)
Get = service_pb2.GetJobRequest


@dataclass(frozen=True)
class Trio:
    """A server, and stubs of ada of ads, bob of bots, and an operator."""

    served: Served
    ada: Any
    bob: Any
    root: Any


@asynccontextmanager
async def trio(
    folder: Path, of: str = "bots", his_name: str = "bob", **settings: Any
) -> AsyncIterator[Trio]:
    """`of`: bob's tenant. `his_name`: that of his token."""
    who = ("ada", "submitter", "ads"), (his_name, "submitter", of), ("root", "admin", "")
    async with callers(folder, *who, tenants=TENANTS, **settings) as everybody:
        yield Trio(*everybody)


@pytest.fixture
async def t(tmp_path: Path) -> AsyncIterator[Trio]:
    async with trio(tmp_path) as made:
        yield made


async def test_a_uid_shows_nobody_the_job_of_another_tenant(t: Trio) -> None:
    """The name is bob's own again; the uid is of ada's job, which had it before."""
    old = await t.ada.CreateJob(create("a"))
    await t.ada.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid))
    new = await t.bob.CreateJob(create("a"))
    assert (await t.bob.GetJob(Get(name="a", uid=new.uid))).uid == new.uid
    update = job_pb2.Job(name="a", uid=old.uid, spec=job_pb2.JobSpec(priority=3))
    for asked in (
        t.bob.GetJob(Get(name="a", uid=old.uid)),
        t.bob.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid)),
        t.bob.UpdateJob(service_pb2.UpdateJobRequest(job=update)),
    ):
        error = await refused(asked)
        assert error.code is grpc.StatusCode.NOT_FOUND
        assert "ads" not in str(error)


async def test_no_filter_tells_the_names_of_others_jobs(t: Trio) -> None:
    """Reports on stragglers name the gang that they slow; answers hide it, so filters must."""
    name = "z0-r0-h0"
    await t.root.CreateJob(create("secret", tenant="ads"))
    detail = "12% slower at its part of ads/secret"
    report = service_pb2.ReportHostRequest(name=name, signal="gpu-lost", detail=detail)
    await t.root.ReportHost(report)
    await t.root.ReportLink(service_pb2.ReportLinkRequest(name="z0", share=0.5, detail=detail))
    await t.root.CordonLink(service_pb2.CordonLinkRequest(name="z1", reason="for ads/secret"))

    async def found(text: str) -> list[str]:
        hosts = await t.bob.ListHosts(service_pb2.ListHostsRequest(filter=f"reason = {text}"))
        names = [host.name for host in hosts.hosts]
        for field in ("detail", "reason"):
            request = service_pb2.ListLinksRequest(filter=f"{field} = {text}")
            names += [each.name for each in (await t.bob.ListLinks(request)).links]
        return names

    assert await found('"*part of (hidden)"') == [name, "z0"]
    assert await found('"*(hidden)"') == [name, "z0", "z1"]
    for text in ('"*ads*"', '"*secre*"', '"*/s*"'):
        assert await found(text) == []
    hosts = await t.root.ListHosts(service_pb2.ListHostsRequest(filter="reason:secret"))
    assert [host.name for host in hosts.hosts] == [name]


async def test_names_of_a_tenant_that_is_gone_stay_hidden(tmp_path: Path) -> None:
    """Its jobs have ended, and what speaks of them is still there."""
    file, detail = tmp_path / "tenants.yaml", "12% slower at its part of ads/secret, and/or so"
    file.write_text("tenants: [{name: default}, {name: bots}]\n", encoding="utf-8")
    report = service_pb2.ReportHostRequest(name="z1-r1-h1", signal="gpu-lost", detail=detail)
    async with trio(tmp_path, tenants_file=str(file)) as t:
        await t.root.CreateJob(create("secret", tenant="ads"))
        await t.root.ReportHost(report)
        await t.root.CancelJob(service_pb2.CancelJobRequest(name="ads/secret"))
        t.served.reload.set()
        listing, known = service_pb2.ListTenantsRequest(), len(TENANTS.tenants)
        await until(lambda: t.root.ListTenants(listing), lambda a: len(a.tenants) != known)
        host = await t.bob.GetHost(service_pb2.GetHostRequest(name="z1-r1-h1"))
        status = await t.bob.GetStatus(service_pb2.GetStatusRequest())
    assert host.reason.endswith("its part of (hidden), and/or so")
    assert [each.detail for each in status.incidents] == [host.reason]


async def test_a_request_id_is_the_callers_own(tmp_path: Path) -> None:
    """An id that was used says nothing to a caller of another tenant, of the same name even, and
    does not stand in its way."""
    async with trio(tmp_path, his_name="ada") as t:
        first = await t.ada.CreateJob(create("secret", request_id="r"))
        again = await t.ada.CreateJob(create("secret", request_id="r"))
        assert again.uid == first.uid
        other = await t.bob.CreateJob(create("b", request_id="r"))
        assert (first.tenant, other.name) == ("ads", "tenants/bots/jobs/b")
        error = await refused(t.bob.CreateJob(create("c", request_id="r")))
        assert error.fields == ("request_id",)
        assert "secret" not in str(error)


async def test_a_repeat_is_answered_as_the_first_time(served: Served) -> None:
    """Whatever happened since, and also where the first time changed nothing."""
    stub = served.stub
    first = await stub.CreateJob(create("a", request_id="c"))
    labelled = job_pb2.Job(name="a", spec=job_pb2.JobSpec(labels={"k": "v"}))
    await stub.UpdateJob(service_pb2.UpdateJobRequest(job=labelled))
    again = await stub.CreateJob(create("a", request_id="c"))
    assert (again.uid, dict(again.spec.labels)) == (first.uid, {"k": "v"})
    cancel = service_pb2.CancelJobRequest(name="a", request_id="e")
    await served.cancel("a")
    assert (await stub.CancelJob(cancel)).uid == first.uid  # it was cancelled already
    second = await stub.CreateJob(create("a"))
    again = await stub.CreateJob(create("a", request_id="c"))
    repeat = await stub.CancelJob(cancel)
    assert again.uid == repeat.uid == first.uid != second.uid
    assert again.state == repeat.state == job_pb2.JOB_STATE_CANCELLED
    assert (await served.get("a")).uid == second.uid
    assert (await served.get("a")).state != job_pb2.JOB_STATE_CANCELLED
    cancel.reason = "another request"
    error = await refused(stub.CancelJob(cancel))
    assert error.fields == ("request_id",)
    assert error.message == "request_id: 'e' was used for another request: cancelled a"
    await served.report("z1-r1-h1", "repaired", request_id="h")
    await served.report("z1-r1-h1", "nic-down")
    host = await served.report("z1-r1-h1", "repaired", request_id="h")
    assert host.state == host_pb2.HOST_STATE_FAILED
    nothing = service_pb2.DefragmentRequest(hosts=1, apply=True, request_id="d")
    sentence = (await stub.Defragment(nothing)).sentence
    assert (await stub.Defragment(nothing)).sentence == sentence


async def test_jobs_that_end_do_not_push_out_those_of_another_tenant(
    t: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 3)
    for stub, names in ((t.ada, ["kept"]), (t.bob, [f"flood{turn}" for turn in range(8)])):
        for name in names:
            await stub.CreateJob(create(name))
            await stub.CancelJob(service_pb2.CancelJobRequest(name=name))
    for stub, at_hand in ((t.ada, 1), (t.bob, 3)):
        recent = await stub.ListJobs(service_pb2.ListJobsRequest(recent_only=True))
        assert len(recent.jobs) == at_hand


def held(name: str, tenant: str = "") -> service_pb2.CreateJobRequest:
    request = create(name, tenant=tenant)
    request.spec.hold = True
    return request


async def test_a_circle_of_dependencies_names_no_job_of_another_tenant(t: Trio) -> None:
    for name in ("first", "last"):
        await t.bob.CreateJob(held(name))
    await t.root.CreateJob(held("secret", tenant="ads"))
    await t.root.UpdateJob(after("ads/secret", "bots/last"))
    await t.root.UpdateJob(after("bots/first", "ads/secret"))
    his_error = await refused(t.bob.UpdateJob(after("last", "first")))
    error = await refused(t.root.UpdateJob(after("bots/last", "bots/first")))
    circle = "bots/last waits for bots/first waits for {} waits for bots/last"
    assert circle.format("ads/secret") in error.message
    assert circle.format("a job of another tenant") in his_error.message
    assert "secret" not in str(his_error)


async def test_who_is_of_a_tenant_that_is_not_there_learns_of_no_others(tmp_path: Path) -> None:
    """Tokens may come before the tenants file names their tenant."""
    async with trio(tmp_path, of="cats") as t:
        errors = [await refused(t.bob.CreateJob(create("a")))]
        errors.append(await refused(t.bob.ListSlots(service_pb2.ListSlotsRequest())))
    assert "no tenant 'cats'" in errors[0].message
    for error in errors:
        assert "bots" not in str(error)


async def test_the_command_of_a_job_is_shown_as_it_was_written(tmp_path: Path) -> None:
    """A path may look like the full name of a job: `ads/train.py`."""
    run = job_pb2.Run(command=["python", "ads/train.py"], workdir="/data/bots/x")
    request = held("a")
    request.spec.run.CopyFrom(run)
    async with trio(tmp_path, agents=AgentSettings(GatewayOptions("127.0.0.1:0"))) as t:
        await t.bob.CreateJob(request)
        shown = (await t.bob.GetJob(Get(name="a"))).spec.run
    assert (shown.command, shown.workdir) == (run.command, run.workdir)


async def test_hosts_do_not_say_whose_job_they_hold(t: Trio) -> None:
    """Nor which block, by themselves and in a list alike."""
    await t.ada.CreateJob(create("victim", 8))
    await until_running(t.ada, "victim")
    cordon = service_pb2.CordonHostRequest(name="z0-r0-h0", reason="ads/victim is slow, read/write")
    await t.root.CordonHost(cordon)
    seen = {}
    for name, stub in (("ada", t.ada), ("bob", t.bob), ("root", t.root)):
        listed = (await stub.ListHosts(service_pb2.ListHostsRequest())).hosts
        seen[name] = await stub.GetHost(service_pb2.GetHostRequest(name="z0-r0-h0"))
        assert (seen[name], seen[name].HasField("block")) == (listed[0], name != "bob")
        assert {host.job for host in listed} == {seen[name].job}
    watched = await anext(aiter(t.bob.WatchHosts(service_pb2.WatchHostsRequest(after_version=0))))
    theirs = seen["bob"]
    assert theirs.job == "(hidden)"
    assert theirs.reason == theirs.cordon_reason == "(hidden) is slow, read/write"
    assert "victim" not in str(theirs) + str(watched)
    assert seen["ada"].job == seen["root"].job == "tenants/ads/jobs/victim"
    assert seen["ada"].reason == "victim is slow, read/write"
    assert seen["root"].reason == "ads/victim is slow, read/write"


async def test_a_job_with_the_name_of_a_word_blanks_no_words(t: Trio) -> None:
    for name in ("free", "hosts", "needs"):
        await t.ada.CreateJob(create(name, 1))
        await until_running(t.ada, name)
    await t.bob.CreateJob(create("b", 8, priority_class="spot"))
    why = await t.bob.ExplainJob(service_pb2.ExplainJobRequest(name="b"))
    assert why.reason.sentence.startswith("needs 8 hosts; 5 are free; (hidden), (hidden), ")


async def test_a_condition_tells_nothing_of_tenants_jobs_and_windows(t: Trio) -> None:
    await t.ada.CreateJob(create("victim", 8))
    await t.root.CreateWindow(secret_window())
    await t.bob.CreateJob(create("b", 8, priority_class="spot"))
    for condition, there, not_there in (
        ("cancel {}", "ads/victim", "ads/nobody"),
        ("end {}", "victim", "nobody"),
        ("without-window {}", "secret-plan", "nothing"),
    ):
        answers = []
        for name in (there, not_there):
            ask = service_pb2.ExplainJobRequest(name="b", suppose=[condition.format(name)])
            error = await refused(t.bob.ExplainJob(ask))
            answers.append((error.code, error.fields, error.message.replace(name, "X")))
        assert answers[0] == answers[1]


async def test_a_dry_run_that_avoids_jobs_finds_no_names_of_others(t: Trio) -> None:
    """Letter by letter `v*`, `vi*`, ... found the name of a job that was in the way, in 222 calls.
    A bare pattern is of the caller's own tenant, and one of another tenant is refused unseen."""
    right, wrong = ["*", "v*", "vict*", "victim"], ["*", "z*", "zzzz*", "zzzzzz"]
    await t.ada.CreateJob(create("victim", 1))
    await t.ada.CreateJob(create("victim-2", 4))  # one in each zone
    for name in ("victim", "victim-2"):
        await until_running(t.ada, name)
    for tenant, other in (("", ""), ("bots/", "bots/"), ("ads/", "nobody/"), ("a*/", "z*/")):
        answers = []
        for pattern in (*(tenant + name for name in right), *(other + name for name in wrong)):
            answers.append(await _avoiding(t.bob, pattern))
        assert len(set(answers)) == 1
        assert ("hosts" in answers[0]) == (tenant in ("", "bots/"))
    assert await _avoiding(t.root, "ads/vic*", "bots") != await _avoiding(t.root, "*", "bots")


async def _avoiding(stub: Any, pattern: str, tenant: str = "") -> str:
    """What a dry run says of a gang whose zone has no job of that pattern."""
    ask = create("b", 3, affinity=Affinity(avoid=(("zone", (pattern,)),)), tenant=tenant)
    ask.validate_only = True
    try:
        return str((await stub.CreateJob(ask)).answer)
    except grpc.aio.AioRpcError as error:
        return str(error_of(error)).replace(pattern, "X")


def secret_window() -> service_pb2.CreateWindowRequest:
    """A reservation of ads that begins in an hour."""
    kind = window_pb2.WINDOW_KIND_RESERVATION
    window = window_pb2.Window(name="secret-plan", kind=kind, hosts=["z0"], tenant="ads")
    window.reason = "launch of the secret model"
    window.start_time.FromNanoseconds(START_NS + 3_600 * 10**9)
    window.end_time.FromNanoseconds(START_NS + 7_200 * 10**9)
    return service_pb2.CreateWindowRequest(window=window)


async def test_windows_and_guarantees_of_others_are_not_named(t: Trio) -> None:
    await t.root.CreateWindow(secret_window())
    await t.bob.CreateJob(create("long", 5, priority_class="spot"))
    await t.bob.CreateJob(create("firm", 3))
    await t.bob.CreateJob(create("more", 3))
    told, kinds = "", set()
    for name in ("long", "firm", "more"):
        why = await t.bob.ExplainJob(service_pb2.ExplainJobRequest(name=name))
        told += str(why) + str(await t.bob.GetJob(Get(name=name)))
        kinds |= {obstacle.kind for obstacle in why.reason.obstacles}
    assert {advice_pb2.OBSTACLE_KIND_WINDOW, advice_pb2.OBSTACLE_KIND_GUARANTEE} <= kinds
    assert ("secret" in told, "ads" in told) == (False, False)


async def test_the_status_shows_the_callers_own_gangs_beside_larger_ones_of_others(t: Trio) -> None:
    for stub, name, hosts in ((t.ada, "large", 3), (t.ada, "larger", 3), (t.bob, "his", 1)):
        await stub.CreateJob(create(name, hosts))
        await until_running(stub, name)
    shown = await t.bob.GetStatus(service_pb2.GetStatusRequest(gangs=1))
    everything = await t.root.GetStatus(service_pb2.GetStatusRequest(gangs=1))
    assert ([gang.job for gang in shown.gangs], shown.gang_count) == ([path("his", "bots")], 1)
    assert ([gang.hosts for gang in everything.gangs], everything.gang_count) == ([3], 3)
    assert "and 2 smaller gangs" in status_text(everything)


# --- a net over all answers ----------------------------------------------------------


MARK = b"sekret"
WORDS = "slow at its part of sekretads/sekret0"
MARKED_TENANTS = Tenants(
    (Tenant("default"), Tenant("sekretads", guaranteed_gpus=24), Tenant("bots", guaranteed_gpus=8)),
    classes=(PriorityClass("high", 10), PriorityClass("low", -5, is_preemptible=True)),
)
SUPPOSED = (
    *("cordon z0", "fail z0-r0-h0", "repair z1-r1-h1", "priority 100", "limit 1h"),
    *("class high", "class low", "uncordon z0"),
)


def job(name: str, hosts: int, kind: str, **more: Any) -> Any:
    request = create(name, hosts, priority_class=kind, **more)
    request.spec.labels["team"] = name
    return request


def window(name: str, kind: Any, **more: Any) -> service_pb2.CreateWindowRequest:
    """A window that is open now."""
    made = window_pb2.Window(name=name, kind=kind, reason=WORDS, **more)
    made.start_time.CopyFrom(timestamp(time.time_ns()))
    made.end_time.CopyFrom(timestamp(time.time_ns() + 20 * 10**9))
    return service_pb2.CreateWindowRequest(window=made)


def after(name: str, awaited: str) -> service_pb2.UpdateJobRequest:
    term = job_pb2.Dependency(kind=job_pb2.DEPENDENCY_KIND_AFTERANY, job=awaited)
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(dependencies=[term]))
    return service_pb2.UpdateJobRequest(job=job, update_mask={"paths": ["spec.dependencies"]})


async def life(ada: Any, root: Any, bob: Any) -> AsyncIterator[str]:
    """Do what ada and an operator do, beside jobs of bob; yield what was done last."""
    messages, maintenance = service_pb2, window_pb2.WINDOW_KIND_MAINTENANCE
    await bob.CreateJob(job("m0", 1, "low"))
    await until_running(bob, "m0")
    yield "bob is alone"
    await ada.CreateJob(job("sekret0", 3, "low", min_dp=2))
    held = (await until_running(ada, "sekret0")).placement.hosts
    await ada.CreateJob(job("sekret1", 3, "high"))
    await until_running(ada, "sekret1")
    await bob.CreateJob(job("m1", 5, "low"))
    await ada.CreateJob(job("sekret2", 5, "low"))
    yield "hers run and wait beside his"
    await root.ReportHost(messages.ReportHostRequest(name=held[0], signal="gpu-lost", detail=WORDS))
    await root.ReportLink(messages.ReportLinkRequest(name="z0", share=0.5, detail=WORDS))
    yield "a host of hers and an uplink failed"
    await root.DrainHost(messages.DrainHostRequest(name=held[1], reason=WORDS))
    await root.UpdateJob(after("bots/m1", "sekretads/sekret2"))
    yield "another host of hers is drained, and a job of his waits for one of hers"
    failed = job_pb2.JOB_STATE_FAILED
    await ada.EndJob(
        messages.EndJobRequest(name="sekret1", outcome=failed, reason="sekret is full")
    )
    yield "a gang of hers failed"
    await root.CreateWindow(window("w", maintenance, hosts=["z1-r1"]))
    reservation = window_pb2.WINDOW_KIND_RESERVATION
    await root.CreateWindow(window("sekretw", reservation, hosts=["z0-r1"], tenant="sekretads"))
    await root.Defragment(messages.DefragmentRequest(hosts=2))
    yield "windows are open"
    await root.ReportHost(messages.ReportHostRequest(name=held[0], signal="repaired"))
    await root.UncordonHost(messages.UncordonHostRequest(name=held[1]))
    yield "hosts came back"
    for name in ("sekret0", "sekret2"):
        await ada.CancelJob(messages.CancelJobRequest(name=name, reason="sekret reason"))
    await bob.CreateJob(job("m2", 2, "high"))
    yield "hers are over"


def looks(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Calls of bob, who has jobs of these names: method and request."""
    for hosts, kind in product((2, 8), ("high", "low")):
        dry = job("dry", hosts, kind)
        dry.validate_only = dry.estimate_start = dry.with_decision = True
        yield "CreateJob", dry
    yield from (
        ("ListJobs", service_pb2.ListJobsRequest(estimate_starts=True)),
        ("ListJobs", service_pb2.ListJobsRequest(page_size=1)),
        ("GetStatus", service_pb2.GetStatusRequest(gangs=100, incidents=100)),
        ("ListHosts", service_pb2.ListHostsRequest()),
        ("ListHosts", service_pb2.ListHostsRequest(filter='reason = "*"', page_size=1)),
        ("ListLinks", service_pb2.ListLinksRequest()),
        ("ListWindows", service_pb2.ListWindowsRequest()),
        ("ListSpares", service_pb2.ListSparesRequest()),
        ("ListSlots", service_pb2.ListSlotsRequest(sizes=[8, 32])),
        ("SumUsage", service_pb2.SumUsageRequest(group_by=[1, 2, 3])),
        ("ListTenants", service_pb2.ListTenantsRequest()),
    )
    for name in names:
        yield "GetJob", service_pb2.GetJobRequest(name=name, with_decision=True)
        yield "UpdateJob", after(name, "m1")
        for suppose in ([], *([each] for each in SUPPOSED)):
            yield "ExplainJob", service_pb2.ExplainJobRequest(name=name, suppose=suppose)


async def answered(stub: Any, method: str, request: Any) -> bytes:
    """All that comes back, refusals included; of a stream what comes within a moment."""
    parts, asked = list[bytes](), getattr(stub, method)(request)
    try:
        if method.startswith("Watch"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    async for message in asked:
                        parts.append(message.SerializeToString())
            asked.cancel()
        else:
            parts.append((await asked).SerializeToString())
    except grpc.aio.AioRpcError as error:
        parts.append((error.details() or "").encode())
        values = [value for _, value in error.trailing_metadata() or ()]
        parts += [value if isinstance(value, bytes) else value.encode() for value in values]
    return b"\n".join(parts)


def has_mark(raw: bytes) -> bool:
    """Also within what looks like base64, as tokens of pages do."""
    return MARK in raw or any(
        MARK in base64.urlsafe_b64decode(text[: len(text) // 4 * 4])
        for text in re.findall(rb"[A-Za-z0-9_-]{8,}", raw)
    )


async def test_nothing_of_a_tenant_reaches_a_caller_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a job is over."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 1)
    assert has_mark(b"token " + base64.urlsafe_b64encode(b"12" + MARK + b"3"))
    house = House(tmp_path)
    root, ada = house.token("root", "admin"), house.token("sekretada", "coordinator", "sekretads")
    bob = house.token("bob", "coordinator", "bots")
    settings: Any = {"console": LOCAL, "clock": time.time_ns, "tenants": MARKED_TENANTS}
    async with (
        serving(tmp_path, access=house.access(), **settings) as served,
        house.calling(served, root) as operator,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        async for act in life(hers, operator, his):
            for method, request in looks(["m0", "m1"]):
                answer = await answered(his, method, request)
                assert not has_mark(answer), (act, method, request, answer)
        for kind in ("Jobs", "Hosts"):
            request = getattr(service_pb2, f"Watch{kind}Request")(after_version=1)
            assert not has_mark(await answered(his, f"Watch{kind}", request)), kind
        shown = {"authorization": f"Bearer {bob}", "accept_encoding": "identity"}
        for method, verb in (("/timeline", "GET"), ("GetStatus", "POST"), ("ListHosts", "POST")):
            reply = await call(served, method, {}, verb=verb, **shown)
            assert (reply.status, has_mark(reply.body)) == (200, False), method
        everything = await answered(operator, "ListJobs", service_pb2.ListJobsRequest())
        assert has_mark(everything)  # there was something to hide
