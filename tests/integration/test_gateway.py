"""The gateway as a process of its own: who gets in, and for which host."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from scheduler.access.tls import TlsFiles
from scheduler.access.tokens import join_token
from scheduler.cli import program
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions, CannotServeAgents
from scheduler.observe.supervision import Heartbeats
from scheduler.v1 import agent_pb2, agent_pb2_grpc
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


async def say_hello(channel: grpc.aio.Channel, host: str, token: str = "") -> Any:
    """The first word of the server to an agent that says it is `host`."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    call = agent_pb2_grpc.AgentServiceStub(channel).Session(metadata=metadata)
    await call.write(agent_pb2.SessionRequest(hello=agent_pb2.Hello(host=host)))
    word = await call.read()
    if word is grpc.aio.EOF:
        raise AssertionError((await call.code(), await call.details()))
    return call, word


async def code_of(channel: grpc.aio.Channel, host: str, token: str = "") -> grpc.StatusCode:
    try:
        await say_hello(channel, host, token)
    except grpc.aio.AioRpcError as error:
        return error.code()
    except AssertionError as error:
        found: grpc.StatusCode = error.args[0][0]
        return found
    return grpc.StatusCode.OK


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


async def test_a_gateway_that_ends_is_started_again_on_its_port() -> None:
    async with gateway(join_secrets=(SECRET,)) as seen:
        address, token = seen.sessions.address, join_token(SECRET, "a")
        async with grpc.aio.insecure_channel(address) as channel:
            await say_hello(channel, "a", token)
            assert await seen.next() == ("hello", "a")
        assert seen.sessions.process_id is not None
        os.kill(seen.sessions.process_id, signal.SIGKILL)
        assert await seen.next() == ("broken", "a")
        async with grpc.aio.insecure_channel(address) as channel:
            await until(
                lambda: code_of(channel, "a", token), lambda code: code is grpc.StatusCode.OK
            )


async def test_a_message_that_is_none_ends_its_session_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Five bytes of one host, and the others are heard as before."""
    async with (
        gateway(join_secrets=(SECRET,)) as seen,
        grpc.aio.insecure_channel(seen.sessions.address) as channel,
    ):
        seen.sessions.lead(7, 60.0, seen)
        heard: asyncio.Queue[str] = asyncio.Queue()
        seen.on_word = lambda host, _: heard.put_nowait(host)
        good, _ = await say_hello(channel, "good", join_token(SECRET, "good"))
        assert await seen.next() == ("hello", "good")
        refused = agent_pb2.SessionRequest(refused=agent_pb2.Refused(reason="abc"))
        no_text = refused.SerializeToString().replace(b"abc", b"\xff\xfe\xfd")
        for body in (b"\xff" * 5, no_text):
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
        stopped = agent_pb2.Stopped(key=agent_pb2.AttemptKey(job_uid="u", attempt=1))
        await good.write(agent_pb2.SessionRequest(stopped=stopped))
        async with asyncio.timeout(60):
            assert await heard.get() == "good"
        assert seen.beats.refused["agents",] == 2
        for count in (3, -1, 2**31 - 1):
            progress = agent_pb2.Progress(unreadable=count)
            await good.write(agent_pb2.SessionRequest(progress=progress))
            async with asyncio.timeout(60):
                assert await heard.get() == "good"
        assert seen.beats.refused["ranks",] == 3 + 1_000  # no message counts for more
    assert caplog.text.count("the agent of bad sent what is no message") == 2


async def test_a_message_whose_handling_fails_ends_its_session_alone() -> None:
    async with (
        gateway(join_secrets=(SECRET,)) as seen,
        grpc.aio.insecure_channel(seen.sessions.address) as channel,
    ):
        seen.sessions.lead(7, 60.0, seen)
        heard: asyncio.Queue[str] = asyncio.Queue()

        def hear(host: str, _: agent_pb2.SessionRequest) -> None:
            if host == "bad":
                raise ZeroDivisionError
            heard.put_nowait(host)

        seen.on_word = hear
        calls = {
            h: (await say_hello(channel, h, join_token(SECRET, h)))[0] for h in ("bad", "good")
        }
        for call in calls.values():
            await call.write(agent_pb2.SessionRequest(stopped=agent_pb2.Stopped()))
        async with asyncio.timeout(60):
            assert await heard.get() == "good"
        assert seen.sessions.connected == {"good"}


async def test_a_gateway_that_hangs_is_ended_and_another_one_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.launch.streams.sessions.SILENT_S", 2.5)
    async with gateway(join_secrets=(SECRET,)) as seen:
        address, hung = seen.sessions.address, seen.sessions.process_id
        assert hung is not None
        os.kill(hung, signal.SIGSTOP)
        async with grpc.aio.insecure_channel(address) as channel:
            await until(lambda: seen.sessions.process_id != hung)
            token = join_token(SECRET, "a")
            await until(
                lambda: code_of(channel, "a", token), lambda code: code is grpc.StatusCode.OK
            )
