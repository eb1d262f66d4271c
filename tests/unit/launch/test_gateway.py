"""The gateway by itself, on a clock of the test: leases, beats, and who is lost when."""

import asyncio
import json
from typing import Any

import pytest

from scheduler.access.tokens import host_of, join_token
from scheduler.launch.streams import sessions
from scheduler.launch.streams.frames import Frame, FrameKind
from scheduler.launch.streams.gateway import AgentStream, Gateway, GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.observe.supervision import Heartbeats
from tests.waiting import until

STAND = {"epoch": 3, "ttl_s": 10, "keeps_ranks": True}
LEAD = Frame(FrameKind.LEAD, "", json.dumps(STAND).encode())


class World:
    def __init__(self) -> None:
        self.now_s, self.told = 100.0, list[Frame]()
        self.gateway = Gateway(GatewayOptions("127.0.0.1:0"), self.told.append, lambda: self.now_s)
        self.gateway.hear(LEAD)

    def join(self, host: str) -> AgentStream:
        unused: Any = None  # nothing is written to a stream here
        stream = AgentStream(host, unused, self.now_s, self.now_s + 10)
        self.gateway._streams[host] = stream
        return stream

    def after(self, seconds: float) -> list[str]:
        """Hosts that are lost by then."""
        self.now_s += seconds
        self.gateway.sweep(self.now_s)
        lost = [frame.host for frame in self.told if frame.kind is FrameKind.LOST]
        self.told.clear()
        return lost


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.parametrize("how", ["silent", "its stream breaks", "the server ends its session"])
async def test_a_host_is_lost_one_lease_after_it_was_heard_of_last(world: World, how: str) -> None:
    stream = world.join("a")
    assert world.after(9.9) == []
    stream.heard_s = world.now_s
    if how == "its stream breaks":
        del world.gateway._streams["a"]
        world.gateway._broken_s["a"] = world.now_s
    elif how == "the server ends its session":
        world.gateway.hear(Frame(FrameKind.DROP, "a", b"its message cannot be read"))
        assert stream.end.is_set()
    assert world.after(9.9) == []
    assert world.after(0.2) == ["a"]
    assert stream.end.is_set() is (how != "its stream breaks")
    assert world.after(100) == []


async def test_hosts_whose_beats_are_overdue_are_named_with_the_first_that_is_lost(
    world: World,
) -> None:
    world.join("cut")
    world.gateway._broken_s["cut-too"] = world.now_s
    world.now_s += 3.5
    world.join("cut-as-well")
    world.now_s += 4.5
    world.join("healthy")
    world.now_s += 2.1
    world.gateway.sweep(world.now_s)
    silent, *lost = world.told
    assert silent.kind is FrameKind.SILENT
    assert sorted(json.loads(silent.body)) == ["cut", "cut-as-well", "cut-too"]
    assert [frame.host for frame in lost] == ["cut", "cut-too"]


async def test_hosts_that_lose_power_at_once_are_lost_at_once(world: World) -> None:
    """Their last beats are up to a third of a lease apart."""
    world.join("first")
    world.now_s += 3
    world.join("second")
    world.now_s += 7
    assert world.after(0.2) == []
    assert world.after(3.0) == ["first", "second"]


async def test_a_lost_host_waits_for_another_until_that_one_beats(world: World) -> None:
    world.join("lost")
    world.now_s += 3
    late = world.join("late")
    assert world.after(7.2) == []
    late.heard_s = world.now_s
    assert world.after(0.1) == ["lost"]


async def test_a_lost_host_waits_for_others_no_longer_than_a_beat(world: World) -> None:
    """Hosts that fall silent one after the other would keep it for ever."""
    world.join("first")
    for name in ("second", "third"):
        world.now_s += 2.5
        world.join(name)
    assert world.after(5.2) == []  # the second has been silent for 7.7 s
    assert world.after(3.0) == []  # and is lost; the third for 8.2 s
    assert world.after(0.2) == ["first", "second"]


async def test_a_gateway_that_stood_still_takes_nobody_for_lost(world: World) -> None:
    world.join("a")
    world.gateway._broken_s["b"] = world.now_s
    world.now_s += 60
    world.gateway._excuse(world.now_s)
    assert world.after(0) == []
    assert world.after(10.1) == ["a", "b"]


async def test_who_does_not_lead_loses_nobody_and_turns_all_away(world: World) -> None:
    stream = world.join("a")
    world.gateway._broken_s["b"] = world.now_s
    world.gateway.hear(Frame(FrameKind.FOLLOW, "", b'{"leader": "x:1"}'))
    assert stream.end.is_set()
    assert stream.reason == "this server does not lead, x:1 does"
    assert world.after(1_000) == []
    world.gateway.hear(LEAD)
    assert world.after(1_000) == []  # nobody has been there since


async def test_a_server_tells_its_gateway_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ALIVE_S", 0.001)
    server, told = AgentSessions(GatewayOptions("127.0.0.1:0"), Heartbeats()), list[Frame]()
    monkeypatch.setattr(server, "_tell", told.append)
    telling = asyncio.create_task(server._say_alive())
    await until(lambda: told)
    telling.cancel()
    assert told[0].kind is FrameKind.ALIVE


async def test_a_lease_is_sent_once_each_length_of_it(world: World) -> None:
    stream = world.join("a")
    for _ in range(40):
        stream.heard_s = world.now_s
        world.after(1)
    assert len(stream.waiting) == 4


def test_a_join_token_is_good_for_its_host_alone() -> None:
    token = join_token("s" * 32, "z0-r0-h0")
    assert host_of(token, ("s" * 32,)) == "z0-r0-h0"
    assert host_of(token, ("other", "s" * 32)) == "z0-r0-h0"
    assert host_of(token, ("other",)) is None
    assert host_of(token.replace("z0-r0-h0", "z0-r0-h1"), ("s" * 32,)) is None
    assert host_of("", ("s" * 32,)) is None
    assert host_of("join::", ("s" * 32,)) is None
