"""The gateway as a process of its own: who gets in, and for which host."""

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


async def test_a_gateway_that_ends_or_hangs_is_started_again_on_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.launch.streams.sessions.SILENT_S", 1.5)
    monkeypatch.setattr("scheduler.launch.streams.sessions._ALIVE_S", 0.2)
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
