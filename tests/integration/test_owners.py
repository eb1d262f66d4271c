"""A user acts on its own jobs alone, also beside others of its tenant, and without an operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from scheduler.cli.program import app
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.service.backend import Backend
from scheduler.service.questions import Questions
from scheduler.v1 import job_pb2, service_pb2
from tests.secured import House, callers
from tests.serving import (
    CANCELLED,
    COMPLETED,
    create,
    error_of,
    refused,
    serving,
    until_running,
)

TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))
ROUNDS = 8
DENIED, MISSING = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND
Cancel, Get = service_pb2.CancelJobRequest, service_pb2.GetJobRequest

ROLES = {  # of tenant ads, but for the last ones
    "ada": "submitter",
    "bea": "submitter",
    "vic": "viewer",
    "lou": "launcher",
    "cor": "coordinator",
    "bob": "submitter",
    "eve": "submitter",
    "root": "operator",
}


@asynccontextmanager
async def every_caller(
    folder: Path,
) -> AsyncIterator[tuple[dict[str, Any], dict[str, dict[str, str]]]]:
    """A stub of each caller, and what their commands take from the environment."""
    house = House(folder)
    of = {"root": "", "bob": "bots", "eve": "*"}
    tokens = {name: house.token(name, role, of.get(name, "ads")) for name, role in ROLES.items()}
    async with AsyncExitStack() as stack:
        opened = serving(folder, access=house.access(), tenants=TENANTS)
        served = await stack.enter_async_context(opened)
        stubs = {
            name: await stack.enter_async_context(house.calling(served, token))
            for name, token in tokens.items()
        }
        trusted = folder / "ca.pem"
        trusted.write_bytes(house.ca.cert_pem.bytes())
        common = {"MUSTER_CA": str(trusted), "MUSTER_ADDRESS": served.ready.address}
        yield stubs, {name: {**common, "MUSTER_TOKEN": text} for name, text in tokens.items()}


def end(name: str) -> service_pb2.EndJobRequest:
    return service_pb2.EndJobRequest(name=name, outcome=COMPLETED)


def label(name: str) -> service_pb2.UpdateJobRequest:
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(labels={"k": "v"}))
    return service_pb2.UpdateJobRequest(job=job)


def logs(name: str) -> service_pb2.TailLogsRequest:
    return service_pb2.TailLogsRequest(name=name)


async def _code(call: Any) -> grpc.StatusCode:
    """How a call or a stream ends."""
    try:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error_of(error).code
    return grpc.StatusCode.OK


async def test_who_may_do_what_to_a_job(tmp_path: Path) -> None:
    """For each caller: change, cancel, finish, read logs of a job of ada's that no agent starts."""
    ok, no_log = grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION
    expected = {
        "bea": (DENIED, DENIED, DENIED, DENIED),
        "vic": (DENIED, DENIED, DENIED, DENIED),
        "lou": (DENIED, DENIED, ok, DENIED),
        "ada": (ok, ok, ok, no_log),
        "cor": (ok, ok, ok, no_log),
        "bob": (MISSING, MISSING, MISSING, MISSING),
        "eve": (DENIED, DENIED, DENIED, DENIED),
        "root": (ok, ok, ok, no_log),
    }
    async with every_caller(tmp_path) as (stubs, _):
        made = await stubs["ada"].CreateJob(create("a"))
        assert made.user == "ada"
        await until_running(stubs["ada"], "a")
        outcomes = {}
        for name, stub in stubs.items():
            full = "ads/a" if name in ("root", "eve") else made.name
            finish = end(full)
            finish.validate_only = True
            outcomes[name] = (
                await _code(stub.UpdateJob(label(full))),
                await _code(stub.CancelJob(Cancel(name=full, validate_only=True))),
                await _code(stub.EndJob(finish)),
                await _code(stub.TailLogs(logs(full))),
            )
            if name != "bob":
                assert (await stub.GetJob(Get(name=full))).user == "ada"
        assert outcomes == expected
        await stubs["bob"].CreateJob(create("b"))
        assert await _code(stubs["ada"].GetJob(Get(name="bots/b"))) is MISSING
        assert await _code(stubs["vic"].CancelJob(Cancel(name="bots/b"))) is DENIED
        error = await refused(stubs["bea"].CancelJob(Cancel(name="a")))
        assert error.message.removeprefix("bea may not change job ").endswith(
            "a: it is of user ada"
        )
        assert (await stubs["ada"].EndJob(end("a"))).state == COMPLETED


