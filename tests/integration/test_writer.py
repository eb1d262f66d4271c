"""The single writer: group commit, conflicts, and decisions beside commands."""

import asyncio
import threading
from pathlib import Path

import pytest

from scheduler.core import Plan, SchedulingOptions, State, admit, decide
from scheduler.core.capacity.placer import Placer
from scheduler.core.model.commands import Command, HoldJob
from scheduler.core.model.events import GangSwapped, JobStarted
from scheduler.core.model.plan import Start
from scheduler.v1 import service_pb2
from tests.build import fabric, on, spec
from tests.serving import QUEUED, RUNNING, Served, create, logged, serving, slow_disk


async def test_commands_that_arrive_together_share_an_append(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = slow_disk(monkeypatch)
    await asyncio.gather(*(served.stub.CreateJob(create(f"j{i}", 8)) for i in range(40)))
    assert sum(sizes) >= 40
    assert len(sizes) <= 10


class HeldDecisions:
    """Stands in front of decide: each decision waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.count = 0
        monkeypatch.setattr("scheduler.engine.writer.decide", self)

    def __call__(self, state: State, now_ns: int, options: SchedulingOptions, find: Placer) -> Plan:
        self.count += 1
        self.begun.release()
        assert self.go.acquire(timeout=60)
        return decide(state, now_ns, options, find)

    async def next_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=60)


async def test_a_plan_that_no_longer_holds_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its jobs is cancelled, and the host of another cordoned, while it is made."""
    held = HeldDecisions(monkeypatch)
    async with serving(tmp_path) as served:
        await held.next_begun()  # the one of the start, on the empty state
        made = await served.stub.CreateJob(create("a", 2))  # answered while it is made
        assert made.state == QUEUED
        await served.stub.CreateJob(create("gone", 2))
        held.go.release()
        await held.next_begun()  # this one puts a on the first two hosts
        await served.stub.CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0"))
        await served.cancel("gone")
        held.go.release(50)
        job = await served.until("a", RUNNING)
    assert "z0-r0-h0" not in job.placement.hosts
    started = [event.name for event in logged(tmp_path) if isinstance(event, JobStarted)]
    assert started == ["a"]


async def test_a_gang_that_a_failure_stops_goes_on_while_a_decision_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        before = await served.start("a", 2)
        held = HeldDecisions(monkeypatch)
        await served.stub.CreateJob(create("b", 8))
        await held.next_begun()  # for b, and it is not let go
        host = before.placement.hosts[0]
        await served.report(host)
        after = await served.until("a", RUNNING)
        assert host not in after.placement.hosts
        assert held.count == 1
        held.go.release(50)
    assert sum(isinstance(event, GangSwapped) for event in logged(tmp_path)) == 1


async def test_a_server_that_stops_during_a_decision_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = HeldDecisions(monkeypatch)
    async with serving(tmp_path):
        await held.next_begun()
        mine = asyncio.current_task()
    left = {task for task in asyncio.all_tasks() if task is not mine and not task.cancelling()}
    held.go.release(50)
    assert not left
    assert not caplog.records


async def test_a_plan_that_falls_on_its_own_version_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def bad(state: State, now_ns: int, options: SchedulingOptions, find: Placer) -> Plan:
        calls.append(state.version)
        return Plan(state.version, (Start("nobody", on(fabric(), spec("x").request, 0)),))

    monkeypatch.setattr("scheduler.engine.writer.decide", bad)
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        await asyncio.sleep(0.1)
        assert (await served.get("a")).state == QUEUED
    assert len(calls) <= 3


async def test_a_bug_in_a_decision_or_in_a_command_leaves_the_service_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_decide(state: State, now_ns: int, options: SchedulingOptions, find: Placer) -> Plan:
        if "poison" in state.jobs:
            raise ZeroDivisionError
        return decide(state, now_ns, options, find)

    def broken_admit(state: State, command: Command, now_ns: int) -> object:
        if isinstance(command, HoldJob):
            raise ZeroDivisionError
        return admit(state, command, now_ns)

    monkeypatch.setattr("scheduler.engine.writer.decide", broken_decide)
    monkeypatch.setattr("scheduler.access.limits.admit", broken_admit)
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("poison"))
        hold = served.stub.HoldJob(service_pb2.HoldJobRequest(name="poison"))
        submit = served.stub.CreateJob(create("a"))
        results = await asyncio.gather(hold, submit, return_exceptions=True)
        assert isinstance(results[0], Exception)
        await served.cancel("poison")
        await served.until("a", RUNNING)
