"""The stream between an agent and whichever server leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc

from muster.structs import struct
from scheduler.access.addresses import host_and_port, is_loopback
from scheduler.agent.agent import Agent, StaleLeader, now_s
from scheduler.client.credentials import Credentials
from scheduler.client.diagnosis import unreachable
from scheduler.files.errors import InputError, Problem
from scheduler.v1 import agent_pb2, agent_pb2_grpc

_RETRY_S = 0.25
_MOST_RETRY_S = 2.0
_ANSWER_S = 5.0  # how long a server may take for its first word
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

log = logging.getLogger("muster.agent")


@struct(frozen=True, slots=True)
class ServerAddresses:
    """Where the servers are, and how the agent proves its name there: by a client certificate that
    names the host, or by a join token."""

    addresses: tuple[str, ...]
    credentials: Credentials

    def channel(self, address: str) -> grpc.aio.Channel:
        """Open a channel to one of the servers. Raises: InputError."""
        if self.credentials.ca:
            return grpc.aio.secure_channel(address, self.credentials.tls(), options=_OPTIONS)
        if self.credentials.token and not is_loopback(host_and_port(address).host):
            reason = f"a join token is not sent to {address} in the clear: give --ca as well"
            raise InputError(Problem("join-token-file", reason))
        return grpc.aio.insecure_channel(address, options=_OPTIONS)

    async def failure(self, address: str, error: grpc.aio.AioRpcError) -> str:
        """Say why no session with this server came about."""
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            return f"{address}: {error.details() or error.code().name}"
        return await asyncio.to_thread(unreachable, address, self.credentials)

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        token = self.credentials.token
        return [("authorization", f"Bearer {token}")] if token else []


async def keep_session(agent: Agent, servers: ServerAddresses) -> None:
    """Talk to the leader for ever: to the next address when one does not lead or answer."""
    at, failures = 0, 0
    while True:
        address = servers.addresses[at % len(servers.addresses)]
        try:
            await _session(agent, servers, address)
            failures = 0
        except StaleLeader as error:
            log.warning("%s: %s", address, error)
            failures += 1
        except grpc.aio.AioRpcError as error:
            if failures == 0 or error.code() not in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            ):
                log.warning("%s", await servers.failure(address, error))
            failures += 1
        except TimeoutError:
            failures += 1
        agent.on_disconnect()
        at += 1
        await asyncio.sleep(min(_MOST_RETRY_S, _RETRY_S * 2 ** min(failures, 4) / 2))


async def _session(agent: Agent, servers: ServerAddresses, address: str) -> None:
    """One stream to its end. Raises: AioRpcError, StaleLeader, TimeoutError."""
    async with servers.channel(address) as channel:
        call = agent_pb2_grpc.AgentServiceStub(channel).Session(metadata=servers.metadata)
        words: asyncio.Queue[agent_pb2.SessionRequest] = asyncio.Queue()
        words.put_nowait(agent.hello())
        agent.say = words.put_nowait
        writing = asyncio.create_task(_write(agent, call, words))
        try:
            async with asyncio.timeout(_ANSWER_S):
                first = await call.read()
            await _hear_all(agent, call, first)
        finally:
            agent.say = lambda _: None
            writing.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError, grpc.aio.UsageError):
                await writing
            call.cancel()


async def _hear_all(agent: Agent, call: Any, message: Any) -> None:
    while message is not grpc.aio.EOF:
        try:
            agent.hear(message)
        except (ValueError, OSError) as error:
            log.error("a message from the server was refused: %s", error)
        message = await call.read()
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        log.warning("%s", await call.details() or code.name)


async def _write(agent: Agent, call: Any, words: asyncio.Queue[agent_pb2.SessionRequest]) -> None:
    """Send the messages of the agent, and a beat when it has none."""
    said_s = now_s()
    while True:
        try:
            async with asyncio.timeout(max(0.0, said_s + agent.beat_s - now_s())):
                word = await words.get()
        except TimeoutError:
            word = agent_pb2.SessionRequest(beat=agent_pb2.Beat())
        await call.write(word)
        said_s = now_s()
