"""What brings agents up on hosts, where the server does that itself: `muster serve --launcher`."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from scheduler.engine.writer import Writer
from scheduler.launch.sessions import AgentSessions


class Substrate(Protocol):
    """Keeps an agent on each host that is to have one. `secrets`: with which it makes join
    tokens."""

    secrets: tuple[str, ...]

    def address(self, wanted: str) -> str:
        """Where to serve agents; of any free port the one that they know already."""

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        """Begin. `busy`: hosts on which something runs, should run, or is being left."""

    def starting(self) -> Set[str]:
        """Hosts whose agents are on their way, which may take minutes: not lost yet."""

    def is_dismissed(self, host: str) -> bool:
        """Whether no agent is to be there now: that its agent has gone is no loss of the host."""

    async def close(self) -> None:
        """The server ends."""
