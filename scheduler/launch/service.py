"""Agents as one part of a server: their gateway, the launcher, and what brings agents up."""

from __future__ import annotations

import logging
from collections.abc import Callable

from muster.structs import replace
from scheduler.engine.writer import Writer
from scheduler.launch.gangs.slow_hosts import SlowHosts
from scheduler.launch.launcher import AgentLauncher, AgentSettings
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.observe.supervision import Heartbeats, Tasks

log = logging.getLogger("muster.launch")


class LaunchService:
    """Serves agents from `start` until `close`."""

    def __init__(self, settings: AgentSettings, beats: Heartbeats) -> None:
        self._settings = settings
        self._substrate = settings.substrate(beats) if settings.substrate is not None else None
        options = settings.gateway
        if self._substrate is not None:
            listen = self._substrate.address(options.listen)
            options = replace(options, listen=listen, join_secrets=self._substrate.secrets)
        self._sessions = AgentSessions(options, beats)
        self._tasks = Tasks(beats)

    async def listen(self) -> str:
        """Listen for agents, and return where; none is served yet. Raises: CannotServeAgents."""
        return await self._sessions.start()

    def start(
        self, writer: Writer, offer_lead: Callable[[str], None] = lambda _: None
    ) -> AgentLauncher:
        """Serve agents whenever the writer leads. `offer_lead`: has another server lead."""
        if unknown := self._settings.site.unknown_labels(writer.state.loaded_fabric):
            log.warning("agents.env_by_label: no host has the label %s", ", ".join(unknown))
        launcher = AgentLauncher(
            writer,
            self._sessions,
            self._settings,
            substrate=self._substrate,
            offer_lead=offer_lead,
        )
        self._tasks.keep("launcher", launcher.run)
        if every_s := self._settings.stragglers_s:
            slow_hosts = SlowHosts(writer, launcher.step_times, every_s)
            self._tasks.keep("stragglers", slow_hosts.run)
        if self._substrate is not None:
            self._substrate.start(writer, self._sessions, launcher.busy_hosts)
        return launcher

    async def close(self) -> None:
        await self._tasks.close()
        if self._substrate is not None:
            await self._substrate.close()
        await self._sessions.close()
