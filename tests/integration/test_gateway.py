"""The gateway as a process of its own: who gets in, for which host, and who joins the fabric."""

import asyncio
import operator
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from scheduler.access.tls import TlsFiles
from scheduler.access.tokens import join_token
from scheduler.agent.place import parse_place
from scheduler.cli import program
from scheduler.files.errors import InputError
from scheduler.launch.launcher import AgentSettings
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions, CannotServeAgents
from scheduler.observe.supervision import Heartbeats
from scheduler.server.config import AgentKeys
from scheduler.v1 import agent_pb2, agent_pb2_grpc, service_pb2
from tests.serving import RUNNING, Served, create, serving
from tests.waiting import until

SECRET = "s" * 40


class Seen:
    """What the server hears of its gateway."""

    def __init__(self, sessions: AgentSessions, beats: Heartbeats) -> None:
        self.sessions = sessions
        self.beats = beats
        self.words: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.on_word: Callable[[str, agent_pb2.SessionRequest], None] = lambda *_: None

    def on_hello(self, host: str, hello: agent_pb2.Hello) -> None:
        self.words.put_nowait(("hello", host))

    def on_broken(self, host: str) -> None:
        self.words.put_nowait(("broken", host))

    def on_silent(self, hosts: list[str]) -> None:
        pass

    def on_lost(self, host: str) -> None:
        self.words.put_nowait(("lost", host))

    async def next(self) -> tuple[str, str]:
        async with asyncio.timeout(60):
            return await self.words.get()


@asynccontextmanager
async def gateway(**options: Any) -> AsyncIterator[Seen]:
    """One that leads, with a lease of a second."""
    beats = Heartbeats()
    seen = Seen(AgentSessions(GatewayOptions("127.0.0.1:0", **options), beats), beats)
    await seen.sessions.start()
    try:
        seen.sessions.lead(7, 1.0, seen)
        yield seen
    finally:
        await seen.sessions.close()


