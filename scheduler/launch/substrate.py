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
    """Keeps an agent on each host that is to have one. `secrets`: with which it makes join
    tokens."""

    secrets: tuple[str, ...]

    def address(self, wanted: str) -> str:
        """Where to serve agents; of any free port the one that they know already."""

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        """Start agents. `busy`: hosts on which something runs, should run, or is being left."""

    def starting(self) -> Set[str]:
        """Hosts whose agents are on their way, which may take minutes: not lost yet."""

    def is_dismissed(self, host: str) -> bool:
        """Whether no agent is to be there now: that its agent has gone is no loss of the host."""

    def container_refusal(self, container: ContainerSpec) -> str | None:
        """Why no host runs this container, "" where agents are started in it; None: that is for
        agents to say."""

    async def close(self) -> None:
        """The server ends."""


class AgentFolder:
    """Folder from which a server that starts again finds its agents:"""

    def __init__(self, path: Path, mode: int = 0o700) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        self._address = path / "address"

    def secret(self) -> str:
        """Return the own secret, which is made when it is first asked for."""
        path = self.path / "join-secret"
        if not path.exists():
            write_private(path, new_secret() + "\n")
        return path.read_text(encoding="ascii").strip()

    def address(self, wanted: str) -> str:
        """Return where to serve agents: of any free port the one that they know already."""
        if wanted.endswith(":0") and self._address.exists():
            return self._address.read_text(encoding="ascii").strip()
        return wanted

    def keep_address(self, address: str) -> None:
        write_private(self._address, address + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone may read."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
