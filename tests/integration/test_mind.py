"""Decisions in a process of their own: the same plans, and service without it."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from scheduler.core import Plan, SchedulingOptions, State, decide, replay
from scheduler.core.model.events import Event, FabricChanged, JobSubmitted
from scheduler.engine.mirror import StateMirror, _rows
from scheduler.engine.planning.executor import PlanExecutor
from scheduler.eventlog.codec import encode
from tests.build import fabric, loaded, spec
from tests.serving import RUNNING, create, serving
from tests.waiting import until

LIMITS = SchedulingOptions()
ALWAYS = 0.0


class _Here:
    """The decision in the thread, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, state: State, now_ns: int) -> Plan:
        self.count += 1
        return decide(state, now_ns, LIMITS)


@pytest.fixture
def here() -> _Here:
    return _Here()


@pytest.fixture
async def mind(here: _Here) -> AsyncIterator[PlanExecutor]:
    mind = PlanExecutor(here, LIMITS, lambda _: None, ALWAYS)
    await mind.decide(loaded(fabric()), 0)  # long, hence a process from now on
    await _is_up(mind)
    yield mind
    mind.close()


async def _is_up(mind: PlanExecutor) -> None:
    await until(lambda: mind._other is not None and mind._other.is_up())


def _events(count: int, first: int = 0) -> list[Event]:
    numbers = range(first, first + count)
    return [JobSubmitted(1, f"u{n}", spec(f"j{n}", 2), f"r{n}") for n in numbers]


async def test_the_plans_are_those_of_the_thread(mind: PlanExecutor, here: _Here) -> None:
    """Also on another fabric, and of what happens before an answer is awaited."""
    state = loaded(fabric())
    for hosts in (0, 3, 2, 4):
        changed = [FabricChanged(1, fabric(hosts=hosts).spec)] if hosts else []
        state = replay(events := [*changed, *_events(2, 10 * hosts)], state)
        mind.follow(events, state)
        answer = mind.decide(state, 5)
        later = replay(more := _events(1, 10 * hosts + 2), state)
        mind.follow(more, later)
        assert await answer == decide(state, 5, LIMITS)
        assert await mind.decide(later, 5) == decide(later, 5, LIMITS)
        state = later
    assert here.count == 1


async def test_a_process_that_dies_costs_no_decision(
    mind: PlanExecutor, here: _Here, caplog: pytest.LogCaptureFixture
) -> None:
    state = replay(_events(3), loaded(fabric()))
    assert mind._other is not None
    os.kill(mind._other._process.pid, signal.SIGKILL)
    mind._other._process.wait()
    with caplog.at_level(logging.WARNING):
        assert await mind.decide(state, 5) == decide(state, 5, LIMITS)
    assert "a thread plans" in caplog.text
    assert here.count == 2
    await _is_up(mind)  # and a new one follows
    assert await mind.decide(state, 5) == decide(state, 5, LIMITS)
    assert here.count == 2


async def test_a_process_that_lost_count_costs_no_decision_and_begins_again(
    mind: PlanExecutor, here: _Here, caplog: pytest.LogCaptureFixture
) -> None:
    state = loaded(fabric())
    assert await mind.decide(state, 5) == decide(state, 5, LIMITS)
    later = replay(_events(2), state)  # of which it is not told
    with caplog.at_level(logging.WARNING):
        assert await mind.decide(later, 5) == decide(later, 5, LIMITS)
    assert "(asked about version 3 at version 1): a thread plans" in caplog.text
    assert here.count == 2
    latest = replay(events := _events(1, 7), later)
    mind.follow(events, latest)  # not from where it was
    assert await mind.decide(latest, 5) == decide(latest, 5, LIMITS)
    assert here.count == 2


async def test_a_server_that_always_takes_the_process_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[str](), StateMirror.ask

    def counted(self: StateMirror, *arguments: Any) -> Any:
        asked.append("plan")
        return ask(self, *arguments)

    monkeypatch.setattr(StateMirror, "ask", counted)
    async with serving(tmp_path, long_decision_s=ALWAYS) as served:
        for i in range(4):
            await served.stub.CreateJob(create(f"j{i}", 2))
        for i in range(4):
            await served.until(f"j{i}", RUNNING)
        for number in range(600):  # until the process is up, and takes a decision
            if asked:
                break
            await served.stub.CreateJob(create(f"more{number}"))
            await asyncio.sleep(0.05)
    assert asked


async def test_the_process_ends_with_its_server() -> None:
    mind = PlanExecutor(
        lambda state, now_ns: decide(state, now_ns, LIMITS), LIMITS, lambda _: None, ALWAYS
    )
    await mind.decide(loaded(fabric()), 0)
    await _is_up(mind)
    assert mind._other is not None
    mind._other._link.close()  # as when the server is killed
    assert await asyncio.to_thread(mind._other._process.wait, 30) == 0


async def test_short_decisions_leave_the_thread_to_calls_while_many_come() -> None:
    def spins(state: State, now_ns: int) -> Plan:
        until_s = time.thread_time() + 0.01
        while time.thread_time() < until_s:
            pass
        return Plan(state.version)

    mind = PlanExecutor(spins, LIMITS, lambda _: None, long_s=1.0)
    await mind.decide(loaded(fabric()), 0)
    assert mind._other is None
    assert await _lasts_s(mind.pace_decisions(is_busy=True)) >= 0.09
    assert await _lasts_s(mind.pace_decisions(is_busy=False)) < 0.01
    mind.close()


async def _lasts_s(rest: Coroutine[Any, Any, None]) -> float:
    began_s = time.monotonic()
    await rest
    return time.monotonic() - began_s


def test_events_told_in_pieces_are_all_told_and_in_order() -> None:
    events = tuple(JobSubmitted(n, f"u{n}", spec(f"j{n}")) for n in range(250))
    assert _rows(events) == tuple(map(encode, events))
    assert _rows(()) == ()
