"""What brings agents up on hosts, where the server does that itself: `muster serve --launcher`."""

from __future__ import annotations

from collections.abc import Callable, Set
from pathlib import Path
from typing import Protocol

from scheduler.access.tokens import new_secret
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.writer import Writer
from scheduler.launch.streams.sessions import AgentSessions


class Substrate(Protocol):
    """Makes sure that each host that should have an agent has one: on this machine, on Slurm or on
    Kubernetes. `secrets`: the keys of join tokens."""

    secrets: tuple[str, ...]

    def address(self, wanted: str) -> str:
        """Return the address at which to serve agents; where any free port is allowed, the port
        that they know already."""

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        """Start agents. `busy`: hosts on which something runs, should run, or is being left."""

    def starting(self) -> Set[str]:
        """Return the hosts whose agents are on their way, which may take minutes, and are not lost
        yet."""

    def is_dismissed(self, host: str) -> bool:
        """Return whether a host is to have no agent now, so that it is not lost when its agent
        goes."""

    def container_refusal(self, container: ContainerSpec) -> str | None:
        """Return why no host runs this container, "" where agents are started in it; None where
        only the agents know."""

    async def close(self) -> None:
        """Let go of the agents, for the server ends."""


class AgentFolder:
    """Folder in which a server that starts again finds its agents."""

    def __init__(self, path: Path, mode: int = 0o700) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        self._address = path / "address"

    def secret(self) -> str:
        """Return the server's own secret, which is made at the first call."""
        path = self.path / "join-secret"
        if not path.exists():
            write_private(path, new_secret() + "\n")
        return path.read_text(encoding="ascii").strip()

    def address(self, wanted: str) -> str:
        """Return the address at which to serve agents; where any free port is allowed, the port
        that they know already."""
        if wanted.endswith(":0") and self._address.exists():
            return self._address.read_text(encoding="ascii").strip()
        return wanted

    def keep_address(self, address: str) -> None:
        write_private(self._address, address + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone may read."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
