"""ID tokens at a real server: the same callers over gRPC, as JSON, for metrics and in the log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from scheduler.cli.program import app
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.server.metrics.access import metrics_auth
from scheduler.v1 import service_pb2
from tests.integration.test_console import JOB, LOCAL, call, envelope, envelopes
from tests.issuer import FakeIssuer
from tests.secured import House
from tests.serving import Served, create, path, refused, serving

TENANTS = Tenants((Tenant("vision"), Tenant("speech")), "vision")
RULES = (
    "{claim: groups, contains: ops, role: operator}",
    "{claim: groups, contains: vision, role: submitter, tenant: vision}",
    "{claim: groups, contains: eyes, role: viewer, tenant: '*'}",
)
UNSIGNED = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.e30.AA"  # 503 until there are keys to check it by
STATUS = service_pb2.GetStatusRequest()


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as made:
        yield made


@pytest.fixture
def house(tmp_path: Path, issuer: FakeIssuer) -> House:
    made = House(tmp_path)
    made.trust(issuer.section(RULES))
    return made


@asynccontextmanager
async def at(house: House, folder: Path, *, has_keys: bool = True) -> AsyncIterator[Served]:
    """A server with this auth file, once it has the keys of the issuer."""
    settings: Any = {"access": house.access(), "channel": house.channel, "clock": time.time_ns}
    async with serving(folder, console=LOCAL, tenants=TENANTS, **settings) as served:
        while has_keys and (await said(served, "GetStatus", UNSIGNED))[0] == 503:
            await asyncio.sleep(0.02)
        yield served


def of(issuer: FakeIssuer, name: str, *groups: str, **claims: Any) -> str:
    return issuer.token(email=f"{name}@example.org", groups=list(groups), **claims)


async def said(served: Served, method: str, token: str, request: Any = None) -> tuple[int, str]:
    reply = await call(served, method, request, authorization=f"Bearer {token}")
    return reply.status, str(reply.json.get("message", ""))


async def test_an_id_token_is_a_caller_on_every_path(
    tmp_path: Path, issuer: FakeIssuer, house: House
) -> None:
    ada, eye = of(issuer, "ada", "vision"), of(issuer, "eye", "eyes")
    async with at(house, tmp_path) as served, house.calling(served, ada) as stub:
        made = await stub.CreateJob(create("a", tenant="vision"))
        assert (made.name, made.user) == (path("a", "vision"), "oidc:ada@example.org")
        other = await refused(stub.CreateJob(create("b", tenant="speech")))
        assert other.code is grpc.StatusCode.PERMISSION_DENIED
        assert (await said(served, "GetJob", ada, {"name": "a"}))[0] == 200
        assert (await said(served, "GetStatus", eye))[0] == 200
        status, message = await said(served, "CreateJob", eye, JOB)
        assert (status, message.split(";")[0]) == (403, "oidc:eye@example.org is a viewer")
        status, message = await said(served, "GetStatus", of(issuer, "eve"))
        assert status == 403
        assert message.startswith("oidc:eve@example.org has no role: no rule")
        status, message = await said(served, "GetStatus", of(issuer, "ada", "vision", aud="x"))
        assert (status, message) == (401, "the ID token is for another client than muster")
        live = await call(served, "/live", verb="GET", authorization="Bearer " + ada[:-8])
        assert live.status == 401


async def test_a_token_and_an_id_token_of_one_name_are_two_users(
    tmp_path: Path, issuer: FakeIssuer, house: House
) -> None:
    plain = house.token("ada@example.org", "submitter", "vision")
    ada, ops = of(issuer, "ada", "vision"), of(issuer, "root", "ops")
    async with at(house, tmp_path) as served:
        async with house.calling(served, ada) as stub:
            await stub.CreateJob(create("a", tenant="vision", request_id="r1"))
        async with house.calling(served, plain) as stub:
            error = await refused(stub.CancelJob(service_pb2.CancelJobRequest(name="a")))
            assert "it is of user oidc:ada@example.org" in error.message
            await stub.CreateJob(create("b", tenant="vision", request_id="r1"))
        async with house.calling(served, ops) as stub:
            records = await stub.ListAuditRecords(service_pb2.ListAuditRecordsRequest())
            actors = {record.actor for record in records.audit_records}
    assert {"oidc:ada@example.org", "ada@example.org"} <= actors


async def test_a_stream_ends_when_its_id_token_does(
    tmp_path: Path, issuer: FakeIssuer, house: House
) -> None:
    async with at(house, tmp_path) as served:
        soon = of(issuer, "eye", "eyes", exp=time.time() - 27)  # 3 s are left of the leeway
        begun = time.monotonic()
        live = await call(served, "/live", verb="GET", authorization=f"Bearer {soon}")
        assert live.status == 200
        assert time.monotonic() - begun < 8
        status, message = await said(served, "GetStatus", soon)
        assert (status, message) == (401, "the ID token has expired: sign in again")
        watching = await call(
            served,
            "WatchJobs",
            envelope({}),
            content_type="application/connect+json",
            authorization=f"Bearer {soon}",
        )
        assert next(envelopes(watching.body))[1]["error"]["code"] == "unauthenticated"


async def test_the_server_starts_and_serves_others_while_the_issuer_is_away(
    tmp_path: Path, issuer: FakeIssuer, house: House
) -> None:
    plain = house.token("root", "admin")
    issuer.hang_s = 2.0
    async with (
        at(house, tmp_path, has_keys=False) as served,
        house.calling(served, plain) as stub,
    ):
        begun = time.monotonic()
        await asyncio.gather(*(stub.GetStatus(STATUS) for _ in range(20)))
        status, message = await said(served, "GetStatus", of(issuer, "ada", "vision"))
        assert time.monotonic() - begun < 1.5
        assert (status, message) == (503, f"the keys of {issuer.url} are being fetched: try again")


async def test_no_token_is_in_the_log(
    tmp_path: Path, issuer: FakeIssuer, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [of(issuer, "ada", "vision"), of(issuer, "eve"), of(issuer, "ada", aud="x")]
    async with at(house, tmp_path) as served:
        for token in tokens:
            await said(served, "GetStatus", token)
    assert "refused GetStatus of somebody" in caplog.text
    for token in tokens:
        _, body, signature = token.split(".")
        assert body not in caplog.text
        assert signature not in caplog.text


async def test_the_command_line_takes_an_id_token_in_a_file(
    tmp_path: Path, issuer: FakeIssuer, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca, kept = tmp_path / "ca.pem", tmp_path / "ada.token"
    house.ca.cert_pem.write_to_path(str(ca))
    padding = ["g" * 36] * 300  # as many groups as make 11 kB
    kept.write_text(of(issuer, "ada", "vision", *padding) + "\n", encoding="utf-8")
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    async with at(house, tmp_path) as served:

        async def muster(*words: str) -> tuple[int, str]:
            done = await asyncio.to_thread(CliRunner().invoke, app, words)
            return done.exit_code, done.output

        where = ("--address", served.ready.address, "--ca", str(ca), "--token-file", str(kept))
        assert (await muster("config", "set", "lab", *where))[0] == 0
        assert (await muster("config", "use", "lab"))[0] == 0
        code, output = await muster("jobs")
        assert code == 0, output
        code, output = await muster("cordon", "z0-r0-h0", "--reason", "fan")
        assert code != 0
        assert "oidc:ada@example.org is a submitter; this needs the role operator" in output


def test_metrics_ask_the_same(tmp_path: Path, issuer: FakeIssuer, house: House) -> None:
    asked = metrics_auth("0.0.0.0", 0, house.access(), time.time_ns)
    assert asked.refusal("Bearer " + of(issuer, "eye", "eyes")) in (
        None,
        ("503 Service Unavailable", f"the keys of {issuer.url} are being fetched: try again"),
    )
    assert asked.auth is not None
    section = asked.auth.id_tokens.section()
    assert section is not None
    asked.auth.id_tokens.issuer(section).wait(5)
    assert asked.refusal("Bearer " + of(issuer, "eye", "eyes")) is None
    status, _ = asked.refusal("Bearer " + of(issuer, "eve")) or ("", "")
    assert status == "403 Forbidden"
    status, _ = asked.refusal("Bearer " + of(issuer, "eye", "eyes", aud="x")) or ("", "")
    assert status == "401 Unauthorized"