@pytest.fixture
def with_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers say that agents start their gangs."""

    def made(questions: Questions, **_: bool) -> Backend:
        return Backend(questions, has_agents=True)

    monkeypatch.setattr("scheduler.server.serve.Backend", made)


@pytest.mark.usefixtures("with_agents")
async def test_a_launcher_ends_no_gang_that_agents_start(tmp_path: Path) -> None:
    async with every_caller(tmp_path) as (stubs, _):
        launched = create("agents")
        launched.spec.run.command.append("true")
        await stubs["ada"].CreateJob(launched)
        await stubs["bob"].CreateJob(create("other"))
        await stubs["ada"].CreateJob(create("own"))
        for name in ("own", "agents"):
            await until_running(stubs["ada"], name)
        error = await refused(stubs["lou"].EndJob(end("agents")))
        assert error.code is DENIED
        assert "agents start it" in error.message
        assert (await refused(stubs["lou"].EndJob(end("bots/other")))).code is MISSING
        assert (await stubs["lou"].EndJob(end("own"))).state == COMPLETED
        for call in (
            stubs["lou"].CreateJob(create("b")),
            stubs["lou"].CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0")),
        ):
            assert (await refused(call)).code is DENIED


@pytest.mark.usefixtures("with_agents")
async def test_ranks_run_as_their_submitter_or_whom_the_auth_file_names(tmp_path: Path) -> None:
    """Else whoever may submit reads on the hosts whatever others may."""
    who = (
        ("ada", "submitter", "ads"),
        ("bob", "submitter", "bots"),
        ("cor", "coordinator", "bots", ", run_as: [batch, ada]"),
        ("any", "submitter", "bots", ', run_as: ["*"]'),
        ("root", "operator"),
    )
    may = {
        "ada": {"", "ada"},
        "bob": {"", "bob"},
        "cor": {"", "cor", "batch", "ada"},
        "any": {"", "ada", "bob", "cor", "batch", "root"},
        "root": {"", "ada", "bob", "cor", "batch", "root"},
    }
    async with callers(tmp_path, *who, tenants=TENANTS) as (_, *stubs):
        for name, stub in zip(may, stubs, strict=True):
            for user in ("", "ada", "bob", "cor", "batch", "root"):
                for is_check in (True, False):
                    made = create(f"{name}-as-{user or 'default'}", 1)
                    made.spec.run.command.append("true")
                    made.spec.run.user, made.validate_only = user, is_check
                    if user in may[name]:
                        assert (await stub.CreateJob(made)).spec.run.user == user
                        continue
                    error = await refused(stub.CreateJob(made))
                    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
                    assert error.fields == ("spec.run.user",)
                    assert f"{name} may not run as {user}" in error.message


async def test_a_name_that_changes_hands_gives_nobody_anothers_job(tmp_path: Path) -> None:
    """bea's changes were checked on her own job of that name, and would meet ada's new one."""
    async with every_caller(tmp_path) as (stubs, _):
        ada, bea = stubs["ada"], stubs["bea"]
        for turn in range(ROUNDS):
            name = f"victim{turn}"
            await bea.CreateJob(create(name))
            await bea.CancelJob(Cancel(name=name, request_id=f"r{turn}"))
            attacks = [
                call
                for _ in range(8)
                for call in (bea.CancelJob(Cancel(name=name)), bea.UpdateJob(label(name)))
            ]
            made, *answers = await asyncio.gather(
                ada.CreateJob(create(name)), *attacks, return_exceptions=True
            )
            assert not isinstance(made, BaseException), made
            job = await ada.GetJob(Get(name=name))
            assert (job.uid, job.user) == (made.uid, "ada")
            assert job.state != CANCELLED
            assert not job.spec.labels
            for answer in answers:
                if isinstance(answer, grpc.aio.AioRpcError):
                    assert error_of(answer).code in (DENIED, grpc.StatusCode.FAILED_PRECONDITION)
                elif not isinstance(answer, BaseException):
                    assert answer.user == "bea"
            again = await bea.CancelJob(Cancel(name=name, request_id=f"r{turn}"))
            assert (again.user, again.state) == ("bea", CANCELLED)  # what that request did
            await ada.CancelJob(Cancel(name=name))


async def test_jobs_are_listed_by_user_and_keep_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live ones, ended ones at hand and those in the store alone, before and after a restart."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 1)
    everybody = {"ada": ["old0", "old1", "live"], "bea": ["hers"]}

    async def listed(stub: Any, filter: str) -> list[str]:
        page = await stub.ListJobs(service_pb2.ListJobsRequest(filter=filter))
        return [job.name.rpartition("/")[2] for job in page.jobs]

    for turn in range(2):
        async with every_caller(tmp_path) as (stubs, _):
            ada, bea = stubs["ada"], stubs["bea"]
            if not turn:
                for name in ("old0", "old1"):
                    await ada.CreateJob(create(name))
                    await ada.CancelJob(Cancel(name=name))
                await ada.CreateJob(create("live"))
                await bea.CreateJob(create("hers"))
                await stubs["bob"].CreateJob(create("his"))
            for stub in (ada, bea, stubs["vic"]):
                assert await listed(stub, "user = ada") == everybody["ada"]
            assert await listed(ada, 'user = "@me"') == everybody["ada"]
            assert await listed(bea, "user = @me") == everybody["bea"]
            assert await listed(bea, 'user != "@me"') == everybody["ada"]
            assert await listed(stubs["vic"], 'user = "@me"') == []
            assert await listed(stubs["root"], 'user = "b*"') == ["hers", "his"]


async def _lines(environment: dict[str, str], *words: str) -> list[str]:
    """The exit code of a command and what it prints."""
    done = await asyncio.to_thread(CliRunner().invoke, app, words, env=environment)
    return [str(done.exit_code), *done.output.splitlines()]


async def test_commands_for_ones_own_jobs(tmp_path: Path) -> None:
    async with every_caller(tmp_path) as (stubs, shells):
        for name, job in (("ada", "mine"), ("bea", "hers"), ("bob", "his")):
            await stubs[name].CreateJob(create(job))
        for caller, words, expected in (
            ("ada", ["--me"], ["ads/mine"]),
            ("ada", ["-u", "bea"], ["ads/hers"]),
            ("ada", ["--me", "-u", "bea", "--filter", "name != hers"], ["ads/mine"]),
            ("ada", ["-u", "*"], []),
            ("root", ["--tenant", "bots"], ["bots/his"]),
            ("root", ["--tenant", "ads", "-u", "ada", "-u", "bob"], ["ads/mine"]),
        ):
            listed = await _lines(shells[caller], "jobs", *words, "-o", "name")
            assert listed == ["0", *expected], words
        table = await _lines(shells["ada"], "jobs", "--me")
        assert table[1].split()[:3] == ["NAME", "TENANT", "USER"]
        assert table[2].split()[:3] == ["ads/mine", "ads", "ada"]
        denied = await _lines(shells["bea"], "finish", "mine", "--outcome", "completed")
        assert denied[0] == "1"
        assert "bea may not finish job" in denied[1]
        await until_running(stubs["ada"], "mine")
        done = await _lines(shells["ada"], "finish", "mine", "--outcome", "completed")
        assert done[0] == "0"
        assert "user" in "".join(done)


async def test_the_audit_log_is_read_through_the_server(tmp_path: Path) -> None:
    """Page by page, by those who may; and a stopped server's from its store."""
    async with every_caller(tmp_path) as (stubs, shells):
        ada, root = stubs["ada"], stubs["root"]
        for turn in range(5):
            await ada.CreateJob(create(f"j{turn}"))
        await until_running(ada, "j0")  # which nobody asked for
        await root.CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0", reason="cable"))
        denied = await _code(ada.ListAuditRecords(service_pb2.ListAuditRecordsRequest()))
        assert denied is DENIED
        ask = service_pb2.ListAuditRecordsRequest(page_size=2, filter="actor = ada")
        records = list[service_pb2.AuditRecord]()
        for count in (2, 2, 1):
            page = await root.ListAuditRecords(ask)
            assert len(page.audit_records) == count
            records += page.audit_records
            ask.page_token = page.next_page_token
        assert not page.next_page_token
        assert [each.subject for each in records] == [f"ads/j{turn}" for turn in range(5)]
        assert {(each.actor, each.event) for each in records} == {("ada", "JobSubmitted")}
        ask.filter, ask.page_token = "actor = root", "nonsense"
        assert (await refused(root.ListAuditRecords(ask))).fields == ("page_token",)
        code, *printed = await _lines(shells["root"], "audit")
        assert code == "0"
        assert [line.split("  ")[1:] for line in printed if "root" in line] == [
            ["root", "HostMoved", "z0-r0-h0 cordon", "cable"]
        ]
        assert not any("JobStarted" in line for line in printed)
        assert await _lines(shells["root"], "audit", "--since", "2100-01-01") == ["0"]
