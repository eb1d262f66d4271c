"""Who gets in, over real TLS: tokens, certificates, every role with every method."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from typer.testing import CliRunner

from scheduler.access.authenticate import Authenticator, CallerNames
from scheduler.access.listener import Access, CannotListen
from scheduler.access.methods import METHODS
from scheduler.cli.program import app
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.identity import Role
from scheduler.service.errors import ApiError
from scheduler.v1 import service_pb2
from tests.secured import House, callers
from tests.serving import START_NS, create, refused, serving, until_running
from tests.waiting import until

Code = grpc.StatusCode
SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
LIST = service_pb2.ListHostsRequest()

# Which methods each role may call beyond those of the roles before it. Written by hand:
# the table in methods.py is held against it.
GRANTED = {
    "viewer": "GetJob ListJobs ExplainJob ListSlots WatchJobs WatchHosts ListTenants ListHosts"
    " GetStatus GetWindow ListWindows ListSpares GetFabric GetTenant GetHost TailLogs"
    " ListIncidents ListLinks SumUsage ListStepTimes",
    "launcher": "EndJob",
    "submitter": "CreateJob UpdateJob CancelJob HoldJob ReleaseJob RequeueJob ResizeJob"
    " OpenChannel",
    "coordinator": "",
    "operator": "Defragment CordonHost UncordonHost DrainHost ReportHost ReportHosts"
    " ListAuditRecords ExportState ApplyFabric"
    " CreateWindow UpdateWindow DeleteWindow ReportLink CordonLink UncordonLink DrainLink",
    "admin": "",
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def outcome(stub: Any, method: Any) -> grpc.StatusCode:
    """How an empty request to a method ends."""
    request = GetMessageClass(method.input_type)()
    call = getattr(stub, method.name)([request] if method.client_streaming else request, timeout=60)
    try:
        if method.server_streaming:
            await call.initial_metadata()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    if method.server_streaming and call.done():
        return await call.code()
    return Code.OK


def test_every_method_of_the_service_has_a_rule() -> None:
    """Who adds a method says who may call it: in access/methods.py and in GRANTED above."""
    names = {method.name for method in SERVICE.methods}
    assert {f"/{SERVICE.full_name}/{name}" for name in names} <= set(METHODS)
    assert names == set(" ".join(GRANTED.values()).split())
    assert [role.name.lower() for role in Role] == list(GRANTED)


async def test_a_role_may_call_its_methods_and_no_other(tmp_path: Path) -> None:
    who = [(role, role, "" if role in ("operator", "admin") else "*") for role in GRANTED]
    granted: set[str] = set()
    async with callers(tmp_path, *who) as (_, *stubs):
        for (role, methods), stub in zip(GRANTED.items(), stubs, strict=True):
            granted.update(methods.split())
            for method in SERVICE.methods:
                code = await outcome(stub, method)
                is_denied = code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)
                assert is_denied is (method.name not in granted), (role, method.name, code)


async def test_who_shows_no_valid_token_is_refused(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    valid = house.token("bob", "admin", more=", expires: 2023-11-15")  # START_NS is the day before
    expired = house.token("ada", "admin", more=", expires: 2023-11-14")
    other = valid[:-1] + ("A" if valid[-1] != "A" else "B")
    async with serving(tmp_path, access=house.access(), clock=lambda: START_NS) as served:
        async with house.calling(served, valid) as stub:
            assert (await stub.ListHosts(LIST)).hosts
        for token in ("nonsense", "muster_00000000_" + 43 * "A", expired, other):
            async with house.calling(served, token) as stub:
                error = await refused(stub.ListHosts(LIST))
            assert (error.code, error.reason) == (Code.UNAUTHENTICATED, "UNAUTHENTICATED"), token
            assert token not in caplog.text
        async with house.calling(served) as stub:
            for method in SERVICE.methods:
                assert await outcome(stub, method) is Code.UNAUTHENTICATED, method.name
            error = await refused(stub.ListHosts(LIST))
    assert error.message == "this server must know who calls: give a token or a client certificate"


async def test_a_method_without_a_rule_is_refused_to_an_admin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(METHODS, f"/{SERVICE.full_name}/ListHosts")
    async with callers(tmp_path, ("root", "admin", "")) as (_, root):
        error = await refused(root.ListHosts(LIST))
    assert (error.code, error.reason) == (Code.PERMISSION_DENIED, "PERMISSION_DENIED")


async def test_a_certificate_is_a_caller_by_its_names_which_the_log_has(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.admit("{san: head.example.org, name: launcher, role: viewer, tenant: '*'}")
    house.admit("{common_name: ada, role: operator}")
    made = house.client_ca.issue_cert
    head = made("head.example.org")
    cordon = service_pb2.CordonHostRequest(name="z0-r0-h0")
    async with serving(tmp_path, access=house.access(mtls=True)) as served:
        async with house.calling(served, shown=head) as stub:
            assert (await stub.ListHosts(LIST)).hosts
            error = await refused(stub.CordonHost(cordon))
        assert error.message == "launcher is a viewer; this needs the role operator"
        [record] = [record for record in caplog.records if record.name == "muster.access"]
        assert "refused CordonHost of launcher at ipv" in record.getMessage()
        assert record.__dict__["code"] == "PERMISSION_DENIED"
        shown = made("x.example.org", common_name="ada")
        async with house.calling(served, shown=shown) as stub:
            assert (await stub.CordonHost(cordon)).cordoned
        for token, shown, code, words in (
            ("", made("other.example.org"), Code.UNAUTHENTICATED, "other.example.org"),
            ("muster_revoked", head, Code.UNAUTHENTICATED, "the token is not known"),
            ("", None, Code.UNAVAILABLE, ""),  # no handshake
            ("", house.ca.issue_cert("head.example.org"), Code.UNAVAILABLE, ""),
        ):
            async with house.calling(served, token, shown) as stub:
                error = await refused(stub.ListHosts(LIST))
            assert (error.code, words in error.message) == (code, True), error


def test_a_certificate_of_a_host_is_no_callers_whatever_the_host_is_called(house: House) -> None:
    house.admit("{common_name: ada, role: admin}")
    house.admit("{san: ada, role: admin}")
    asked = Authenticator(str(house.auth), time.time_ns)
    assert asked.caller(None, CallerNames(("ada",), "ada"), "calls").name == "ada"
    with pytest.raises(ApiError, match="for the agent of host ada, and lets nobody else in"):
        asked.caller(None, CallerNames(("ada", "urn:muster:host:ada"), "ada"), "calls")


async def test_health_is_open_to_everybody_who_trusts_the_server(
    tmp_path: Path, house: House
) -> None:
    (tmp_path / "ca.pem").write_bytes(house.ca.cert_pem.bytes())
    async with (
        serving(tmp_path, access=house.access()) as served,
        house.channel(served.ready.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        watching = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == answer.status == answer.SERVING
        watching.cancel()
        ask = ["health", "--address", served.ready.address]
        plain = await asyncio.to_thread(CliRunner().invoke, app, ask)
        trusting = ["--ca", str(tmp_path / "ca.pem"), *ask]
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("MUSTER_CA", "")  # the option is handed on by it
            good = await asyncio.to_thread(CliRunner().invoke, app, trusting)
    assert (plain.exit_code, good.exit_code) == (1, 0)
    assert f"no server answers at {served.ready.address}: it accepts only TLS" in plain.output


async def test_reflection_is_for_callers_whom_the_auth_file_knows(
    tmp_path: Path, house: House
) -> None:
    bearer = ("authorization", f"bearer {house.token('ada', 'viewer', '*')}")
    ask = reflection_pb2.ServerReflectionRequest(list_services="")

    async def code(*metadata: tuple[str, str]) -> Code:
        call = stub.ServerReflectionInfo(iter([ask]), metadata=metadata)
        with suppress(grpc.aio.AioRpcError):
            listed = (await call.read()).list_services_response.service
            assert SERVICE.full_name in {service.name for service in listed}
        return await call.code()

    async def code_of(*metadata: tuple[str, str]) -> Code:
        """A stream that is reset while its client still writes ends by INTERNAL now and then."""
        return await until(lambda: code(*metadata), lambda found: found is not Code.INTERNAL)

    async with (
        serving(tmp_path, access=house.access()) as served,
        house.channel(served.ready.address) as channel,
    ):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        assert (await code_of(), await code_of(bearer)) == (Code.UNAUTHENTICATED, Code.OK)


async def test_beyond_this_machine_nobody_comes_in_unasked_unless_an_operator_insists(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for listen, access, lacking in (
        ("0.0.0.0:0", Access(), "anybody may do anything .* no encryption"),
        ("[::]:0", Access(), "anybody may do anything .* no encryption"),
        ("0.0.0.0:0", Access(auth_file=str(house.auth)), ": no encryption"),
    ):
        with pytest.raises(CannotListen, match=lacking):
            async with serving(tmp_path, listen=listen, access=access):
                pass
    async with serving(tmp_path, listen="0.0.0.0:0", access=Access(is_insecure=True)) as served:
        assert served.ready.fabric.host_count == 8
    assert "anybody may do anything" in caplog.text


async def test_what_one_watcher_may_not_see_another_still_does(tmp_path: Path) -> None:
    """Watchers share messages; what is hidden from one must not be hidden from all."""
    tenants = Tenants((Tenant("nlp"), Tenant("vision")), "vision")
    who = ("root", "admin", ""), ("ada", "viewer", "nlp")
    ask = service_pb2.WatchHostsRequest(after_version=0)
    async with callers(tmp_path, *who, tenants=tenants) as (_, root, ada):
        await root.CreateJob(create("secret", 8))
        await until_running(root, "secret")
        await root.CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0"))
        seen = [(await anext(aiter(stub.WatchHosts(ask)))).hosts[0] for stub in (ada, root)]
    assert [(host.job, host.HasField("block")) for host in seen] == [
        ("(hidden)", False),
        ("tenants/vision/jobs/secret", True),
    ]
