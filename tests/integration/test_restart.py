"""A server that comes back knows everything it ever acknowledged."""

from pathlib import Path

import pytest

from scheduler.core.model.events import HostMoved, JobEnded
from scheduler.core.model.lifecycle import HostMove, JobState
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.store import StoreError, open_store
from tests.build import fabric_spec
from tests.serving import RUNNING, START_NS, create, logged, serving, url


async def test_what_the_log_calls_for_is_decided_after_a_restart(tmp_path: Path) -> None:
    """As after a crash between an append and the decision that it calls for."""
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("first", 4))
        await served.stub.CreateJob(create("gang", 4))
        job = await served.until("gang", RUNNING)
        await served.stub.CreateJob(create("second", 3))
        version = (await served.get("second")).version
    lost = job.placement.hosts[0]
    store = open_store(url(tmp_path))
    store.append(version, [JobEnded(START_NS, "first", JobState.COMPLETED)])
    store.append(version + 1, [HostMoved(START_NS, lost, HostMove.FAIL, "gpu-lost")])
    store.close()
    async with serving(tmp_path) as served:
        await served.until("second", RUNNING)
        job = await served.until("gang", RUNNING)
        assert job.attempt == 2
        assert lost not in job.placement.hosts


async def test_times_in_the_log_never_decrease(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        await served.until("a", RUNNING)
    async with serving(tmp_path, clock=lambda: 5) as served:  # the wall clock was set back
        await served.stub.CreateJob(create("b"))
        await served.until("b", RUNNING)
    times = [event.time_ns for event in logged(tmp_path)]
    assert times == sorted(times)
    assert times[-1] > START_NS


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
    store = open_store(url(tmp_path))
    recover(store, fabric_spec(), 0)
    store.append(1, [JobEnded(0, "nobody", JobState.COMPLETED)])
    with pytest.raises(StoreError, match="version 2 does not follow"):
        recover(store, None, 0)
    store.close()
