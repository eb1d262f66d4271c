"""ID tokens at a real server: the same callers over gRPC, as JSON, for metrics and in the log."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from scheduler.access.authenticate import Authenticator
from scheduler.access.tls import TlsFiles
from scheduler.cli.program import app
from scheduler.console import session
from scheduler.console.thread import HttpEndpoint
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.identity import Caller
from scheduler.server.metrics.http import MetricsApp
from scheduler.v1 import service_pb2
from tests.integration.test_console import JOB, LOCAL, Reply, call, envelope, envelopes
from tests.issuer import SECRET, FakeIssuer
from tests.secured import House
from tests.serving import Served, create, path, refused, serving
from tests.waiting import until

TENANTS = Tenants((Tenant("vision"), Tenant("speech")), "vision")
RULES = (
    "{claim: groups, contains: ops, role: operator}",
    "{claim: groups, contains: vision, role: submitter, tenant: vision}",
    "{claim: groups, contains: eyes, role: viewer, tenant: '*'}",
)
UNSIGNED = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsxIn0.e30.AA"  # 503 until there are keys to check it by


USERS: dict[str, Any] = {
    "ada": {"email": "ada@example.org", "groups": ["vision"]},
    "eve": {"email": "eve@example.org"},
}


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with FakeIssuer() as made:
        made.users = USERS
        yield made


@pytest.fixture
def house(tmp_path: Path, issuer: FakeIssuer) -> House:
    made = House(tmp_path)
    made.trust(issuer.section(RULES))
    return made


@asynccontextmanager
async def at(
    house: House,
    folder: Path,
    *,
    has_keys: bool = True,
    console: HttpEndpoint = LOCAL,
    clock: Callable[[], int] = time.time_ns,
) -> AsyncIterator[Served]:
    """A server with this auth file, once it has the keys of the issuer."""
    settings: Any = {"access": house.access(), "channel": house.channel, "clock": clock}
    async with serving(folder, console=console, tenants=TENANTS, **settings) as served:
        if has_keys:
            await until(
                lambda: said(served, "GetStatus", UNSIGNED), lambda answer: answer[0] != 503
            )
        yield served


def of(issuer: FakeIssuer, name: str, *groups: str, **claims: Any) -> str:
    return issuer.token(email=f"{name}@example.org", groups=list(groups), **claims)


async def said(served: Served, method: str, token: str, request: Any = None) -> tuple[int, str]:
    reply = await call(served, method, request, authorization=f"Bearer {token}")
    return reply.status, str(reply.json.get("message", ""))


async def test_an_id_token_is_a_caller_on_every_path_and_in_no_log(
    tmp_path: Path, issuer: FakeIssuer, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ada, eye = of(issuer, "ada", "vision"), of(issuer, "eye", "eyes")
    eve, other_client = of(issuer, "eve"), of(issuer, "ada", "vision", aud="x")
    async with at(house, tmp_path) as served, house.calling(served, ada) as stub:
        made = await stub.CreateJob(create("a", tenant="vision"))
        assert (made.name, made.user) == (path("a", "vision"), "oidc:ada@example.org")
        other = await refused(stub.CreateJob(create("b", tenant="speech")))
        assert other.code is grpc.StatusCode.PERMISSION_DENIED
        assert (await said(served, "GetJob", ada, {"name": "a"}))[0] == 200
        assert (await said(served, "GetStatus", eye))[0] == 200
        status, message = await said(served, "CreateJob", eye, JOB)
        assert (status, message.split(";")[0]) == (403, "oidc:eye@example.org is a viewer")
        status, message = await said(served, "GetStatus", eve)
        assert status == 403
        assert message.startswith("oidc:eve@example.org has no role: no rule")
        status, message = await said(served, "GetStatus", other_client)
        assert (status, message) == (401, "the ID token is for another client than muster")
        live = await call(served, "/live", verb="GET", authorization="Bearer " + ada[:-8])
        assert live.status == 401
    assert "refused GetStatus of somebody" in caplog.text
    for token in (ada, eye, eve, other_client):
        _, body, signature = token.split(".")
        assert body not in caplog.text
        assert signature not in caplog.text


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
    tmp_path: Path, issuer: FakeIssuer, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock comes to that second while the stream runs."""
    checks, written = list[Caller](), session.written
    monkeypatch.setattr(session, "CHECK_S", 0.02)
    monkeypatch.setattr(session, "written", lambda who: (checks.append(who), written(who))[1])
    ahead_s = 0
    async with at(house, tmp_path, clock=lambda: time.time_ns() + ahead_s * 10**9) as served:
        soon = of(issuer, "eye", "eyes", exp=time.time() + 600)
        live = asyncio.create_task(
            call(served, "/live", verb="GET", authorization=f"Bearer {soon}")
        )
        while len(checks) < 3 and not live.done():  # it goes on while the token holds
            await asyncio.sleep(0.01)
        ahead_s = 700
        assert (await asyncio.wait_for(live, 8)).status == 200
        assert len(checks) >= 3
        status, message = await said(served, "GetStatus", soon)
        assert (status, message) == (401, "the ID token has expired: sign in again")
        connect = {"content_type": "application/connect+json"}
        token = {"authorization": f"Bearer {soon}"}
        watching = await call(served, "WatchJobs", envelope({}), **connect, **token)
        assert next(envelopes(watching.body))[1]["error"]["code"] == "unauthenticated"


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
    auth = Authenticator(str(house.auth), time.time_ns)
    asked = MetricsApp(CollectorRegistry(), auth, is_local=False)
    asked.refusal("Bearer " + of(issuer, "eye", "eyes"))  # for which its keys are fetched
    section = auth.id_tokens.section()
    assert section is not None
    auth.id_tokens.issuer(section).wait(5)
    assert asked.refusal("Bearer " + of(issuer, "eye", "eyes")) is None
    for token, expected in (
        (of(issuer, "eve"), 403),
        (of(issuer, "eye", "eyes", aud="x"), 401),
    ):
        status, _ = asked.refusal(f"Bearer {token}") or (0, "")
        assert status == expected


