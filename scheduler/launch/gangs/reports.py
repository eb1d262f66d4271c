"""What the log is told of gangs and hosts: reports that are checked on the newest state, and
commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from scheduler.core import Rejected, State
from scheduler.core.admission import launch
from scheduler.core.model.commands import EndJob, MoveHost, ReportHost, RequeueJob
from scheduler.core.model.lifecycle import HostState, JobState
from scheduler.core.model.state import Host
from scheduler.core.policies.health_signals import AGENT_LOST, WITHOUT_AGENT
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.launch.gangs.gang import LaunchedGang
from scheduler.observe.supervision import Tasks

AGENT_BACK, AGENT_REACHED = "agent-back", "agent-reached"
_AGAIN_S = 0.5  # after the store could not be written

log = logging.getLogger("muster.launch")


def lacks_agent(host: Host) -> bool:
    """Return whether a host is out only because its agent is away, so that it comes back with
    it."""
    return host.state is HostState.FAILED and host.signal in WITHOUT_AGENT


class LaunchReports:
    """Reports of the launcher to the log. Each is written as soon as the store can be written,
    unless its attempt is over by then."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._tasks = Tasks(writer.instruments.beats)

    def report(
        self,
        gang: LaunchedGang,
        check: Callable[..., launch.Answer],
        *facts: Any,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write what a check of `launch` makes of facts about the gang's present attempt; then call
        `then`."""
        key = (gang.name, gang.uid, gang.attempt)
        self.carry_out(lambda state, now_ns: check(state, *key, *facts, now_ns), then)

    def completed(self, gang: LaunchedGang, reason: str = "") -> None:
        """Report that all ranks have ended well, or that nobody uses them any more."""
        self.submit(EndJob(gang.name, JobState.COMPLETED, gang.attempt, reason, uid=gang.uid))

    def host_lost(self, host: str, detail: str) -> None:
        """Report that the agent of a host is gone."""
        self.submit(ReportHost(host, AGENT_LOST, detail))

    def submit(self, command: EndJob | MoveHost | ReportHost | RequeueJob) -> None:
        """Submit a command to the writer."""
        self._tasks.start(self.write(command))

    async def write(self, command: EndJob | MoveHost | ReportHost | RequeueJob) -> None:
        """Have a command written, or refused."""
        await self._written(partial(self._writer.submit, command))

    def carry_out(
        self,
        check: Callable[[State, int], launch.Answer],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write the events that `check` returns for the newest state and the time; then call
        `then`."""
        self._tasks.start(self._written(partial(self._writer.carry_out, check), then))

    async def _written(
        self, write: Callable[[], Coroutine[Any, Any, Any]], then: Callable[[], None] | None = None
    ) -> None:
        while True:
            try:
                answer = await write()
            except NotWritten:
                await asyncio.sleep(_AGAIN_S)
                continue
            except (NotLeading, WriterStopped, StoreError):
                break  # the next leader finds it out by itself
            if isinstance(answer, Rejected):
                log.info("not written: %s", answer.message)
            break
        if then is not None:
            then()
