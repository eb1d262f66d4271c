"""kill -9 loses nothing that was acknowledged, and gives no host away twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.core.events import GangSwapped, JobEnded, JobRequeued, JobStarted
from scheduler.store import open_store
from scheduler.v1 import job_pb2
from tests.build import exactly, spec
from tests.e2e.processes import ServerProcess

KILLS = 100
RUNNING = job_pb2.JOB_STATE_RUNNING


class Ledger:
    """What a user knows: the jobs that were acknowledged, and those that may exist."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.uid_by_name: dict[str, str] = {}
        self.unanswered: list[JobSpec] = []
        self._count = 0

    def next_spec(self) -> JobSpec:
        self._count += 1
        hosts, spares = self.random.randint(1, 6), exactly(self.random.randint(0, 1))
        return spec(f"job-{self._count:04d}", hosts, spares=spares)

    def submit(self, client: Client, wanted: JobSpec) -> None:
        """The name serves as request_id, so that a second try is the same request."""
        job = client.create_job(wanted, request_id=wanted.name)
        known = self.uid_by_name.setdefault(wanted.name, job.uid)
        assert known == job.uid, "a retry made another job"

    def submit_until_killed(self, client: Client, specs: list[JobSpec]) -> None:
        for i, wanted in enumerate(specs):
            try:
                self.submit(client, wanted)
            except ServiceError:
                self.unanswered += specs[i:]
                return


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_hundred_kills(server: ServerProcess) -> None:
    ledger = Ledger(seed=20_240_607)
    for _ in range(KILLS):
        _kill_amid_submits(server, ledger)
        server.start()
        with Client(server.address) as client:
            for wanted in ledger.unanswered:
                ledger.submit(client, wanted)
            ledger.unanswered.clear()
            _check(client, ledger)
            _end_some(client, ledger)
    assert len(ledger.uid_by_name) > KILLS
    assert server.terminate() == 0
    assert _held_twice(server.store) == []


def _kill_amid_submits(server: ServerProcess, ledger: Ledger) -> None:
    """One acknowledged submit; then others run on while the server dies."""
    others = [ledger.next_spec() for _ in range(ledger.random.randint(0, 3))]
    with Client(server.address, retries=False) as client:
        ledger.submit(client, ledger.next_spec())
        background = Thread(target=ledger.submit_until_killed, args=(client, others))
        background.start()
        time.sleep(ledger.random.choice([0.0, ledger.random.uniform(0, 0.02)]))
        server.kill()
        background.join()


def _check(client: Client, ledger: Ledger) -> None:
    """Every acknowledged job is there once, and every host is held once at most."""
    jobs = client.list_jobs()
    uids = Counter(job.uid for job in jobs)
    assert {job.name: job.uid for job in jobs} == ledger.uid_by_name
    assert set(uids.values()) == {1}
    running = [client.get_job(job.name).placement for job in jobs if job.state == RUNNING]
    held = Counter(host for p in running for host in (*p.hosts, *p.spares))
    assert [host for host, times in held.items() if times > 1] == []


def _end_some(client: Client, ledger: Ledger) -> None:
    """Make room, else the queue only grows; a killed server may not have started it yet."""
    for job in client.list_jobs([RUNNING]):
        if ledger.random.random() < 0.7:
            with suppress(ServiceError):
                client.end_job(job.name, job_pb2.JOB_STATE_COMPLETED, job.attempt)


def _held_twice(store: Path) -> list[str]:
    """Hosts that the log gives to a gang while another still holds them."""
    log = open_store(f"sqlite:///{store}")
    events = [event for _, event in log.read()]
    log.close()
    holder: dict[str, str] = {}
    twice = []
    for event in events:
        match event:
            case JobStarted():
                taken = (*event.hosts, *event.spares)
                twice += [host for host in taken if host in holder]
                holder.update(dict.fromkeys(taken, event.name))
            case JobEnded() | JobRequeued():
                holder = {h: name for h, name in holder.items() if name != event.name}
            case GangSwapped():
                raise AssertionError("no host fails in this test")
    assert sum(isinstance(event, JobStarted) for event in events) > KILLS
    return twice
