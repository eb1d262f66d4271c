"""Long-lived tasks are kept alive, counted and told of; parts that fall silent are named."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.observe import supervision
from scheduler.observe.supervision import Heartbeats, Tasks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.01)


class Begun:
    """Work that counts its beginnings and then does what the test wants."""

    def __init__(self, end: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self._end = end

    async def run(self) -> None:
        self.count += 1
        self._end(self.count)
        await asyncio.Event().wait()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.count < count:
                await asyncio.sleep(0.005)


def _task(name: str) -> asyncio.Task[object]:
    return next(task for task in asyncio.all_tasks() if task.get_name() == f"muster-{name}")


async def test_a_task_that_fails_begins_again_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail_twice(count: int) -> None:
        if count < 3:
            raise ZeroDivisionError

    beats, work = Heartbeats(), Begun(fail_twice)
    async with Tasks(beats) as tasks:
        tasks.keep("worker", work.run)
        await work.until(3)
    assert beats.restarts["worker",] == 2
    assert [record.getMessage() for record in caplog.records] == [
        "worker failed (ZeroDivisionError()); it begins again in 0.01 s",
        "worker failed (ZeroDivisionError()); it begins again in 0.02 s",
    ]


async def test_a_task_that_somebody_cancels_begins_again() -> None:
    beats, work = Heartbeats(), Begun()
    async with Tasks(beats) as tasks:
        tasks.keep("worker", work.run)
        await work.until(1)
        _task("worker").cancel()
        await work.until(2)
    assert beats.restarts["worker",] == 1


async def test_a_task_that_its_owner_drops_or_closes_stays_ended() -> None:
    beats, dropped, closed = Heartbeats(), Begun(), Begun()
    async with Tasks(beats) as tasks:
        tasks.keep("dropped", dropped.run)
        tasks.keep("closed", closed.run)
        await closed.until(1)
        tasks.drop("dropped")
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    assert (dropped.count, closed.count, beats.restarts.total()) == (1, 1, 0)


async def test_an_error_of_a_short_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async with Tasks(Heartbeats()) as tasks:
        tasks.start(fail())
        await asyncio.sleep(0.01)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "a task failed")


def test_a_part_is_ill_while_it_is_silent_or_in_trouble() -> None:
    now_s = [0.0]
    beats = Heartbeats(lambda: now_s[0])
    assert beats.states() == {}
    beats.beat("store", 5.0)
    beats.tell("store", "the disk is full")
    assert beats.states() == {"store": "the disk is full"}
    beats.tell("store", "")
    now_s[0] = 5.0
    assert beats.states() == {"store": ""}
    now_s[0] = 7.0
    assert beats.states() == {"store": "silent for 2 s longer than it may be"}
    beats.rest("store")
    assert beats.states() == {}


def test_every_task_that_is_made_by_hand_is_known() -> None:
    """Long-lived tasks are made by `Tasks`. The others are waited for where they are made, or end
    by themselves, and somebody looks at how: give a new one to `Tasks.start`."""
    made = Counter(
        path.relative_to(ROOT / "scheduler").as_posix()
        for path in (ROOT / "scheduler").rglob("*.py")
        for _ in re.findall(r"\.(?:create_task|ensure_future)\b", path.read_text(encoding="utf-8"))
    )
    assert made == {
        "access/auth_interceptor.py": 2,
        "access/forwarding.py": 1,
        "agent/agent.py": 1,
        "agent/checks/burn_in.py": 1,
        "agent/ranks/channels.py": 2,
        "agent/program.py": 5,
        "agent/session.py": 1,
        "console/live.py": 2,
        "engine/history.py": 1,
        "engine/planning/loop.py": 2,
        "engine/replica.py": 3,
        "engine/snapshotter.py": 1,
        "launch/channels.py": 1,
        "launch/kubernetes/pod_groups.py": 1,
        "launch/local.py": 1,
        "launch/streams/gateway.py": 4,
        "observe/supervision.py": 2,
        "server/serve.py": 4,
    }
