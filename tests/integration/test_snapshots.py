"""A server that comes back knows all it acknowledged, from its newest sound snapshot on."""

import asyncio
import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.core import replay
from scheduler.core.model.events import HostMoved, JobEnded
from scheduler.core.model.lifecycle import HostMove, JobState
from scheduler.engine.snapshotter import Retention
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.snapshots import is_older
from scheduler.eventlog.store import StoreError, open_store
from scheduler.eventlog.store.verify import verify
from scheduler.v1 import service_pb2
from tests.build import fabric_spec
from tests.older import older
from tests.serving import (
    RUNNING,
    START_NS,
    Served,
    change,
    create,
    logged,
    messages,
    refused,
    serving,
    url,
)

OFTEN = Retention(snapshot_events=5, log_s=None)
SHORT = Retention(snapshot_events=5, log_s=0)


async def _live(served: Served, count: int, prefix: str = "j") -> None:
    for i in range(count):
        await served.stub.CreateJob(create(f"{prefix}{i}", 2))
        await served.cancel(f"{prefix}{i}")


def _versions(folder: Path, table: str = "snapshot") -> list[int]:
    with closing(sqlite3.connect(folder / "muster.db")) as connection:
        query = f"SELECT version FROM {table} ORDER BY version"
        return [version for (version,) in connection.execute(query)]


def _recovered(folder: Path) -> Any:
    with closing(open_store(url(folder))) as store:
        return recover(store, None, 0)


async def test_a_start_from_a_snapshot_is_the_replay_of_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path, retention=OFTEN) as served:
        await _live(served, 6)
        await served.start("runs", 3)
    events = logged(tmp_path)
    assert len(_versions(tmp_path)) >= 3  # on the way and at the end
    recovered = _recovered(tmp_path)
    assert recovered.state == replay(events)
    assert (recovered.last_ns, recovered.saved) == (events[-1].time_ns, len(events))
    change(tmp_path / "muster.db", f"DELETE FROM snapshot WHERE version > {len(events) - 3}")
    assert _recovered(tmp_path).state == recovered.state  # snapshot and tail


async def test_a_bad_snapshot_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, retention=OFTEN) as served:
        await _live(served, 10)
    state, versions = replay(logged(tmp_path)), _versions(tmp_path)
    change(
        tmp_path / "muster.db", f"UPDATE snapshot SET body = x'00' WHERE version = {versions[-1]}"
    )
    with caplog.at_level(logging.WARNING):
        recovered = _recovered(tmp_path)
    assert recovered.state == state
    assert recovered.saved == versions[-2]
    assert f"snapshot of version {versions[-1]} is left out" in caplog.text
    change(tmp_path / "muster.db", "UPDATE snapshot SET body = x'00'")
    assert _recovered(tmp_path).saved == 0
    assert _recovered(tmp_path).state == state


async def test_a_watch_from_what_is_dropped_is_out_of_range(tmp_path: Path) -> None:
    async with serving(tmp_path, retention=SHORT) as served:
        await _live(served, 20)
    async with serving(tmp_path, retention=OFTEN) as served:
        await _live(served, 2)
        first = _versions(tmp_path, "log")[0]
        stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=first - 2))
        error = await refused(anext(aiter(stream)))
        assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "COMPACTED")
        assert f"kept from version {first} on" in error.message
        stream = served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=first - 1))
        newest = (await served.get("j1")).version
        changes = await messages(stream, newest + 1 - first)
        # Without gap or repeat.
        assert [change.version for change in changes] == list(range(first, newest + 1))
    change(tmp_path / "muster.db", "UPDATE snapshot SET body = x'00'")
    with pytest.raises(StoreError, match=r"no snapshot can be read .* restore a backup"):
        _recovered(tmp_path)


async def test_commands_are_answered_while_a_snapshot_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> bytes:
        begun.set()
        assert go.wait(60)
        return b""

    async with serving(tmp_path, retention=OFTEN) as served:
        with monkeypatch.context() as patched:
            patched.setattr("scheduler.engine.snapshotter.snapshots.encode", slowly)
            await _live(served, 10)
            assert begun.is_set()
            go.set()
        await asyncio.sleep(0)


def _age(folder: Path, *lost: bytes) -> None:
    """Make every snapshot one of an older release."""
    with closing(sqlite3.connect(folder / "muster.db")) as connection, connection:
        for version, body in connection.execute("SELECT version, body FROM snapshot").fetchall():
            row = (older(body, *lost), version)
            connection.execute("UPDATE snapshot SET body = ? WHERE version = ?", row)


async def test_a_whole_log_says_more_than_a_snapshot_of_another_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, retention=OFTEN) as served:
        await _live(served, 6)
    _age(tmp_path, b"faults", b"requests")
    recovered = _recovered(tmp_path)
    assert recovered.state == replay(logged(tmp_path))
    assert recovered.saved == 0
    assert "is of another release: the log is read instead" in caplog.text


async def test_a_compacted_store_is_read_by_every_later_release(tmp_path: Path) -> None:
    async with serving(tmp_path, retention=SHORT) as served:
        await _live(served, 20)
        before = await served.start("runs", 3)
    assert _versions(tmp_path, "log")[0] > 1  # what the snapshot stands for is gone
    _age(tmp_path, b"faults", b"requests", b"defragmented_ns", b"windows", b"accounts")
    async with serving(tmp_path, retention=SHORT) as served:
        after = await served.get("runs")
        assert (after.uid, after.placement) == (before.uid, before.placement)
        await _live(served, 20, "later")
    with closing(open_store(url(tmp_path))) as store:
        assert not verify(store).problems
        assert not is_older(next(store.snapshots())[1])


async def test_what_the_log_calls_for_is_decided_after_a_restart(tmp_path: Path) -> None:
    """As after a crash between an append and the decision that it calls for."""
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("first", 4))
        job = await served.start("gang", 4)
        await served.stub.CreateJob(create("second", 3))
        version = (await served.get("second")).version
    lost = job.placement.hosts[0]
    with closing(open_store(url(tmp_path))) as store:
        store.append(version, [JobEnded(START_NS, "first", JobState.COMPLETED)])
        store.append(version + 1, [HostMoved(START_NS, lost, HostMove.FAIL, "gpu-lost")])
    async with serving(tmp_path) as served:
        await served.until("second", RUNNING)
        job = await served.until("gang", RUNNING)
        assert job.attempt == 2
        assert lost not in job.placement.hosts


async def test_another_fabric_than_the_logs_is_told_and_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path):
        pass
    async with serving(tmp_path, fabric_spec=fabric_spec(2, 2, 3, name="other")) as served:
        assert served.ready.fabric.name == "small"
        assert served.ready.fabric.host_count == 8
    assert "4 hosts added (z0-r0-h2, z0-r1-h2, z1-r0-h2 and 1 more)" in caplog.text
    assert "name small -> other" in caplog.text
    assert "muster fabric apply FILE" in caplog.text


async def test_a_new_store_needs_a_fabric(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="name its fabric with --fabric"):
        async with serving(tmp_path, fabric_spec=None):
            pass


def test_a_log_that_cannot_have_happened_is_refused(tmp_path: Path) -> None:
    with closing(open_store(url(tmp_path))) as store:
        recover(store, fabric_spec(), 0)
        store.append(1, [JobEnded(0, "nobody", JobState.COMPLETED)])
        with pytest.raises(StoreError, match="version 2 does not follow"):
            recover(store, None, 0)
