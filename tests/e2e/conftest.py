"""Fixtures of several files."""

from collections.abc import Iterator

import pytest

from scheduler.v1 import job_pb2
from tests.e2e.gangs import Local, local_server
from tests.e2e.shell import Shell
from tests.waiting import wait_until

LIVE = (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A shell without a server."""
    return Shell(monkeypatch, capsys)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """A server with two hosts and a client of it, for all tests that have no other."""
    folder = tmp_path_factory.mktemp("shared")
    with local_server(folder, racks=1, hosts=2, lease_s=15) as made:
        yield made


@pytest.fixture
def local(shared: Local) -> Local:
    """The shared server, on which no gang of an earlier test is left. Each test names its jobs as
    no other test does: a job goes on where another of its name was."""
    server, client = shared
    for job in client.list_jobs():
        if job.state in LIVE:
            client.cancel_job(job.spec.name)
    wait_until(lambda: not any(map(server.ranks, server.hosts)), 60)
    return shared
