"""A gang of several roles as real processes, which send each other bytes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.files.job import job_from_mapping
from scheduler.v1 import job_pb2
from scripts.local_host import send
from tests.build import job_to_mapping
from tests.e2e.gangs import ROOT, Local, is_launched, local_server, until
from tests.e2e.shell import answered

COMPLETED, RUNNING = job_pb2.JOB_STATE_COMPLETED, job_pb2.JOB_STATE_RUNNING

# A server keeps a number for each client; workers raise it; a trainer reads it until it is high
# enough. All are told by muster alone where the server is.
PROGRAM = """
import contextlib, os, socket, sys, time
role, rank = os.environ["MUSTER_ROLE"], int(os.environ["RANK"])
first, world = int(os.environ["MUSTER_FIRST_RANK"]), int(os.environ["WORLD_SIZE"])
places = dict(each.split("=") for each in os.environ["MUSTER_ROLES"].split(","))
print(role, "rank", rank, "of", world, "from", first, os.environ["KIND"], flush=True)
host, port = places["server"].rsplit(":", 1)
if role == "server":
    if rank:
        time.sleep(10**6)
    assert os.environ["MASTER_PORT"] == port
    total, listening = 0, socket.create_server((host, int(port)))
    while True:
        peer = listening.accept()[0]
        with peer, contextlib.suppress(OSError):  # of a worker that is stopped meanwhile
            total += int(peer.recv(16) or 0)
            peer.sendall(str(total).encode())
goal = int(sys.argv[1])
while True:
    try:
        with socket.create_connection((host, int(port)), 60) as peer:
            peer.sendall(b"1" if role == "worker" else b"0")
            total = int(peer.recv(16))
    except (OSError, ValueError):
        time.sleep(0.05)  # the server begins again
        continue
    if role == "trainer" and total >= goal and os.path.exists(sys.argv[2]):
        print("trainer: reached", goal, flush=True)
        sys.exit(0)
    time.sleep(0.02)
