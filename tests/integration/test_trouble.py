"""Disks that refuse, clocks that step back, callers that vanish: nothing acknowledged is lost."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from scheduler.core.model.events import GangSwapped, JobSubmitted
from scheduler.eventlog.store import StoreError, look_at, open_store
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.v1 import error_pb2, host_pb2, service_pb2
from tests.build import spec
from tests.e2e.processes import MUSTER
from tests.serving import QUEUED, RUNNING, Served, create, logged, refused, serving, slow_disk, url


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[SqliteStore]:
    """The stores that servers have opened."""
    opened: list[SqliteStore] = []

    def keep(at: str, **options: Any) -> object:
        store = open_store(at, **options)
        assert isinstance(store, SqliteStore)
        opened.append(store)
        return store

    monkeypatch.setattr("scheduler.server.serve.open_store", keep)
    return opened


async def _fill(served: Served) -> tuple[list[str], str]:
    """Submit until the disk is full: the jobs acknowledged, and how the last one ended."""
    acknowledged = []
    for number in count():
        try:
            await served.stub.CreateJob(create(f"j{number:05d}", 8))
        except grpc.aio.AioRpcError as error:
            return acknowledged, f"{error.code().name}: {error.details()}"
        acknowledged.append(f"j{number:05d}")
    raise AssertionError


def _submitted(folder: Path) -> list[str]:
    return [event.spec.name for event in logged(folder) if isinstance(event, JobSubmitted)]


async def test_a_full_disk_is_survived(tmp_path: Path, held: list[SqliteStore]) -> None:
    async with serving(tmp_path) as served:
        pages = held[0]._connection.execute("PRAGMA page_count").fetchone()[0]
        held[0]._connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        acknowledged, sentence = await _fill(served)
        assert sentence.startswith("UNAVAILABLE: nothing was changed: cannot write to")
        assert (await refused(served.stub.CreateJob(create("more", 8)))).reason == "NOT_WRITTEN"
        assert sentence.endswith("database or disk is full")
        assert (await served.get("j00000")).state == RUNNING  # it still answers
        held[0]._connection.execute("PRAGMA max_page_count = 1000000")
        await served.stub.CreateJob(create("after"))
    assert _submitted(tmp_path) == [*acknowledged, "after"]


async def test_a_disk_that_becomes_read_only_is_survived(
    tmp_path: Path, held: list[SqliteStore]
) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("before"))
        held[0]._connection.execute("PRAGMA query_only = 1")
        error = await refused(served.stub.CreateJob(create("lost")))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert "readonly database" in error.message
        held[0]._connection.execute("PRAGMA query_only = 0")
        await served.until("before", RUNNING)  # what waited for the disk is decided again
    assert _submitted(tmp_path) == ["before"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte; mounting one takes root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_disk_that_is_really_full_loses_nothing(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    acknowledged: list[str] = []
    try:
        async with serving(small_disk) as served:
            acknowledged, _ = await _fill(served)
            ballast.unlink()
            await served.stub.CreateJob(create("after"))
            acknowledged.append("after")
    except StoreError:  # it was not sure that nothing was written, and ended
        ballast.unlink(missing_ok=True)
    found = _submitted(small_disk)
    assert len(acknowledged) > 10
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


def test_a_store_on_a_read_only_disk_is_read_where_it_was_closed(
    small_disk: Path, tmp_path: Path
) -> None:
    """One that a crash left is refused in words."""
    crashed, left, closed = _crashed(tmp_path, 1), small_disk / "crashed", small_disk / "closed"
    shutil.copytree(crashed, left)
    closed.mkdir()
    open_store(url(closed)).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="Read-only file system"):
        open_store(url(closed))
    assert look_at(url(closed)).last_version() == 0
    with pytest.raises(StoreError, match=r"not be written to: copy muster\.db\* elsewhere first"):
        look_at(url(left))
    assert look_at(url(crashed)).last_version() == 1


def _crashed(folder: Path, events: int) -> Path:
    """A store as a crash leaves it, its newest events in the WAL; where it is."""
    copy = folder / "crashed"
    copy.mkdir()
    store = open_store(url(folder))
    store.append(0, [JobSubmitted(n, f"u{n}", spec(f"j{n}")) for n in range(events)])
    for name in ("muster.db", "muster.db-wal"):
        shutil.copy(folder / name, copy / name)
    store.close()
    return copy


def test_a_torn_write_at_the_end_of_the_wal_is_left_out(tmp_path: Path) -> None:
    crashed = _crashed(tmp_path, 200)
    with (crashed / "muster.db-wal").open("ab") as wal:
        wal.write(b"\x5a" * 3_000)  # most of a page that was never committed
    assert len(_submitted(crashed)) == 200


async def test_a_retry_after_the_caller_went_away_is_the_same_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        slow_disk(monkeypatch, 0.2)
        first = served.stub.CreateJob(create("once", request_id="r"))
        await asyncio.sleep(0.1)  # the append is under way
        first.cancel()
        again = await served.stub.CreateJob(create("once", request_id="r"))
        assert again.state in (QUEUED, RUNNING)
    assert _submitted(tmp_path) == ["once"]


# --- reports in numbers, and what a host shows of its past, over gRPC ----------------


async def test_many_reports_are_answered_each_in_its_place_and_checked_before(
    served: Served,
) -> None:
    report, cordon = service_pb2.ReportHostRequest, service_pb2.CordonHostRequest
    await served.stub.CordonHost(cordon(name="z0-r0-h0", reason="mine"))
    request = service_pb2.ReportHostsRequest(
        reports=[
            report(name="z0-r0-h0", signal="xid", xid=79, gpu=2),
            report(name="nowhere", signal="thermal"),
            report(name="z0-r1", signal="tor-down"),
        ],
        validate_only=True,
    )
    checked, missing, _ = (await served.stub.ReportHosts(request)).results
    host = await served.stub.GetHost(service_pb2.GetHostRequest(name="z0-r0-h0"))
    assert checked.host.state == host_pb2.HOST_STATE_FAILED
    assert checked.reason == error_pb2.ERROR_REASON_UNSPECIFIED
    assert missing.reason == error_pb2.ERROR_REASON_NOT_FOUND
    assert host.state == host_pb2.HOST_STATE_CORDONED
    request.validate_only = False
    request.reports[1].validate_only = True
    mixed = await refused(served.stub.ReportHosts(request))
    assert mixed.fields == ("reports[1].validate_only",)
    request.reports[1].validate_only = False
    first, second, third = (await served.stub.ReportHosts(request)).results
    assert first.host.state == host_pb2.HOST_STATE_FAILED
    assert first.host.reason == "xid: 79, GPU has fallen off the bus: GPU 2"
    assert (first.host.record.failures, first.host.record.lemon_signals.xid_cnt) == (1, 1)
    assert (first.host.cordoned, first.host.cordon_reason) == (True, "mine")  # through a failure
    assert "no host 'nowhere'" in second.error
    assert not third.error
    assert not third.HasField("host")


async def test_hosts_that_fail_in_one_call_are_one_decision(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        job = await served.start("a", 4)
        lost = job.placement.hosts[:3]
        reports = [service_pb2.ReportHostRequest(name=h, signal="gpu-lost") for h in lost]
        await served.stub.ReportHosts(service_pb2.ReportHostsRequest(reports=reports))
        again = await served.until("a", RUNNING)
    assert again.attempt == 2
    assert not {*lost} & {*again.placement.hosts}
    swaps = [event for event in logged(tmp_path) if isinstance(event, GangSwapped)]
    assert [len(swap.swaps) for swap in swaps] == [3]


@pytest.mark.parametrize("kind", ["slurm", "dcgm-json"])
def test_what_comes_by_standard_input_is_named_so(kind: str) -> None:
    done = subprocess.run(
        [MUSTER, "report", "--import", "-", "--format", kind], input=b"\xff", capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.decode().strip() == "/dev/stdin:1: is not UTF-8 text"