async def say_hello(
    channel: grpc.aio.Channel, host: str, token: str = "", **place: str
) -> tuple[Any, agent_pb2.SessionResponse | None]:
    """The session of an agent that says it is `host`, and the first word of the server to it."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    call = agent_pb2_grpc.AgentServiceStub(channel).Session(metadata=metadata)
    with suppress(grpc.aio.AioRpcError):
        hello = agent_pb2.Hello(host=host, place=place)
        await call.write(agent_pb2.SessionRequest(hello=hello))
        if (word := await call.read()) is not grpc.aio.EOF:
            return call, word
    return call, None


async def code_of(channel: grpc.aio.Channel, host: str, token: str = "") -> grpc.StatusCode:
    call, word = await say_hello(channel, host, token)
    return await call.code() if word is None else grpc.StatusCode.OK


async def test_an_agent_speaks_for_the_host_of_its_token_alone() -> None:
    async with (
        gateway(join_secrets=(SECRET,)) as seen,
        grpc.aio.insecure_channel(seen.sessions.address) as channel,
    ):
        token = join_token(SECRET, "a")
        call, word = await say_hello(channel, "a", token)
        assert (word.lease.epoch, word.lease.ttl.ToMilliseconds()) == (7, 1_000)
        assert await seen.next() == ("hello", "a")
        assert await code_of(channel, "b", token) is grpc.StatusCode.PERMISSION_DENIED
        assert await code_of(channel, "a") is grpc.StatusCode.UNAUTHENTICATED
        forged = join_token("t" * 40, "a")
        assert await code_of(channel, "a", forged) is grpc.StatusCode.UNAUTHENTICATED
        call.cancel()
        assert await seen.next() == ("broken", "a")
        assert await seen.next() == ("lost", "a")
        options = GatewayOptions(seen.sessions.address, join_secrets=(SECRET,))
        again = AgentSessions(options, Heartbeats())
        with pytest.raises(CannotServeAgents, match="cannot listen for agents"):
            await again.start()
        await again.close()
        seen.sessions.follow("other:1")  # who does not lead turns agents away
        await until(
            lambda: code_of(channel, "a", token), lambda code: code is grpc.StatusCode.UNAVAILABLE
        )


async def test_an_agent_speaks_for_the_host_of_its_certificate_and_a_caller_for_none(
    tmp_path: Path,
) -> None:
    made = ("--server", "127.0.0.1", "--host", "a", "--client", "ada")
    program.load_commands()
    words = ["certs", "init", *made, "--folder", str(tmp_path)]
    assert CliRunner().invoke(program.app, words).exit_code == 0
    paths = {name: str(tmp_path / name) for name in ("server.pem", "server.key", "ca.pem")}
    async with gateway(tls=TlsFiles(*paths.values())) as seen:
        async with channel_of(tmp_path, "a", seen) as channel:
            await say_hello(channel, "a")
            assert await seen.next() == ("hello", "a")
            assert await code_of(channel, "b") is grpc.StatusCode.PERMISSION_DENIED
        async with channel_of(tmp_path, "ada", seen) as channel:
            for host in ("a", "ada"):
                assert await code_of(channel, host) is grpc.StatusCode.UNAUTHENTICATED
            call = agent_pb2_grpc.AgentServiceStub(channel).Session()
            await call.write(agent_pb2.SessionRequest(hello=agent_pb2.Hello(host="ada")))
            words = "the certificate of ada is not that of a host: `muster certs new ada --host"
            with pytest.raises(grpc.aio.AioRpcError, match=words):
                await call.read()


def channel_of(folder: Path, name: str, seen: Seen) -> grpc.aio.Channel:
    files = ("ca.pem", f"{name}.key", f"{name}.pem")
    shown = [(folder / file).read_bytes() for file in files]
    return grpc.aio.secure_channel(seen.sessions.address, grpc.ssl_channel_credentials(*shown))


async def test_a_gateway_that_ends_or_hangs_is_started_again_on_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gateway(join_secrets=(SECRET,)) as seen:
        address = seen.sessions.address

        async def until_let_in() -> None:
            async with grpc.aio.insecure_channel(address) as channel:
                await until(
                    lambda: code_of(channel, "a", join_token(SECRET, "a")),
                    lambda code: code is grpc.StatusCode.OK,
                )

        for end in (signal.SIGKILL, signal.SIGSTOP):
            await until_let_in()
            process_id = seen.sessions.process_id
            assert process_id is not None
            os.kill(process_id, end)
            with monkeypatch.context() as impatient:
                impatient.setattr("scheduler.launch.streams.sessions.SILENT_S", 0.5)
                await until(lambda: seen.sessions.process_id, partial(operator.ne, process_id))
        await until_let_in()


async def test_a_message_that_is_none_ends_its_session_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor does one whose handling fails: the others are heard as before."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(host: str, _: agent_pb2.SessionRequest) -> None:
        if host == "bad":
            raise ZeroDivisionError
        heard.put_nowait(host)

    refused = agent_pb2.SessionRequest(refused=agent_pb2.Refused(reason="abc"))
    no_text = refused.SerializeToString().replace(b"abc", b"\xff\xfe\xfd")
    key = agent_pb2.AttemptKey(job_uid="u", attempt=1)
    stopped = agent_pb2.SessionRequest(stopped=agent_pb2.Stopped(key=key))
    async with (
        gateway(join_secrets=(SECRET,)) as seen,
        grpc.aio.insecure_channel(seen.sessions.address) as channel,
    ):
        seen.sessions.lead(7, 60.0, seen)
        seen.on_word = hear
        good, _ = await say_hello(channel, "good", join_token(SECRET, "good"))
        assert await seen.next() == ("hello", "good")
        for body in (b"\xff" * 5, no_text, stopped.SerializeToString()):
            call = channel.stream_stream("/scheduler.v1.AgentService/Session")(
                metadata=[("authorization", f"Bearer {join_token(SECRET, 'bad')}")]
            )
            hello = agent_pb2.SessionRequest(hello=agent_pb2.Hello(host="bad"))
            await call.write(hello.SerializeToString())
            assert await seen.next() == ("hello", "bad")
            await call.write(body)
            assert await seen.next() == ("broken", "bad")
            async with asyncio.timeout(60):
                with suppress(grpc.aio.AioRpcError):
                    while await call.read() is not grpc.aio.EOF:
                        pass
                assert await call.code() is grpc.StatusCode.ABORTED
        assert seen.sessions.connected == {"good"}
        assert seen.beats.refused["agents",] == 3
        counts = [agent_pb2.Progress(unreadable=count) for count in (3, -1, 2**31 - 1)]
        for word in (stopped, *(agent_pb2.SessionRequest(progress=each) for each in counts)):
            await good.write(word)
            async with asyncio.timeout(60):
                assert await heard.get() == "good"
        assert seen.beats.refused["ranks",] == 3 + 1_000  # no message counts for more
    assert caplog.text.count("the agent of bad sent what is no message") == 2


# --- hosts that join the fabric ------------------------------------------------------


@asynccontextmanager
async def with_agents(
    folder: Path, *, may_join: bool = True, **options: Any
) -> AsyncIterator[tuple[Served, grpc.aio.Channel]]:
    """A server and a channel to its port for agents."""
    gateway = GatewayOptions("127.0.0.1:0", **({"join_secrets": (SECRET,)} | options))
    settings = AgentSettings(gateway, 5.0, may_join=may_join)
    async with (
        serving(folder, agents=settings) as served,
        grpc.aio.insecure_channel(served.ready.agents) as channel,
    ):
        yield served, channel


async def join(channel: grpc.aio.Channel, host: str, **place: str) -> Any:
    """The session of an agent that says where it is."""
    call, word = await say_hello(channel, host, join_token(SECRET, host), **place)
    assert word is not None
    assert word.HasField("lease")
    return call


async def ended(call: Any) -> str:
    """Why the server ends a session."""
    async with asyncio.timeout(60):
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return str(await call.details())


async def until_there(served: Served, *names: str) -> dict[str, list[str]]:
    """Every host with its domains once these are among them."""
    known = await until(served.hosts, lambda known: {*names} <= {*known})
    return {name: list(host.domains) for name, host in known.items()}


async def test_hosts_join_where_they_say_that_they_are(tmp_path: Path) -> None:
    """Many of them in few changes."""
    async with with_agents(tmp_path) as (served, channel):
        await served.start("a", 8)
        await served.stub.CreateJob(create("b", 3))
        sessions = [
            await join(channel, "new-0", rack="z0-r1"),
            await join(channel, "new-1", **{"topology.kubernetes.io/zone": "z1", "rack": "z1-r9"}),
            await join(channel, "new-2", zone="west", rack="west-0"),
        ]
        three = [f"new-{n}" for n in range(3)]
        known = await until_there(served, *three)
        assert [known[name] for name in three] == [
            ["z0", "z0-r1"],
            ["z1", "z1-r9"],
            ["west", "west-0"],
        ]
        assert sorted((await served.until("b", RUNNING)).placement.hosts) == three
        again = await join(channel, "new-0", rack="z0-r0")  # it is known, and stays where it is
        many = [f"many-{n}" for n in range(40)]
        sessions += [await join(channel, name, rack="z0-r0") for name in many]
        known = await until_there(served, *many)
        assert (len(known), known["new-0"]) == (8 + 3 + 40, ["z0", "z0-r1"])
        page = await served.stub.ListAuditRecords(
            service_pb2.ListAuditRecordsRequest(filter="event = FabricChanged")
        )
        assert {each.actor for each in page.audit_records} == {"server"}
        assert 1 <= len(page.audit_records) < 13
        for session in (*sessions, again):
            session.cancel()
    async with serving(tmp_path) as served:
        assert list((await served.hosts())["new-2"].domains) == ["west", "west-0"]


async def test_a_host_without_a_place_that_can_be_does_not_join(tmp_path: Path) -> None:
    async with with_agents(tmp_path) as (served, channel):
        for place, words in (
            ({}, "the fabric has no host new, and its agent does not say where"),
            ({"zone": "z0", "rack": "z1-r0"}, "rack z1-r0 is in zone z1, not z0"),
            ({"zone": "z9"}, "its place does not say in which rack it is"),
            ({"zone": "z0", "rack": "a\nb"}, "is not a name: must be"),
        ):
            assert words in await ended(await join(channel, "new", **place))
        assert "new" not in await served.hosts()


async def test_no_host_joins_unless_the_operator_says_so(tmp_path: Path) -> None:
    async with with_agents(tmp_path, may_join=AgentKeys().join) as (served, channel):
        words = "the fabric has no host new, and none joins by itself (agents.join is off)"
        assert words in await ended(await join(channel, "new", rack="z0-r0"))
        assert "new" not in await served.hosts()


async def test_an_agent_that_proves_nothing_joins_nothing(tmp_path: Path) -> None:
    async with with_agents(tmp_path, is_insecure=True, join_secrets=()) as (served, channel):
        session, _ = await say_hello(channel, "new", rack="z0-r0")
        assert "the fabric has no host new" in await ended(session)
        assert "new" not in await served.hosts()


def test_a_place_is_read_from_words_and_from_files(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('topology.kubernetes.io/zone="z0"\nrack=z0-r1\n\nempty=""\n')
    assert parse_place("", str(labels)) == {"topology.kubernetes.io/zone": "z0", "rack": "z0-r1"}
    assert parse_place("rack=r2, zone=z1", str(labels))["rack"] == "r2"
    assert parse_place("", "") == {}
    with pytest.raises(InputError, match="place: must be KEY=VALUE, as rack=z0-r001, not 'z0'"):
        parse_place("z0", "")
    labels.write_text("rack=a\nwhat is this\n")
    with pytest.raises(InputError, match=rf"{labels}:2: must be KEY=VALUE"):
        parse_place("", str(labels))
