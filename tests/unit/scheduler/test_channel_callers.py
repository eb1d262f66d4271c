"""Callers of channels whose token is revoked while they are open."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.access import auth_interceptor
from scheduler.access.auth_interceptor import AuthInterceptor
from scheduler.access.options import CallLimits
from scheduler.access.tenant_filter import TenantFilter
from scheduler.identity import Caller, Role
from scheduler.launch import channels as launch_channels
from scheduler.launch.channels import AgentChannels
from scheduler.service.backend import NoLog
from scheduler.service.errors import unauthenticated
from scheduler.v1 import agent_pb2, service_pb2

METHOD = "/scheduler.v1.SchedulerService/OpenChannel"
Asked = service_pb2.OpenChannelRequest


class Refused(Exception):
    pass


class Context:
    async def abort_with_status(self, status: Any) -> None:
        raise Refused(status.details)

    def peer(self) -> str:
        return "here"


async def drained(stream: AsyncIterator[Any]) -> None:
    async with asyncio.timeout(60):
        async for _ in stream:
            pass


@pytest.mark.parametrize("says_more", [True, False])
async def test_a_revoked_caller_sends_nothing_more_into_an_open_stream(
    monkeypatch: pytest.MonkeyPatch, says_more: bool
) -> None:
    monkeypatch.setattr(auth_interceptor, "_LOOK_S", 0.05)
    may, heard = True, list[Any]()

    def identify(_: Any) -> Caller:
        if not may:
            raise unauthenticated("the token was revoked")
        return Caller("ada", Role.SUBMITTER)

    async def requests() -> AsyncIterator[Asked]:
        nonlocal may
        yield Asked(name="a")
        yield Asked(data=b"before")
        may = False
        if says_more:
            yield Asked(data=b"after")
        await asyncio.sleep(60)

    async def inner(requests: AsyncIterator[Asked], _: Any) -> AsyncIterator[Any]:
        async for request in requests:
            heard.append(request.data)
        yield service_pb2.OpenChannelResponse()

    checks = AuthInterceptor(TenantFilter(lambda: None), CallLimits(), lambda: 0.0, identify)
    with pytest.raises(Refused, match="revoked"):
        await drained(checks._around_stream(METHOD, inner)(requests(), Context()))
    assert heard == [b"", b"before"]


async def test_a_channel_ends_with_the_right_of_its_caller_and_the_last_jobs_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def inputs() -> AsyncIterator[agent_pb2.ChannelData]:
        yield agent_pb2.ChannelData(data=b"x")
        raise unauthenticated("the token was revoked")

    monkeypatch.setattr(launch_channels, "_MOST_REMEMBERED", 2)
    sessions: Any = SimpleNamespace(connected={"h"}, send=lambda *_: None)
    channels = AgentChannels(sessions)
    for uid in ("a", "b", "a", "c"):
        wanted = agent_pb2.OpenChannel(key=agent_pb2.AttemptKey(job_uid=uid))
        with pytest.raises(NoLog, match="revoked"):
            await drained(channels.connect("h", wanted, inputs()))
    assert [channels.idle_s(uid) is None for uid in ("a", "b", "c")] == [False, True, False]
