"""A server starts from its newest sound snapshot, and drops what is old."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.core import replay
from scheduler.engine.snapshotter import Retention
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.snapshots import is_older
from scheduler.eventlog.store import StoreError, open_store
from scheduler.eventlog.store.verify import verify
from scheduler.v1 import service_pb2
from tests.older import older
from tests.serving import RUNNING, Served, change, create, logged, refused, serving, url

OFTEN = Retention(snapshot_events=5, log_s=None)
SHORT = Retention(snapshot_events=5, log_s=0)


async def _live(served: Served, count: int, prefix: str = "j") -> None:
    for i in range(count):
        await served.stub.CreateJob(create(f"{prefix}{i}", 2))
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name=f"{prefix}{i}"))


def _versions(folder: Path, table: str = "snapshot") -> list[int]:
    with closing(sqlite3.connect(folder / "muster.db")) as connection:
        query = f"SELECT version FROM {table} ORDER BY version"
        return [version for (version,) in connection.execute(query)]


def _recovered(folder: Path) -> Any:
    store = open_store(url(folder))
    try:
        return recover(store, None, 0)
    finally:
        store.close()


async def test_a_start_from_a_snapshot_is_the_replay_of_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path, retention=OFTEN) as served:
        await _live(served, 6)
        await served.stub.CreateJob(create("runs", 3))
        await served.until("runs", RUNNING)
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
        seen = [(await anext(aiter(stream))).version]
        while seen[-1] < newest:
            seen.append((await anext(aiter(stream))).version)
        stream.cancel()
        assert seen == list(range(first, newest + 1))  # without gap or repeat
    change(tmp_path / "muster.db", "UPDATE snapshot SET body = x'00'")
    with pytest.raises(StoreError, match=r"no snapshot can be read .* restore a backup"):
        _recovered(tmp_path)


async def test_commands_are_answered_while_a_snapshot_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

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
        await served.stub.CreateJob(create("runs", 3))
        before = await served.until("runs", RUNNING)
    assert _versions(tmp_path, "log")[0] > 1  # what the snapshot stands for is gone
    _age(tmp_path, b"faults", b"requests", b"defragmented_ns", b"windows", b"accounts")
    async with serving(tmp_path, retention=SHORT) as served:
        after = await served.get("runs")
        assert (after.uid, after.placement) == (before.uid, before.placement)
        await _live(served, 20, "later")
    store = open_store(url(tmp_path))
    try:
        assert not verify(store).problems
        newest = next(store.snapshots())[1]
    finally:
        store.close()
    assert not is_older(newest)
