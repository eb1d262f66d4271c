"""Hosts for the launch drill, and how they break: processes of this machine, nodes of a Slurm, or
pods on a Kubernetes API server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from lab.slurm import missing_slurm
from scheduler.access.tokens import join_token
from scheduler.agent.program import AgentOptions
from scripts.local_host import LocalHost, command_line, parent, send
from tests import kubernetes
from tests.build import fabric, fabric_spec
from tests.e2e.gangs import allow_own_user, two_zones
from tests.e2e.processes import MUSTER
from tests.kubernetes import KubernetesCluster, RefusedCall, ToyKubelet
from tests.slurm import SlurmCluster

ROOT = Path(__file__).parents[1]
GPUS = 2  # of a host
NODES = 10  # of a Slurm or Kubernetes cluster
Undo = Callable[[], None]


class DrillHosts(ABC):
    """Hosts with agents that a drill breaks. `agents`: the folder below which each host has its
    own. `names`: hosts with an agent."""

    def __init__(self, folder: Path, fabric: dict[str, Any], names: Sequence[str]) -> None:
        self.agents = folder / "agents"
        self.fabric, self.names = fabric, names
        self.env: dict[str, str] | None = None
        self._down_until_s: dict[str, float] = {}
        self.allow = allow_own_user(folder)

    @abstractmethod
    def start(self, servers: str, secret: str) -> None:
        """Bring the hosts up. `servers`: where agents find them, HOST:PORT,...; `secret`: of join
        tokens."""

    def keys(self, servers: str) -> dict[str, Any]:
        """Return the keys that servers need in muster.yaml."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """End all that runs."""

    def look(self) -> None:
        """Bring up what has been down for long enough; it is called often."""
        now_s = time.monotonic()
        for name, until_s in list(self._down_until_s.items()):
            if now_s >= until_s:
                del self._down_until_s[name]
                self._up(name)

    def is_down(self, name: str) -> bool:
        return name in self._down_until_s

    @abstractmethod
    def ranks(self, name: str) -> list[int]:
        """Return the pids of ranks."""

    @abstractmethod
    def supervisors(self, name: str) -> list[int]:
        """Return the pids of the parents of ranks."""

    @abstractmethod
    def kill_agent(self, name: str, down_s: float) -> bool:
        """Kill the agent of a host, and return whether there was one. It comes back by itself, or
        after `down_s` where the drill restarts it."""

    def kill(self, name: str, down_s: float) -> None:
        """Kill a host as a power failure would; it is back after `down_s`."""
        self._down_until_s[name] = time.monotonic() + down_s
        self._kill(name)

    @abstractmethod
    def _kill(self, name: str) -> None: ...

    @abstractmethod
    def _up(self, name: str) -> None: ...

    @abstractmethod
    def freeze(self, name: str) -> Undo:
        """Freeze a host with all its processes."""

    def drain(self, name: str) -> Undo | None:
        """Drain a host in the cluster manager, where there is one beside muster."""
        return None

    def stop_controller(self) -> Undo | None:
        """Kill the controller of the cluster manager, where there is one beside muster."""
        return None

    def find_leftovers(self) -> list[str]:
        """Return what remains of gangs that have all ended; it must be nothing."""
        return [f"ranks {pids} run on {name}" for name in self.names if (pids := self.ranks(name))]


# --- processes of this machine --------------------------------------------------------------------


class ProcessHosts(DrillHosts):
    """Hosts that are processes; an agent that ends is started again."""

    def __init__(self, folder: Path, gangs: int) -> None:
        racks = -(-gangs * 3 // 12) + 1
        every = fabric(1, racks, 12, gpus=GPUS).hosts
        super().__init__(folder, fabric_spec(1, racks, 12, gpus=GPUS), every[: gangs * 3])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._options: dict[str, str] = {}

    def start(self, servers: str, secret: str) -> None:
        for name in self.names:
            host = self._host(name)
            host.folder.mkdir(parents=True)
            token = host.folder / "join-token"
            token.write_text(join_token(secret, name))
            options = AgentOptions(
                servers, name, str(host.folder), "127.0.0.1", self.allow, str(token)
            )
            self._options[name] = msgspec.json.encode(options).decode()

    def _host(self, name: str) -> LocalHost:
        return LocalHost(self.agents / name)

    def look(self) -> None:
        super().look()
        for name in self.names:
            process = self._processes.get(name)
            if (process is None or process.poll() is not None) and not self.is_down(name):
                self._up(name)

    def _up(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.poll() is None:
            return
        folder = self._host(name).folder
        with (folder / "agent.log").open("ab") as log:
            self._processes[name] = process = subprocess.Popen(
                [sys.executable, "-m", "scheduler.agent.program", self._options[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        (folder / "agent.pid").write_text(str(process.pid))

    def close(self) -> None:
        for name, process in self._processes.items():
            send(signal.SIGCONT, process.pid)
            self._kill(name)
            process.wait(20)

    def ranks(self, name: str) -> list[int]:
        return self._host(name).ranks()

    def supervisors(self, name: str) -> list[int]:
        return self._host(name).supervisors()

    def kill_agent(self, name: str, down_s: float) -> bool:
        self._down_until_s[name] = time.monotonic() + down_s
        send(signal.SIGKILL, self._host(name).agent)
        return True

    def _kill(self, name: str) -> None:
        self._host(name).kill()

    def freeze(self, name: str) -> Undo:
        pids = self._host(name).freeze()
        return lambda: send(signal.SIGCONT, *pids)


# --- nodes of a Slurm -----------------------------------------------------------------------------


class SlurmHosts(DrillHosts):
    """Ten nodes of a real Slurm. `holding`: how muster allocates them."""

    def __init__(self, folder: Path, holding: str) -> None:
        (folder / "slurm").mkdir()
        self._slurm = SlurmCluster(folder / "slurm", NODES)
        super().__init__(folder, two_zones(self._slurm.nodes), self._slurm.nodes)
        self._holding = holding
        self.agents = self._slurm.folder / "agents"
        self.env = self._slurm.env

    def start(self, servers: str, secret: str) -> None:
        self._slurm.start()

    def keys(self, servers: str) -> dict[str, Any]:
        slurm = {"holding": self._holding, "allow": self.allow, "muster": MUSTER}
        slurm |= {"state": str(self.agents / "%h"), "server": servers}
        return {"launcher": "slurm", "slurm": slurm}

    def close(self) -> None:
        self._slurm.close()

    def ranks(self, name: str) -> list[int]:
        return self._slurm.ranks(name)

    def supervisors(self, name: str) -> list[int]:
        return LocalHost(self.agents / name).supervisors()

    def kill_agent(self, name: str, down_s: float) -> bool:
        mark = b"\0agent\0--server\0"
        pids = [pid for pid in self._slurm.processes(name) if mark in command_line(pid)]
        send(signal.SIGKILL, *pids)
        return bool(pids)

    def _kill(self, name: str) -> None:
        self._slurm.kill_node(name)

    def _up(self, name: str) -> None:
        self._slurm.start_node(name)

    def freeze(self, name: str) -> Undo:
        pids = self._slurm.processes(name)
        send(signal.SIGSTOP, *pids)
        return lambda: send(signal.SIGCONT, *pids)

    def drain(self, name: str) -> Undo:
        self._update(name, "state=drain", "reason=drill")
        return lambda: self._update(name, "state=resume")

    def _update(self, name: str, *words: str) -> None:
        for _ in range(20):  # slurmctld may be dead, or just come up
            with suppress(subprocess.CalledProcessError):
                self._slurm.call("scontrol", "update", f"nodename={name}", *words)
                return
            time.sleep(0.5)

    def stop_controller(self) -> Undo:
        self._slurm.stop_controller()
        return self._slurm.start_controller

    def find_leftovers(self) -> list[str]:
        rows = self._slurm.jobs() if self._holding == "gang" else []
        held = [row for row in rows if "COMPLETING" not in row]  # Slurm waits for a dead node
        return super().find_leftovers() + [f"the allocation {row} is held" for row in held]


# --- pods on an API server ------------------------------------------------------------------------


class KubernetesHosts(DrillHosts):
    """Ten nodes of a real API server, with a toy kubelet. `holding`: which hosts have pods."""

    def __init__(self, folder: Path, holding: str) -> None:
        names = [f"n{n}" for n in range(1, NODES + 1)]
        super().__init__(folder, two_zones(names), names)
        self._holding = holding
        self._cluster = KubernetesCluster(folder / "kubernetes")
        self._kubelet = ToyKubelet(self._cluster, self.agents)

    def start(self, servers: str, secret: str) -> None:
        self._cluster.start()
        for name in self.names:
            self._cluster.add_node(name)
        self._kubelet.start()

    def keys(self, servers: str) -> dict[str, Any]:
        pods: dict[str, Any] = {"kubeconfig": str(self._cluster.kubeconfig), "image": "train"}
        pods |= {"holding": self._holding, "allow": self.allow, "grace_s": 20}
        return {"launcher": "kubernetes", "kubernetes": pods | {"server": servers}}

    def close(self) -> None:
        self._kubelet.close()
        self._cluster.close()

    def ranks(self, name: str) -> list[int]:
        return self._kubelet.ranks(name)

    def supervisors(self, name: str) -> list[int]:
        ranks = self.ranks(name)
        return sorted({parent(pid) for pid in ranks} - {*ranks, 0, self._kubelet.agent(name)})

    def kill_agent(self, name: str, down_s: float) -> bool:
        """Kill the agent of a host, which is the first process of its pod, so that all of the pod
        ends with it."""
        first = self._kubelet.agent(name)
        if first:
            send(signal.SIGKILL, first)
        return first != 0

    def _kill(self, name: str) -> None:
        self._kubelet.kill_node(name)

    def _up(self, name: str) -> None:
        self._kubelet.start_node(name)

    def freeze(self, name: str) -> Undo:
        pids = self._kubelet.freeze(name)
        return lambda: self._kubelet.thaw(name, pids)

    def drain(self, name: str) -> Undo:
        self._cordon(name, on=True)
        return lambda: self._cordon(name, on=False)

    def _cordon(self, name: str, *, on: bool) -> None:
        with suppress(RefusedCall, urllib3.exceptions.HTTPError):  # it may be dead
            self._cluster.cordon(name, on=on)

    def stop_controller(self) -> Undo:
        self._cluster.stop_apiserver()
        return self._cluster.start_apiserver

    def find_leftovers(self) -> list[str]:
        pods = sorted(self._cluster.api.pods()) if self._holding == "gang" else []
        return super().find_leftovers() + [f"the pod {name} is there" for name in pods]


def rank_of(process: Path, agents: Path) -> tuple[str, str, int] | None:
    """Return (host, job uid, attempt) of a process of a rank; None where it is none, or has
    ended."""
    try:
        text = (process / "environ").read_bytes()
    except OSError:
        return None
    _, found, rest = text.partition(f"MUSTER_RUN_DIR={agents}/".encode())
    if not found:
        return None
    host, *_, folder, _ = rest.split(b"\0")[0].decode().split("/")
    uid, _, attempt = folder.rpartition(".")
    return host, uid, int(attempt)


KINDS = ("processes", "slurm", "kubernetes")


def missing_for(kind: str) -> str:
    """Say why these hosts cannot be had here; "" where they can."""
    return {"slurm": missing_slurm, "kubernetes": kubernetes.missing}.get(kind, str)()


def hosts_of(kind: str, folder: Path, gangs: int, holding: str) -> DrillHosts:
    match kind:
        case "slurm":
            return SlurmHosts(folder, holding)
        case "kubernetes":
            return KubernetesHosts(folder, holding)
        case _:
            return ProcessHosts(folder, gangs)
