"""What brings agents up on hosts, where the server does that itself: `muster serve --launcher`."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from pathlib import Path

from scheduler.access.tokens import new_secret
from scheduler.core import Rejected
from scheduler.core.model.commands import Command
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.files.health.found import NodeState
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.node_reports import report_of
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.observe.supervision import Heartbeats, Tasks

_LOOK_S = 0.1
_AGAIN_S = 2.0  # after a call that failed

log = logging.getLogger("muster.launch")


class SubstrateFailed(Exception):
    """Slurm, Kubernetes or this machine refused to start agents, or did not answer; the text says
    why."""


class Substrate(ABC):
    """Makes sure that each host that should have an agent has one: on this machine, on Slurm or on
    Kubernetes. `folder`: in which a server that starts again finds its agents. `secret`: of join
    tokens, "" for one of the folder. `secrets`: the keys of join tokens."""

    name: str  # of its task
    _writer: Writer
    _sessions: AgentSessions

    def __init__(
        self, folder: Path, secret: str = "", mode: int = 0o700, beats: Heartbeats | None = None
    ) -> None:
        self._folder, self._address = folder, folder / "address"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        self.secrets: tuple[str, ...] = (secret or self._own_secret(),)
        self._beats = beats or Heartbeats()
        self._tasks = Tasks(self._beats)
        self._busy: Callable[[], Set[str]] = frozenset
        self._said: dict[str, str] = {}

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

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        """Start agents. `busy`: hosts on which something runs, should run, or is being left."""
        self._writer, self._sessions, self._busy = writer, sessions, busy
        self._keep_address(sessions.address)
        self._tasks.keep(self.name, self._keep)

    async def _keep(self) -> None:
        """Look again and again while the writer leads."""
        act_for(Caller(SERVER, Role.ADMIN))
        while True:
            if self._writer.term is None:
                self._forget()
            else:
                try:
                    await self._look()
                    self._said.pop("", None)
                except SubstrateFailed as error:
                    self._say("", str(error))
                    await asyncio.sleep(_AGAIN_S)
            await self._pause()

    @abstractmethod
    async def _look(self) -> None:
        """Compare what there is with what should be, and ask for the difference. Raises:
        SubstrateFailed."""

    def _forget(self) -> None:
        """Forget what is known, while another server leads."""
        self._said.clear()

    async def _pause(self) -> None:
        await asyncio.sleep(_LOOK_S)

    def _say(self, about: str, text: str) -> None:
        """Log a text, once until it is another one."""
        if self._said.get(about) != text:
            log.warning("%s", text)
        self._said[about] = text

    async def _report_nodes(
        self, source: str, standings: Iterable[tuple[str, NodeState | None, str]]
    ) -> None:
        """Tell the log in which state hosts are in `source`, with the reason; None: not known."""
        state = self._writer.state
        for host, standing, detail in standings:
            now = state.host(state.loaded_fabric.index_by_name[host])
            if (command := report_of(source, host, standing, detail, now)) is not None:
                await self._submit(command)

    async def _submit(self, command: Command) -> None:
        with suppress(NotLeading, WriterStopped, StoreError, NotWritten):
            answer = await self._writer.submit(command)
            if isinstance(answer, Rejected):
                log.info("a report of the launcher was refused: %s", answer.message)

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

    async def close(self) -> None:
        """Stop, for the server ends. Where gangs run on, so do the agents, for the next server."""
        await self._tasks.close()


def write_private(path: Path, text: str) -> None:
    """Write a file that this user alone may read."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")
