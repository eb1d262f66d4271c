"""A host of `muster serve --launcher local`, to break it: what runs there, killed or frozen."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class LocalHost:
    """`folder`: of the host, below the folder of all agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @property
    def agent(self) -> int:
        """The pid of its agent."""
        return int((self.folder / "agent.pid").read_text())

    def ranks(self) -> list[int]:
        """Pids of ranks, and of what they have started."""
        mark = f"MUSTER_RUN_DIR={self.folder}/".encode()
        return [pid for pid, environment in environments() if mark in environment]

    def supervisors(self) -> list[int]:
        """Pids of the parents of its ranks."""
        mark = f"supervisor.py\0{self.folder}/".encode()
        return [pid for pid, words in commands() if mark in words]

    def kill(self) -> None:
        """As a power failure would: the agent, supervisors and ranks."""
        send(signal.SIGKILL, self.agent, *self.supervisors(), *self.ranks())

    @contextmanager
    def dead(self) -> Iterator[None]:
        """Killed, and not started again before the block ends."""
        with (self.folder / "lock").open("w") as lock:
            self.kill()
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def freeze(self) -> list[int]:
        """Stop everything there; the pids, to be sent SIGCONT."""
        pids = [self.agent, *self.supervisors(), *self.ranks()]
        send(signal.SIGSTOP, *pids)
        return pids


def send(number: int, *pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def environments() -> Iterator[tuple[int, bytes]]:
    """(pid, environment) of all processes that may be read."""
    return _files("environ")


def commands() -> Iterator[tuple[int, bytes]]:
    """(pid, command line) of all processes."""
    return _files("cmdline")


def _files(name: str) -> Iterator[tuple[int, bytes]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                yield int(entry), Path("/proc", entry, name).read_bytes()