VERIFIER, NONCE = "v" * 43, "n"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode()


class SignIn:
    """A page at a console."""

    def __init__(self, served: Served, issuer: FakeIssuer) -> None:
        self.served, self.issuer = served, issuer
        self.origin = served.ready.console

    async def offer(self) -> dict[str, str]:
        reply = await call(self.served, "/login", verb="GET")
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
        said: dict[str, str] = reply.json
        return said

    async def code(self, user: str) -> str:
        offer = await self.offer()
        query = {
            "response_type": "code",
            "client_id": offer["clientId"],
            "redirect_uri": f"{self.origin}/",
            "scope": offer["scope"],
            "state": "s",
            "nonce": NONCE,
            "code_challenge": CHALLENGE.rstrip("="),
            "code_challenge_method": "S256",
        }
        return self.issuer.authorize(f"{offer['authorize']}?{urlencode(query)}", user)["code"]

    async def end(self, code: str, headers: dict[str, str] | None = None, **changed: Any) -> Reply:
        body = {"code": code, "verifier": VERIFIER, "nonce": NONCE} | changed
        sent = {"origin": self.origin} if headers is None else headers
        return await call(self.served, "/login", body, **sent)


async def test_a_code_is_exchanged_once_for_a_token_that_lets_in(
    tmp_path: Path, issuer: FakeIssuer, house: House
) -> None:
    async with at(house, tmp_path) as served:
        page = SignIn(served, issuer)
        assert await page.offer() == {
            "label": "127.0.0.1",
            "issuer": issuer.url,
            "authorize": f"{issuer.url}/authorize",
            "clientId": "muster",
            "scope": "openid email profile",
        }
        code = await page.code("ada")
        reply = await page.end(code)
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
        assert "set-cookie" not in reply.headers
        assert (await said(served, "GetStatus", reply.json["idToken"]))[0] == 200
        again = await page.end(code)
        assert (again.status, again.json["code"]) == (401, "unauthenticated")
        assert again.json["message"].endswith("(invalid_grant: Code not valid)")


