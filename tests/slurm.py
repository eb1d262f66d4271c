"""A Slurm cluster on this machine: one slurmctld, and a slurmd for each of a few nodes.

Needs Debian's slurmctld, slurmd, slurm-client and munge, and root to start munged; skipped where
they are not. A node's death is that of its slurmd, its step daemons and all that they run.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lab.slurm import missing_slurm, slurm_conf
from scripts.local_host import LocalHost, environments, parent, send
from tests.ports import free_port
from tests.waiting import PATIENCE

needs_slurm = pytest.mark.skipif(bool(missing_slurm()), reason=missing_slurm() or "Slurm is here")


class SlurmCluster:
    """Nodes n1 to nN, in two zones."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, count + 1)]
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        rows = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()}"
            " Gres=gpu:2"
            for node in self.nodes
        ]
        munge = str(folder / "munge" / "socket")
        self.conf.write_text(slurm_conf(folder, "localhost", free_port(), munge, rows))
        gpus = [f"Name=gpu File={device}" for device in ("/dev/null", "/dev/zero")]
        (folder / "gres.conf").write_text("\n".join(gpus) + "\n")
        half = count // 2
        zones = [self.nodes[:half], self.nodes[half:]]
        switches = [f"SwitchName=zone{z} Nodes={','.join(zones[z])}" for z in (0, 1)]
        switches.append("SwitchName=core Switches=zone[0-1]")
        (folder / "topology.conf").write_text("\n".join(switches) + "\n")

    def start(self) -> None:
        """Until all nodes are idle."""
        self._start_munge()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        until_s = time.monotonic() + PATIENCE * 30
        while self.call("sinfo", "-h", "-o", "%T") != "idle\n":
            assert time.monotonic() < until_s, self.call("sinfo")
            time.sleep(0.1)

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_bytes(os.urandom(128))
        words = [
            "munged",
            "--force",
            f"--key-file={folder / 'key'}",
            f"--socket={folder / 'socket'}",
        ]
        words += [f"--{name}-file={folder / name}" for name in ("pid", "log", "seed")]
        subprocess.run(words, check=True, capture_output=True)

    def start_controller(self) -> None:
        self._daemon("slurmctld", "-f", str(self.conf))

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self._daemon("slurmd", "-f", str(self.conf), "-N", node)

    def _daemon(self, *words: str) -> None:
        with (self.folder / "daemons.log").open("ab") as out:
            nothing = subprocess.DEVNULL
            subprocess.run(words, env=self.env, stdin=nothing, stdout=out, stderr=out, check=True)

    def stop_controller(self) -> None:
        pid = self._pid("slurmctld.pid")
        send(signal.SIGKILL, pid)
        while _is_there(pid):
            time.sleep(0.02)

    def kill_node(self, node: str) -> None:
        """As if it had lost its power."""
        send(signal.SIGKILL, self._pid(f"slurmd.{node}.pid"), *self._stepds(node))
        send(signal.SIGKILL, *self._stepds(node), *self.processes(node))

    def processes(self, node: str) -> list[int]:
        """All that steps and agents have started there."""
        marks = (f"SLURMD_NODENAME={node}\0".encode(), f"/agents/{node}/".encode())
        own = f"{self.folder}/".encode()  # another cluster has nodes of the same names
        marked = [
            pid for pid, env in environments() if own in env and any(mark in env for mark in marks)
        ]
        return marked + LocalHost(self.folder / "agents" / node).supervisors()

    def ranks(self, node: str) -> list[int]:
        mark = f"MUSTER_RUN_DIR={self.folder}/agents/{node}/".encode()
        return [pid for pid, env in environments() if mark in env]

    def _stepds(self, node: str) -> list[int]:
        """Step daemons: parents of the node's processes that are called so."""
        parents = {parent(pid) for pid in self.processes(node)}
        return [pid for pid in parents if _name(pid).startswith("slurmstepd")]

    def call(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def jobs(self) -> list[str]:
        return self.call("squeue", "-h", "-o", "%j %T %N").splitlines()

    def steps(self) -> list[tuple[str, str]]:
        """Name and nodes of those that run, without those of whole allocations."""
        rows = self.call("squeue", "-h", "-s", "-o", "%j %N").splitlines()
        pairs = [tuple(row.split(" ", 1)) for row in rows]
        return [(name, nodes) for name, nodes in pairs if name not in ("extern", "interactive")]

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.call("scancel", "-u", "root")
            time.sleep(0.5)
        for node in self.nodes:
            self.kill_node(node)
        for name in ("slurmctld.pid", "munge/pid"):
            send(signal.SIGKILL, self._pid(name))
        mark = f"SLURM_CONF={self.conf}".encode()  # srun waits for steps that nobody ends
        send(signal.SIGKILL, *(pid for pid, env in environments() if mark in env))

    def _pid(self, name: str) -> int:
        with suppress(OSError, ValueError):
            return int((self.folder / name).read_text())
        return 2**22 + 1  # nobody


def _is_there(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path("/proc", str(pid), "comm").read_text()
    return ""


@contextmanager
def slurm_cluster(folder: Path, count: int) -> Iterator[SlurmCluster]:
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SlurmCluster(folder, count)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
