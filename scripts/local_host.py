"""A host of `muster serve --launcher local`, to break it: what runs there, killed or frozen."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from scheduler.agent.ranks.supervisor import begun


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
        """Pids of ranks, and of what they have started. Those that a warm process forked show its
        environment: the agent's own record has them."""
        mark = f"MUSTER_RUN_DIR={self.folder}/".encode()
        marked = [pid for pid, environment in environments() if mark in environment]
        records = [json.loads(text) for text in self._records("started")]
        recorded = _alive(pair for record in records for pair in record.values())
        return list(dict.fromkeys([*marked, *recorded]))

    def supervisors(self) -> list[int]:
        """Pids of the parents of its ranks."""
        return _alive(tuple(map(int, text.split())) for text in self._records("supervisor"))

    def _records(self, name: str) -> Iterator[str]:
        """Yield the file that the agent has written of each attempt."""
        for path in self.folder.glob(f"attempts/*/{name}"):
            with suppress(OSError):
                yield path.read_text()

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


def _alive(processes: Iterable[Sequence[int]]) -> list[int]:
    """Pids of those that still run, of (pid, when it began)."""
    return [pid for pid, since in processes if begun(pid) == since != 0]


def send(number: int, *pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def environments() -> Iterator[tuple[int, bytes]]:
    """(pid, environment) of all processes that may be read."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                yield int(entry), Path("/proc", entry, "environ").read_bytes()


def parent(pid: int) -> int:
    """0: it has ended."""
    with suppress(OSError):
        return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command_line(pid: int) -> bytes:
    """Its words, each with a zero behind it."""
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""
