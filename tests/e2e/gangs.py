"""A server with agents on this machine, and real gangs, for tests and drills."""

import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from placement.workload.request import SpareRule
from scheduler.client import Client
from scheduler.core import JobSpec, State
from scheduler.core.fold.apply import apply
from scheduler.core.policies.job_terms import RunSpec
from scheduler.eventlog.store import open_store
from scheduler.files.fabrics import fabricyaml
from scheduler.v1 import job_pb2
from scripts.local_host import LocalHost
from simulator.collectors.invariants import InvariantChecker
from tests.build import fabric, fabric_spec, spec
from tests.e2e.processes import RunningServer
from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
TRAIN = str(ROOT / "examples" / "gang" / "train.py")
Value = TypeVar("Value")


class LocalServer(RunningServer):
    """`muster serve --launcher local` on a fabric of racks of hosts."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        zones: int = 1,
        racks: int = 2,
        hosts: int = 3,
        gpus: int = 2,
        lease_s: int = 3,
    ) -> None:
        own = ["--launcher", "local", "--fabric", "fabric.yaml", "--store", "sqlite:///m.db"]
        own += ["--listen", f"127.0.0.1:{free_port()}", "--agent-lease-s", str(lease_s)]
        super().__init__(folder, [*own, "--log-level", "info", *options])
        self.hosts = list(fabric(zones, racks, hosts, gpus=gpus).hosts)
        text = fabricyaml.dump(fabric_spec(zones, racks, hosts, gpus=gpus))
        (folder / "fabric.yaml").write_text(text)

    def host(self, name: str) -> LocalHost:
        return LocalHost(self.folder / "m.db.agents" / name)

    def agent(self, host: str) -> int:
        """The pid of its agent."""
        return self.host(host).agent

    def ranks(self, host: str) -> list[int]:
        """Pids of all that ranks run there."""
        return self.host(host).ranks()

    def logs(self) -> str:
        logs = [self.log, *self.folder.glob("m.db.agents/*/agent.log")]
        return "\n".join(path.read_text() for path in logs)


def two_zones(hosts: Sequence[str]) -> dict[str, Any]:
    """The content of a fabric file: two zones, each with half of these hosts of two GPUs."""
    half = len(hosts) // 2
    zones = [{"name": f"zone{z}", "hosts": list(hosts[z * half :][:half])} for z in (0, 1)]
    keys = {"name": "two-zones", "gpus_per_host": 2, "nic_gbps": 400, "domains": zones}
    return keys | {"tiers": [{"name": "zone", "oversubscription": 2}, {"name": "host"}]}


def allow_own_user(folder: Path) -> str:
    """Write that agents run ranks as the user of the tests, and return the path."""
    user, path = pwd.getpwuid(os.geteuid()).pw_name, folder / "allow.yaml"
    path.write_text(f"users: [{user}]\ndefault_user: {user}\nwithout_cgroups: true\n")
    return str(path)


def configured(folder: Path, keys: dict[str, Any]) -> list[str]:
    """Write a server file with a port of its own, and return the options that name it."""
    own = {"listen": f"127.0.0.1:{free_port()}", "log": {"level": "info"}}
    (folder / "muster.yaml").write_text(yaml.safe_dump(own | keys))
    return ["--config", str(folder / "muster.yaml")]


def on_nodes(
    folder: Path, nodes: Sequence[str], launcher: str, terms: dict[str, Any], lease_s: int
) -> list[str]:
    """Write the server file of nodes on which `launcher` starts agents by `terms`, and return the
    options that name it."""
    (folder / "fabric.yaml").write_text(yaml.safe_dump(two_zones(nodes)))
    keys = {"fabric": "fabric.yaml", "store": "sqlite:///m.db", "agents": {"lease_s": lease_s}}
    terms = {"allow": allow_own_user(folder)} | terms
    return configured(folder, keys | {"launcher": launcher, launcher: terms})


Local = tuple[LocalServer, Client]


@contextmanager
def local_server(folder: Path, *options: str, **sizes: int) -> Iterator[Local]:
    server = LocalServer(folder, *options, **sizes)
    server.start()
    try:
        with Client(server.address) as client:
            yield server, client
    finally:
        server.end()
    check_log(f"sqlite:///{folder / 'm.db'}")


def check_log(store: str) -> int:
    """Watch what a service and its agents wrote by the checker that watches every replay of the
    simulator; how many events it was. Raises: InvariantViolated."""
    checker, state = InvariantChecker(), State.empty()
    with closing(open_store(store)) as log:
        for _, event in log.read():
            state = apply(state, event)
            checker.feed(event, state)
    return state.version


def gang(
    name: str,
    folder: Path,
    hosts: int = 2,
    *,
    steps: int = 200,
    save_every: int = 10,
    **more: Any,
) -> JobSpec:
    """A job whose ranks sum vectors, and save so often and when they are asked to."""
    command = (sys.executable, TRAIN, "--steps", str(steps), "--save-every", str(save_every))
    command += ("--checkpoints", str(folder / "checkpoints" / name))
    run = RunSpec((*command, *more.pop("arguments", ())), (("PYTHONPATH", str(ROOT)),), "/tmp")
    made = spec(name, hosts, gpus=2, **{"spares": SpareRule(hosts=1), **more})
    return replace(made, run=run)


def until(
    client: Client, name: str, holds: Callable[[job_pb2.Job], bool], within_s: float = 30
) -> job_pb2.Job:
    """The job once `holds` is true of it."""
    until_s = time.monotonic() + PATIENCE * within_s
    while not holds(job := client.get_job(name)):
        assert time.monotonic() < until_s, job
        time.sleep(0.02)
    return job


def is_launched(attempt: int) -> Callable[[job_pb2.Job], bool]:
    return lambda job: job.attempt == attempt and job.HasField("launch_time")


def has_saved(job: job_pb2.Job) -> bool:
    """The log has at most one checkpoint a minute and job: ask of the first attempt alone."""
    return job.HasField("saved_checkpoint")


def begins_at(client: Client, name: str) -> int:
    """The step from which its last attempt goes on."""
    (line, *_) = b"".join(client.tail_logs(name, 1)).decode().splitlines()
    return int(line.partition(": from step ")[2].split()[0])
