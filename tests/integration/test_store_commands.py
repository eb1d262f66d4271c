"""`muster store`: backups of a running server, put back, checked; and what is refused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from scheduler.cli.program import app
from scheduler.engine.snapshotter import Retention
from scheduler.v1 import service_pb2
from tests.cases import case
from tests.serving import RUNNING, change, create, logged, serving, url

OFTEN = Retention(snapshot_events=5, log_s=None)


def store(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["store", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


async def a_life(folder: Path, jobs: int = 8) -> None:
    async with serving(folder, retention=OFTEN) as served:
        for i in range(jobs):
            await served.stub.CreateJob(create(f"j{i}", 2))
            await served.cancel(f"j{i}")
        await served.start("runs", 3)


def verified(folder: Path, code: int = 0) -> dict[str, Any]:
    result = store("verify", "--store", url(folder), "--format", "json", code=code)
    found: dict[str, Any] = json.loads(result.output)
    return found


async def test_a_backup_of_a_running_server_is_a_whole_store(tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.db", tmp_path / "other"
    other.mkdir()
    async with serving(tmp_path) as served:
        before = await served.start("kept", 3)
        result = await asyncio.to_thread(store, "backup", copy, "--store", url(tmp_path))
        assert result.output == f"{copy} holds the store up to version {before.version}\n"
        await served.stub.CreateJob(create("later"))
    assert not copy.with_name("copy.db.part").exists()
    store("restore", copy, "--store", url(other))
    async with serving(other) as served:
        assert await served.get("kept") == before
        jobs = await served.stub.ListJobs(service_pb2.ListJobsRequest())
        assert [job.spec.name for job in jobs.jobs] == ["kept"]


async def test_a_restore_keeps_what_it_replaces_once_nobody_uses_it(tmp_path: Path) -> None:
    copy, target = tmp_path / "copy.db", url(tmp_path)
    await a_life(tmp_path, 2)
    store("backup", copy, "--store", target)
    events = logged(tmp_path)
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("later"))
        forced = ("restore", copy, "--store", target, "--force")
        result = await asyncio.to_thread(lambda: store(*forced, code=2))
        assert "in use by another server" in result.output
    assert "--force replaces it" in store("restore", copy, "--store", target, code=2).output
    store(*forced)
    assert logged(tmp_path) == events
    assert (tmp_path / "muster.db.replaced").exists()


async def test_a_whole_store_is_verified(tmp_path: Path) -> None:
    await a_life(tmp_path)
    found = verified(tmp_path)
    assert found["problems"] == []
    assert (found["first_version"], found["live_jobs"]) == (1, 1)
    assert len(found["snapshots"]) >= 3
    table = store("verify", "--store", url(tmp_path)).output
    assert "problems       none" in table
    info = json.loads(store("info", "--store", url(tmp_path), "--format", "json").output)
    assert info["last_version"] == found["last_version"]
    assert info["bytes"] == (tmp_path / "muster.db").stat().st_size


async def test_damage_is_found_and_named(tmp_path: Path) -> None:
    await a_life(tmp_path)
    snapshot = verified(tmp_path)["snapshots"][0]
    file, whole = tmp_path / "muster.db", (tmp_path / "muster.db").read_bytes()
    newest = "(SELECT body FROM snapshot ORDER BY version DESC LIMIT 1)"
    for damage, problem in (
        ("DELETE FROM log WHERE version = 4", "version 4 is missing"),
        ("UPDATE log SET body = '[]' WHERE version = 4", "version 4"),
        (f"UPDATE snapshot SET body = x'00' WHERE version = {snapshot}", "cannot be read"),
        (
            f"UPDATE snapshot SET body = {newest} WHERE version = {snapshot}",
            f"of version {snapshot} is not what the log leads to",
        ),
        ("INSERT INTO snapshot SELECT 999, body, digest FROM snapshot LIMIT 1", "newer than the"),
    ):
        change(file, damage)
        with case(damage=damage):
            assert any(problem in found for found in verified(tmp_path, 1)["problems"])
        for left in tmp_path.glob("muster.db*"):
            left.unlink()
        file.write_bytes(whole)


async def test_old_events_are_dropped_and_their_room_given_back(tmp_path: Path) -> None:
    await a_life(tmp_path, 30)
    before = verified(tmp_path)
    size = (tmp_path / "muster.db").stat().st_size
    result = store("compact", "--keep-days", "0", "--store", url(tmp_path))
    assert result.output == f"dropped {before['last_version']} events\n"
    after = verified(tmp_path)
    assert (after["problems"], after["live_jobs"]) == ([], 1)
    assert after["first_version"] == before["last_version"] + 1
    assert (tmp_path / "muster.db").stat().st_size < size / 2
    async with serving(tmp_path, fabric_spec=None) as served:
        assert (await served.get("runs")).state == RUNNING


def test_an_empty_store_is_made_once(tmp_path: Path) -> None:
    for _ in range(2):
        said = store("init", "--store", url(tmp_path)).output
        assert said == f"{url(tmp_path)} is at version 0\n"
    assert verified(tmp_path)["problems"] == []


async def test_a_damaged_store_is_made_usable_once_its_loss_is_known(tmp_path: Path) -> None:
    await a_life(tmp_path, 3)
    end = verified(tmp_path)["last_version"]
    change(tmp_path / "muster.db", f"UPDATE log SET actor = 'eve' WHERE version = {end - 1}")
    change(tmp_path / "muster.db", "DELETE FROM snapshot")
    assert f"version {end - 1} is not what was written" in str(verified(tmp_path, 1)["problems"])
    said = store("recover", "--store", url(tmp_path)).output
    assert f"keeps          versions 1 to {end - 2}" in said
    assert f"{end} JobStarted runs" in said
    assert "nothing was changed: stop the server, then repeat with --yes" in said
    assert verified(tmp_path, 1)["problems"]
    assert "done: start the server" in store("recover", "--yes", "--store", url(tmp_path)).output
    async with serving(tmp_path) as served:
        jobs = await served.stub.ListJobs(service_pb2.ListJobsRequest())
        assert "runs" not in [job.name for job in jobs.jobs]
        await served.start("runs", 3)
    assert verified(tmp_path)["problems"] == []
    assert "nothing to do" in store("recover", "--store", url(tmp_path)).output


def test_a_store_that_is_not_there_or_of_another_kind_is_said_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("info", "verify", "compact --keep-days 1", "recover", "backup copy"):
        with case(command=command):
            result = store(*command.split(), "--store", url(tmp_path), code=2)
            assert "there is no store" in result.output
            result = store(*command.split(), "--store", "mysql://x", code=2)
            assert "give sqlite:///FILE or postgresql://HOST/DATABASE" in result.output
    assert list(tmp_path.iterdir()) == []


def test_another_kind_of_file_is_no_backup(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database\n" * 1_000)
    result = store("restore", other, "--store", url(tmp_path), code=2)
    assert f"{other} is not a muster store, or is corrupt: file is not a database" in result.output
    assert not (tmp_path / "muster.db").exists()
    result = store("restore", tmp_path, "--store", url(tmp_path), code=2)
    assert f"{tmp_path} is a folder, not a store" in result.output
