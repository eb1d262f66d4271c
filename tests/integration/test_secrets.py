"""No name of another tenant comes out, wherever an answer speaks of what is in somebody's way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.v1 import advice_pb2, service_pb2, window_pb2
from tests.secured import House
from tests.serving import START_NS, create, error_of, path, refused, serving, until_running

TENANTS = Tenants(
    (Tenant("default"), Tenant("ads", guaranteed_gpus=24), Tenant("bots")),
    classes=(PriorityClass("spot", -1, is_preemptible=True),),
)
Get = service_pb2.GetJobRequest


@dataclass(frozen=True)
class Trio:
    """Stubs of ada of ads, bob of bots, and an operator."""

    ada: Any
    bob: Any
    root: Any


@asynccontextmanager
async def trio(folder: Path) -> AsyncIterator[Trio]:
    house = House(folder)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    root = house.token("root", "operator")
    async with (
        serving(folder, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
        house.calling(served, root) as operators,
    ):
        yield Trio(hers, his, operators)


async def test_hosts_do_not_say_whose_job_they_hold(tmp_path: Path) -> None:
    async with trio(tmp_path) as t:
        await t.ada.CreateJob(create("victim", 8))
        await until_running(t.ada, "victim")
        cordon = service_pb2.CordonHostRequest(
            name="z0-r0-h0", reason="ads/victim is slow, read/write"
        )
        await t.root.CordonHost(cordon)
        theirs = (await t.bob.ListHosts(service_pb2.ListHostsRequest())).hosts
        assert {host.job for host in theirs} == {"(hidden)"}
        assert theirs[0].reason == theirs[0].cordon_reason == "(hidden) is slow, read/write"
        watched = await anext(aiter(t.bob.WatchHosts(_from_begin())))
        own = (await t.ada.ListHosts(service_pb2.ListHostsRequest())).hosts[0]
        everybodys = (await t.root.ListHosts(service_pb2.ListHostsRequest())).hosts[0]
    assert "victim" not in str(theirs) + str(watched)
    assert (own.job, own.reason) == ("tenants/ads/jobs/victim", "victim is slow, read/write")
    assert (everybodys.job, everybodys.reason) == (own.job, "ads/victim is slow, read/write")


def _from_begin() -> service_pb2.WatchHostsRequest:
    return service_pb2.WatchHostsRequest(after_version=0)


async def test_a_job_with_the_name_of_a_word_blanks_no_words(tmp_path: Path) -> None:
    async with trio(tmp_path) as t:
        for name in ("free", "hosts", "needs"):
            await t.ada.CreateJob(create(name, 1))
            await until_running(t.ada, name)
        await t.bob.CreateJob(create("b", 8, priority_class="spot"))
        why = await t.bob.ExplainJob(service_pb2.ExplainJobRequest(name="b"))
    assert why.reason.sentence.startswith("needs 8 hosts; 5 are free; (hidden), (hidden), ")


async def test_a_condition_tells_nothing_of_tenants_jobs_and_windows(tmp_path: Path) -> None:
    window = _reservation("secret-plan", "ads")
    async with trio(tmp_path) as t:
        await t.ada.CreateJob(create("victim", 8))
        await t.root.CreateWindow(service_pb2.CreateWindowRequest(window=window))
        await t.bob.CreateJob(create("b", 8, priority_class="spot"))
        for there, not_there in (
            ("tenant ads", "tenant nobody"),
            ("cancel ads/victim", "cancel ads/nobody"),
            ("end victim", "end nobody"),
            ("without-window secret-plan", "without-window nothing"),
        ):
            words = [(there, there.split()[1]), (not_there, not_there.split()[1])]
            answers = []
            for condition, name in words:
                ask = service_pb2.ExplainJobRequest(name="b", suppose=[condition])
                error = await refused(t.bob.ExplainJob(ask))
                answers.append((error.code, error.fields, error.message.replace(name, "X")))
            assert answers[0] == answers[1]


async def test_a_dry_run_that_avoids_jobs_finds_no_names_of_others(tmp_path: Path) -> None:
    """Letter by letter `v*`, `vi*`, ... found the name of a job that was in the way, in 222 calls.
    A bare pattern is of the caller's own tenant, and one of another tenant is refused unseen."""
    right = ["victim"[:length] + "*" for length in range(7)] + ["victim"]
    wrong = ["zzzzzz"[:length] + "*" for length in range(7)] + ["zzzzzz"]
    async with trio(tmp_path) as t:
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


def _reservation(name: str, tenant: str) -> window_pb2.Window:
    def moment(hours: int) -> Timestamp:
        found = Timestamp()
        found.FromNanoseconds(START_NS + hours * 3_600 * 10**9)
        return found

    return window_pb2.Window(
        name=name,
        kind=window_pb2.WINDOW_KIND_RESERVATION,
        start_time=moment(1),
        end_time=moment(2),
        hosts=["z0"],
        tenant=tenant,
        reason="launch of the secret model",
    )


async def test_windows_and_guarantees_of_others_are_not_named(tmp_path: Path) -> None:
    async with trio(tmp_path) as t:
        window = service_pb2.CreateWindowRequest(window=_reservation("secret-plan", "ads"))
        await t.root.CreateWindow(window)
        await t.bob.CreateJob(create("long", 5, priority_class="spot"))
        await t.bob.CreateJob(create("firm", 3))
        await t.bob.CreateJob(create("more", 3))
        told = ""
        kinds = set()
        for name in ("long", "firm", "more"):
            why = await t.bob.ExplainJob(service_pb2.ExplainJobRequest(name=name))
            told += str(why) + str(await t.bob.GetJob(Get(name=name)))
            kinds |= {obstacle.kind for obstacle in why.reason.obstacles}
    assert advice_pb2.OBSTACLE_KIND_WINDOW in kinds
    assert advice_pb2.OBSTACLE_KIND_GUARANTEE in kinds
    for secret in ("secret", "ads"):
        assert secret not in told


async def test_incidents_of_others_jobs_are_not_shown_however_long_their_job_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 2)
    async with trio(tmp_path) as t:
        for turn in range(5):
            name = f"victim{turn}"
            await t.ada.CreateJob(create(name, 1))
            await until_running(t.ada, name)
            reason = "ads/x failed: no space left on secret-volume"
            end = service_pb2.EndJobRequest(name=f"ads/{name}", outcome=5, reason=reason)
            await t.root.EndJob(end)
        theirs = await t.bob.GetStatus(service_pb2.GetStatusRequest())
        own = await t.ada.GetStatus(service_pb2.GetStatusRequest())
    assert len(own.incidents) == 5
    assert not theirs.incidents
    assert own.incidents[0].subject == "tenants/ads/jobs/victim4"
    assert own.incidents[0].detail == "x failed: no space left on secret-volume"


async def test_the_status_shows_the_callers_own_gangs_beside_larger_ones_of_others(
    tmp_path: Path,
) -> None:
    async with trio(tmp_path) as t:
        for stub, name, hosts in ((t.ada, "large", 3), (t.ada, "larger", 3), (t.bob, "his", 1)):
            await stub.CreateJob(create(name, hosts))
            await until_running(stub, name)
        shown = await t.bob.GetStatus(service_pb2.GetStatusRequest(gangs=1))
        everything = await t.root.GetStatus(service_pb2.GetStatusRequest(gangs=1))
    assert ([gang.job for gang in shown.gangs], shown.gang_count) == ([path("his", "bots")], 1)
    assert ([gang.hosts for gang in everything.gangs], everything.gang_count) == ([3], 3)
