"""Every long-lived task of a server, found by introspection, is killed in turn: the server goes on,
or ends and says so. `muster health` names the parts that do not work."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from scheduler.console.thread import HttpEndpoint
from scheduler.engine.planning.loop import PlanningLoop
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.launch.launcher import AgentSettings
from scheduler.launch.local import LocalAgents
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.observe.supervision import PREFIX
from tests.build import fabric
from tests.commands import muster
from tests.serving import RUNNING, Served, create, serving
from tests.waiting import until

WRITER = f"{PREFIX}writer"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks begin again, and parts are looked at, after a tenth of the usual pauses."""
    monkeypatch.setattr("scheduler.observe.supervision.FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr("scheduler.server.serve._TELL_S", 0.1)


def whole(folder: Path) -> dict[str, Any]:
    """Settings of a server that has all its parts."""
    agents = AgentSettings(
        GatewayOptions("127.0.0.1:0"),
        substrate=lambda beats: LocalAgents(folder / "agents", beats),
        stragglers_s=3600.0,
    )
    return {"agents": agents, "console": HttpEndpoint("127.0.0.1", 0)}


def long_lived() -> dict[str, asyncio.Task[Any]]:
    named = {task.get_name(): task for task in asyncio.all_tasks() if not task.done()}
    return {name: task for name, task in named.items() if name.startswith(PREFIX)}


def on_page() -> set[str]:
    """The names of tasks that the page lists."""
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text(encoding="utf-8")
    section = page[page.index("## Tasks of a server") : page.index("| thread |")]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    return {name.split("-of-")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


async def end(name: str) -> None:
    """Cancel a task, and wait for the one that takes its place."""
    killed = long_lived()[name]
    killed.cancel()
    await until(lambda: long_lived().get(name, killed) is not killed)


async def asked(served: Served, *options: str) -> Result:
    return await muster(served, "health", *options)


async def until_well(served: Served) -> None:
    await until(lambda: asked(served), lambda told: told.exit_code == 0)


async def test_a_server_outlives_the_death_of_each_of_its_tasks(tmp_path: Path) -> None:
    async with serving(tmp_path, **whole(tmp_path)) as served:
        expected = {
            *("agents", "alive", "gangs", "health", "hosts", "launcher", "planner"),
            *("reload", "store", "stragglers", "ticks"),
            *(f"agent-of-{host}" for host in fabric().hosts),
        }
        await until(lambda: {n.removeprefix(PREFIX) for n in long_lived()} >= expected)
        names = sorted(long_lived().keys() - {WRITER})
        assert {name.removeprefix(PREFIX).split("-of-")[0] for name in names} <= on_page()
        for number, name in enumerate(names):
            await end(name)
            await served.stub.CreateJob(create(f"job{number}"))
            if number < 8:  # as many hosts as there are
                await served.until(f"job{number}", RUNNING)
        await until_well(served)
        assert not served.task.done()


async def test_a_disk_that_is_nearly_full_is_said_before_a_change_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SqliteStore, "disk_used", lambda _: 0.96)
    await until(lambda: "store: its disk is 96% full" in caplog.text)
    result = await asked(served)
    assert (result.exit_code, "do not work: store" in result.output) == (1, True)
    await served.stub.CreateJob(create("a"))  # as long as there is room
    await served.until("a", RUNNING)
    monkeypatch.setattr(SqliteStore, "disk_used", lambda _: 0.94)
    await until_well(served)


async def test_a_server_whose_writer_dies_ends_and_says_so(tmp_path: Path) -> None:
    with suppress(StoreError):  # at the end of the block
        async with serving(tmp_path) as served:
            long_lived()[WRITER].cancel()
            await asyncio.wait({served.task}, timeout=20)
    assert str(served.task.exception()).startswith("what writes the log was cancelled")


async def test_health_names_a_planner_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(self: PlanningLoop, state: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("scheduler.engine.planning.loop.SILENT_S", 0.5)
    monkeypatch.setattr(PlanningLoop, "_decide", hang)
    async with serving(tmp_path, **whole(tmp_path)) as served:
        await served.stub.CreateJob(create("a"))
        told = await until(lambda: asked(served), lambda told: "planner" in told.output)
        serves = await asked(served, "--only-serving")
    assert told.exit_code == 1
    assert "serves, but parts of it do not work: planner" in told.output
    assert serves.exit_code == 0


async def test_health_names_a_store_that_cannot_be_written(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SqliteStore.append

    def full(*_: object) -> int:
        raise NotWritten("the disk is full")

    monkeypatch.setattr(SqliteStore, "append", full)
    with pytest.raises(Exception, match="the disk is full"):
        await served.stub.CreateJob(create("a"))
    await until(lambda: asked(served), lambda t: "parts of it do not work: store" in t.output)
    monkeypatch.setattr(SqliteStore, "append", append)
    await served.stub.CreateJob(create("b"))
    await until_well(served)