"""


def job(folder: Path, **changes: Any) -> JobSpec:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "20", str(folder / "enough")]
    role = {"parallelism": {"tp": 2}, "env": {"KIND": "one"}}
    mapping = {
        "name": "trio",
        "spares": 0,
        "roles": [
            {"name": "trainer", **role},
            {"name": "worker", **role, "parallelism": {"tp": 2, "dp": 2}, "sends": {"server": 10}},
            {"name": "server", **role, "restart": "role", "env": {"KIND": "another"}},
        ],
        "run": {"command": command, "workdir": "/tmp", "env": {"PYTHONPATH": str(ROOT)}},
    }
    for number, change in changes.items():
        mapping["roles"][int(number[1:])] |= change
    return job_from_mapping(mapping)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """Six hosts."""
    with local_server(tmp_path_factory.mktemp("shared"), lease_s=15) as made:
        yield made


def said(client: Client, rank: int) -> list[str]:
    """The lines of a rank; none while it has no log."""
    with suppress(ServiceError):
        return b"".join(client.tail_logs("trio", rank)).decode().splitlines()
    return []


def test_roles_reach_each_other_and_one_begins_again_alone(local: Local, tmp_path: Path) -> None:
    server, client = local
    client.create_job(job(tmp_path, r1={"restart": "role"}))
    begun = until(client, "trio", is_launched(1))
    hosts = list(begun.placement.hosts)
    until(client, "trio", lambda _: all(said(client, rank) for rank in range(8)))
    assert said(client, 0) == ["trainer rank 0 of 2 from 0 one"]
    assert said(client, 5) == ["worker rank 3 of 4 from 2 one"]
    assert said(client, 6) == ["server rank 0 of 2 from 6 another"]
    shown = answered("job", "trio", address=server.address).stdout
    assert f"server: ranks 6 to 7 on {hosts[3]}, begins again alone" in shown
    every = answered("logs", "trio", "--all-ranks", address=server.address).stdout
    assert every.count(" rank ") == 8
    before = {host: set(server.ranks(host)) for host in hosts}
    send(signal.SIGKILL, min(before[hosts[3]]))
    until(client, "trio", lambda _: len(said(client, 6)) > 1)  # in the same log
    now = client.get_job("trio")
    assert (now.attempt, now.state) == (1, RUNNING)
    assert dict(now.role_restarts) == {"server": 1}
    assert "role server began again, for rank 6" in now.reason
    shown = answered("job", "trio", address=server.address).stdout
    assert "begins again alone: 1 time in this attempt" in shown
    listed = answered("incidents", address=server.address).stdout
    assert "role restarted" in listed
    assert "role server began again" in listed
    for host in hosts[:3]:
        assert set(server.ranks(host)) == before[host]
    assert not before[hosts[3]] & set(server.ranks(hosts[3]))
    send(signal.SIGKILL, min(before[hosts[1]]))  # one of a role on two hosts
    until(client, "trio", lambda _: len(said(client, 2)) == len(said(client, 5)) == 2)
    assert set(server.ranks(hosts[0])) == before[hosts[0]]
    assert client.get_job("trio").attempt == 1
    send(signal.SIGKILL, min(before[hosts[0]]))  # of the role that takes all with it
    until(client, "trio", is_launched(2))
    (tmp_path / "enough").touch()
    done = until(client, "trio", lambda job: job.state == COMPLETED)
    assert done.attempt == 2
    assert said(client, 0)[-1] == "trainer: reached 20"
    until(client, "trio", lambda _: not any(map(server.ranks, server.hosts)))


def resize_one_role(
    client: Client, folder: Path, ranks: Callable[[str], Iterable[int]], most: int
) -> None:
    """Have the workers of a gang grow to `most` hosts and shrink to one while the others run on.
    `ranks`: the processes of ranks on a host."""
    spec = job(folder, r1={"parallelism": {"tp": 2}, "restart": "role"})
    mapping = job_to_mapping(spec)
    trainer, worker, keeper = mapping["roles"]
    client.create_job(job_from_mapping({**mapping, "roles": [trainer, keeper, worker]}))
    hosts = list(until(client, "trio", is_launched(1), 60).placement.hosts)
    until(client, "trio", lambda _: all(said(client, rank) for rank in range(6)), 60)
    before = [set(ranks(host)) for host in hosts[:2]]
    client.resize_job("trio", most, "worker")
    last, end = 4 + 2 * most, f"of {2 * most} from 4 one"
    now = until(client, "trio", lambda _: all(said(client, rank) for rank in range(6, last)), 60)
    assert (now.attempt, now.state) == (1, RUNNING)
    assert f"worker: dp 1 to {most} by request" in now.reason
    assert list(now.placement.hosts)[:3] == hosts
    assert said(client, last - 1) == [f"worker rank {2 * most - 1} {end}"]
    until(client, "trio", lambda _: said(client, 4)[-1] == f"worker rank 0 {end}", 60)
    assert [set(ranks(host)) for host in hosts[:2]] == before  # nobody else has noticed
    more = list(now.placement.hosts)[3:]
    shown = answered("resize", "trio", "--role", "worker=1", address=client.address).stdout
    assert f"role worker: dp {most} to 1 by request" in shown
    until(client, "trio", lambda _: said(client, 4)[-1] == "worker rank 0 of 2 from 4 one", 60)
    until(client, "trio", lambda _: not any(map(ranks, more)), 60)
    assert [set(ranks(host)) for host in hosts[:2]] == before
    (folder / "enough").touch()
    assert until(client, "trio", lambda job: job.state == COMPLETED, 60).attempt == 1


def test_one_role_resizes_while_the_others_run_on(local: Local, tmp_path: Path) -> None:
    server, client = local
    resize_one_role(client, tmp_path, server.ranks, 3)
