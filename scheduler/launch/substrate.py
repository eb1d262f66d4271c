"""What brings agents up on hosts, where the server does that itself: `muster serve --launcher`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from pathlib import Path

from scheduler.access.tokens import new_secret
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.writer import Writer
from scheduler.launch.streams.sessions import AgentSessions


class Substrate(ABC):
    """Makes sure that each host that should have an agent has one: on this machine, on Slurm or on
    Kubernetes. `folder`: in which a server that starts again finds its agents. `secret`: of join
    tokens, "" for one of the folder. `secrets`: the keys of join tokens."""

    def __init__(self, folder: Path, secret: str = "", mode: int = 0o700) -> None:
        self._folder, self._address = folder, folder / "address"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        self.secrets: tuple[str, ...] = (secret or self._own_secret(),)

    def _own_secret(self) -> str:
        """Return the server's own secret, which is made at the first call."""
        path = self._folder / "join-secret"
        if not path.exists():
            write_private(path, new_secret() + "\n")
        return path.read_text(encoding="ascii").strip()

    def address(self, wanted: str) -> str:
        """Return the address at which to serve agents; where any free port is allowed, the port
        that they know already."""
        if wanted.endswith(":0") and self._address.exists():
            return self._address.read_text(encoding="ascii").strip()
        return wanted

    def _keep_address(self, address: str) -> None:
        write_private(self._address, address + "\n")

    @abstractmethod
    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        """Start agents. `busy`: hosts on which something runs, should run, or is being left."""

    def starting(self) -> Set[str]:
        """Return the hosts whose agents are on their way, which may take minutes, and are not lost
        yet."""
        return frozenset()

    def is_dismissed(self, host: str) -> bool:
        """Return whether a host is to have no agent now, so that it is not lost when its agent
        goes."""
        return False

    def container_refusal(self, container: ContainerSpec) -> str | None:
        """Return why no host runs this container, "" where agents are started in it; None where
        only the agents know."""
        return None

    @abstractmethod
    async def close(self) -> None:
        """Let go of the agents, for the server ends."""


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone may read."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
