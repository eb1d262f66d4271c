"""A running lab: made, found again by its folder, changed and taken down.

The folder holds `lab.json` (which process keeps the lab, and the faults), the store and the logs of
servers, and a folder for each agent. A lab is one keeper; whatever runs in it runs through
`nsenter`, in the namespaces of the keeper and the network of one host.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from lab.faults import Fault, nft_table, rate_lines
from lab.plan import LabPlan, commands_of
from muster.structs import replace, struct
from scheduler.files.errors import InputError, Problem

PORT, AGENT_PORT = 7443, 7444
# The keeper goes when all in its namespace are reaped, each by its parent, which may be out here.
DOWN_S = 20.0
READY_S = 300.0  # a first server after an installation compiles for a minute on a busy machine
LEFT_OVER = ("agents", "*.log", "*.yaml", "muster.db*", "postgres", "slurm", "step.json", "tls")
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "nsenter": "util-linux"}


def refuse(message: str, field: str = "lab") -> InputError:
    """Make the error for what a user can mend."""
    return InputError(Problem(field, message))


def missing_programs() -> str:
    """Name the programs that this machine lacks for a lab, in a sentence; empty if none."""
    if sys.platform != "linux":
        return "a lab needs Linux: it is made of network namespaces"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if not absent:
        return ""
    packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
    return f"a lab needs {', '.join(absent)}: apt-get install {packages}"


@struct(frozen=True, slots=True)
class Lab:
    """A running lab: networks, servers and agents on this machine. `keeper`: its process number;
    `born`: when it started, in ticks, so that another process of the same number is not taken for
    it. `servers`: HOST:PORT by commas, "" without. `slurm`: the path of its slurm.conf, "" without.
    `groups`: folders with a cgroup for each host."""

    folder: Path
    plan: LabPlan
    keeper: int
    born: int
    servers: str = ""
    slurm: str = ""
    groups: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def is_running(self) -> bool:
        return _born(self.keeper) == self.born

    def command(self, name: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` on a host; of "" in the keeper's own network."""
        network, within = f"/proc/{self.keeper}/ns/net", list[str]()
        if name:
            space = self.plan.node(name).namespace
            if self.groups and space[0] == "h":
                joined = "".join(f"echo 0 > {group}/cgroup.procs;" for group in self.own(space))
                within = ["sh", "-c", f'{joined} exec "$@"', "sh"]
            network = f"/proc/{self.keeper}/root/run/netns/{space}"
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        spaces = ["--mount", "--pid", f"--net={network}", f"--wd={os.getcwd()}"]
        return ["nsenter", f"--target={self.keeper}", *user, *spaces, "--", *within, *argv]

    def own(self, namespace: str) -> list[str]:
        """Return the cgroups of a host."""
        return [f"{base}/{namespace}" for base in self.groups]

    @property
    def ca(self) -> str:
        """The CA certificate of its servers; "" where they have none."""
        return str(self.folder / "tls" / "ca.pem") if self.slurm else ""

    def environment(self) -> dict[str, str]:
        """Return the environment of commands in the lab, by which they find its servers."""
        found = {"MUSTER_ADDRESS": self.servers, "SLURM_CONF": self.slurm}
        found["MUSTER_CA"] = self.ca if self.servers else ""  # else it is that of no server
        return {**os.environ, **{name: value for name, value in found.items() if value}}

    def run(self, name: str, argv: Sequence[str], text: str = "") -> str:
        """Run a command on a host and return its output. Raises: OSError with its complaint."""
        done = subprocess.run(
            self.command(name, argv), input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(f"{argv[0]}: {' '.join(done.stderr.split())[-500:]}")
        return done.stdout

    def start(self, name: str, argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program on a host that lasts as long as the lab."""
        with log.open("ab") as out:
            return subprocess.Popen(
                self.command(name, argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=self.environment(),
            )

    def begin(self, name: str, argv: Sequence[str], is_ready: Callable[[], bool]) -> None:
        """Start a program and wait until it is ready; the lab ends when it is not within
        READY_S.

        Raises: InputError.
        """
        log = self.folder / f"{name}.log"
        process = self.start(name, argv, log)
        until_s = time.monotonic() + READY_S
        while not is_ready():
            if process.poll() is not None or time.monotonic() > until_s:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                self.down()
                raise refuse(f"{name} does not start: {' '.join(last)} ({log})")
            time.sleep(0.05)
        leave_running(process)

    def changed(self, **fields: Any) -> Lab:
        """Return the lab with these fields changed, and write it to its file."""
        return _written(replace(self, **fields))

    def with_faults(self, faults: Sequence[Fault]) -> Lab:
        """Set the faults of the lab, and write them to its file."""
        self.run("", ["nft", "-f", "-"], nft_table(self.plan, faults))
        slow = {fault.name for fault in (*self.faults, *faults) if fault.bits_per_s}
        for name in sorted(slow):
            node, up, down = rate_lines(self.plan, name, faults)
            where = ["-n", node] if node else []
            self.run("", ["tc", *where, "-batch", "-"], "\n".join(up) + "\n")
            self.run("", ["tc", "-batch", "-"], "\n".join(down) + "\n")
        return self.changed(faults=tuple(faults))

    def down(self) -> None:
        """End all that runs in the lab; its networks go with the last process."""
        if self.is_running:
            os.kill(self.keeper, signal.SIGKILL)
            until_s = time.monotonic() + DOWN_S
            while self.is_running and time.monotonic() < until_s:
                time.sleep(0.01)
        for base in map(Path, self.groups):
            inside = sorted(path for path in base.rglob("*") if path.is_dir())
            for group in (*reversed(inside), base):
                with suppress(FileNotFoundError):
                    _remove_group(group)
        (self.folder / "lab.json").unlink(missing_ok=True)


def up(
    folder: Path, plan: LabPlan, show: Callable[[int, int], None] = lambda done, total: None
) -> Lab:
    """Make the network of a lab. `show` is called with how many namespaces of how many are ready.

    Raises: InputError where this machine cannot, or the folder has a lab that runs.
    """
    if lacking := missing_programs():
        raise refuse(lacking)
    if (old := find(folder)) is not None:
        if old.is_running:
            raise refuse(f"{folder} has a lab that runs: muster lab down", "folder")
        old.down()
    _clear(folder)
    commands = commands_of(plan)
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as told, process.stdout as words:
        told.write(json.dumps([asdict(each) for each in commands]))
        told.close()
        lab: Lab | None = None
        for line in words:
            word = json.loads(line)
            if "pid" in word:
                # Written down first, so that `down` finds it whatever happens next.
                lab = _written(Lab(folder, plan, word["pid"], _born(word["pid"])))
            elif "error" in word:
                if lab is not None:
                    lab.down()
                raise refuse(_reason(word["error"]))
            elif "done" in word:
                show(word["done"], len(commands) - 1)
            elif "ready" in word:
                break
    process.wait()
    if lab is None or not lab.is_running:
        raise refuse("the process that keeps the lab has ended at once")
    return lab


def _clear(folder: Path) -> None:
    """Make the folder, or empty it of the lab before. Raises: InputError when it is another's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise refuse(f"{folder} belongs to somebody else", "folder")
    for name in LEFT_OVER:
        for path in folder.glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_group(group: Path) -> None:
    """Wait for the last process in a cgroup to be gone."""
    until_s = time.monotonic() + READY_S
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def _reason(error: str) -> str:
    if "not permitted" not in error and "denied" not in error.lower():
        return f"this machine does not make the network: {error}"
    way = "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    if os.geteuid() == 0:
        way = "root needs the capability sys_admin for it; a container, --privileged"
    return f"this machine does not let user {os.geteuid()} make namespaces ({error}): {way}"


def leave_running(process: subprocess.Popen[bytes]) -> None:
    """Let a process run on that outlives this command and ends with the lab."""
    process.returncode = 0


def write_allow_file(lab: Lab) -> Path:
    """Write which users ranks may run as, and return the path."""
    allow = lab.folder / "allow.yaml"
    allow.write_text("users: [root]\ndefault_user: root\nwithout_cgroups: true\n", encoding="ascii")
    allow.chmod(0o600)
    return allow


def find(folder: Path) -> Lab | None:
    """Return the lab of a folder, running or not. Raises: InputError on a file that describes no
    lab."""
    path = folder / "lab.json"
    try:
        text = path.read_bytes()
        return msgspec.json.decode(text, type=Lab, dec_hook=lambda kind, value: kind(value))
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise InputError(Problem("", f"is not the file of a lab: {error}", str(path))) from None


def running(folder: Path) -> Lab:
    """Return the running lab of a folder. Raises: InputError when none runs there."""
    lab = find(folder)
    if lab is None or not lab.is_running:
        raise refuse(f"no lab runs in {folder}: muster lab up FABRIC", "folder")
    return lab


def _written(lab: Lab) -> Lab:
    path, new = lab.folder / "lab.json", lab.folder / "lab.json.new"
    new.write_bytes(msgspec.json.encode(lab, enc_hook=str))
    new.replace(path)
    return lab


def _born(pid: int) -> int:
    """When a process started, in ticks since boot; -1 for none, or one that has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    return -1