async def test_a_sign_in_that_is_wrong_gives_no_token(
    tmp_path: Path, issuer: FakeIssuer, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with at(house, tmp_path) as served:
        page = SignIn(served, issuer)

        async def refusal(status: int, words: str, user: str = "ada", **how: Any) -> None:
            code = await page.code(user)
            reply = await page.end(code, **how)
            assert (reply.status, words in reply.body.decode()) == (status, True), reply.body
            assert b"idToken" not in reply.body
            assert code not in caplog.text

        await refusal(401, "its nonce is another", nonce="m")
        await refusal(401, "invalid_grant: PKCE", verifier="w" * 43)
        await refusal(403, "oidc:eve@example.org has no role", "eve")
        await refusal(400, "with the texts code, verifier, nonce", verifier="")
        await refusal(400, "with the texts code, verifier, nonce", nonce=["n"])
        await refusal(400, "with the texts code, verifier, nonce", nonce="\ud800")
        await refusal(429, "too long", nonce="n" * 20_000)
        await refusal(403, "with its Origin", headers={})
        await refusal(403, "are refused", headers={"origin": "http://evil.example"})
        form = {"origin": page.origin, "content_type": "text/plain"}
        await refusal(403, "JSON, with its Origin", headers=form)
        for claim, words in (
            ({"aud": "x"}, "is for another client"),
            ({"iss": "https://x.example"}, "is of another issuer"),
            ({"exp": 1}, "has expired"),
            ({"nonce": None}, "its nonce is another"),
        ):
            issuer.wrong = claim
            await refusal(401, words)
        issuer.wrong = {}
        code = await page.code("ada")
        issuer.is_down = True
        reply = await page.end(code)
        gone = f"{issuer.url} gave no ID token: HTTP status 503"
        assert (reply.status, reply.json["message"]) == (401, gone)


async def test_sign_ins_wait_for_each_other_up_to_a_number(
    tmp_path: Path, issuer: FakeIssuer, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keep neither the pages nor calls waiting while an issuer takes its time."""
    monkeypatch.setattr("scheduler.console.login._MOST_WAITING", 3)
    monkeypatch.setattr("scheduler.console.login._AT_ONCE", 2)
    async with at(house, tmp_path) as served:
        page = SignIn(served, issuer)
        codes = [await page.code("ada") for _ in range(5)]
        issuer.may_answer.clear()
        ending = asyncio.gather(*(page.end(code) for code in codes))
        await asyncio.sleep(0.1)
        assert (await said(served, "GetStatus", of(issuer, "ada", "vision")))[0] == 200
        assert not ending.done()
        issuer.may_answer.set()
        statuses = sorted(reply.status for reply in await ending)
    assert statuses == [200] * 3 + [429] * 2


async def test_a_confidential_client_shows_its_secret(tmp_path: Path) -> None:
    """At a console with TLS, to whose own address the issuer sends back."""
    with FakeIssuer(secret=SECRET) as issuer:
        issuer.users = USERS
        house = House(tmp_path)
        kept = tmp_path / "oidc.secret"
        kept.write_text(SECRET + "\n", encoding="utf-8")
        more = "  client_secret_file: oidc.secret\n  label: Example\n"
        house.trust(issuer.section(RULES, more))
        files = TlsFiles(str(house.certificate), str(house.key))
        async with at(house, tmp_path, console=HttpEndpoint("0.0.0.0", 0, files)) as served:
            page = SignIn(served, issuer)
            assert page.origin.startswith("https://")
            assert (await page.offer())["label"] == "Example"
            assert (await page.end(await page.code("ada"))).status == 200
            kept.write_text("another", encoding="utf-8")
            reply = await page.end(await page.code("ada"))
            assert "401 (invalid_client)" in reply.json["message"]
            kept.unlink()
            reply = await page.end(await page.code("ada"))
            assert "cannot read its client secret" in reply.json["message"]


async def test_there_is_no_sign_in_without_the_section_or_while_the_issuer_is_away(
    tmp_path: Path, issuer: FakeIssuer
) -> None:
    house = House(tmp_path)
    house.token("root", "admin")
    async with at(house, tmp_path, has_keys=False) as served:
        page = SignIn(served, issuer)
        assert await page.offer() == {}
        assert (await page.end("x")).status == 404
        issuer.is_down = True
        house.trust(issuer.section(RULES))
        served.reload.set()
        problem = "HTTP status 503"
        offer = await until(page.offer, lambda offer: offer.get("problem") == problem)
        assert offer == {"label": "127.0.0.1", "issuer": issuer.url, "problem": problem}
        reply = await page.end("x")
        assert (reply.status, reply.json["code"]) == (503, "unavailable")
