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
from scheduler.core.policies.health_signals import AGENT_AWAITED, AGENT_LOST, WITHOUT_AGENT
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.launch.gangs.gang import LaunchedGang, RankFailure
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

    def launched(self, gang: LaunchedGang) -> None:
        """Report that all ranks have started."""
        self._report(gang, launch.launched)

    def hung(self, gang: LaunchedGang, text: str) -> None:
        """Report that steps have stopped coming; with "", that they come again."""
        self._report(gang, launch.hung, text)

    def saved(
        self, gang: LaunchedGang, step: int, where: str, then: Callable[[], None] | None
    ) -> None:
        """Report a complete checkpoint; `then` is called once the log has it."""
        self._report(gang, launch.checkpoint_saved, step, where, then=then)

    def copied(self, gang: LaunchedGang, step: int) -> None:
        """All copies of a step are in memory."""
        self._report(gang, launch.copies_renewed, step)

    def launch_failed(self, gang: LaunchedGang, host: str, *, is_final: bool) -> None:
        """Report that a host cannot start its ranks. `is_final`: no other host could either."""
        check = partial(launch.launch_failed, is_final=is_final)
        self._report(gang, check, host, gang.refusals[host])

    def rank_failed(self, gang: LaunchedGang, first: RankFailure) -> None:
        """Report that a rank ended with an error, before any other did."""
        check = partial(launch.rank_failed, cause=first.cause, code=first.code, step=gang.step)
        self._report(gang, check, first.rank, first.host, first.reason)

    def role_restarted(self, gang: LaunchedGang, role: str, first: RankFailure) -> None:
        """Report that a role begins again alone, because of this failure."""
        check = partial(launch.role_restarted, cause=first.cause, code=first.code)
        self._report(gang, check, role, first.rank, first.host, first.reason)

    def _report(
        self,
        gang: LaunchedGang,
        check: Callable[..., launch.Answer],
        *facts: Any,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Write what a check of `launch` makes of facts about the gang's present attempt."""
        key = (gang.name, gang.uid, gang.attempt)
        self.carry_out(lambda state, now_ns: check(state, *key, *facts, now_ns), then)

    def completed(self, gang: LaunchedGang, reason: str = "") -> None:
        """Report that all ranks have ended well, or that nobody uses them any more."""
        self.submit(EndJob(gang.name, JobState.COMPLETED, gang.attempt, reason, uid=gang.uid))

    def host_lost(self, host: str, detail: str) -> None:
        """Report that the agent of a host is gone."""
        self.submit(ReportHost(host, AGENT_LOST, detail))

    def agent_awaited(self, host: str) -> None:
        """Report that a host's agent has not come in yet."""
        self.submit(ReportHost(host, AGENT_AWAITED, "no agent has come in yet"))

    def host_unfit(self, host: str, detail: str) -> None:
        """Report that a host has failed the site's check before ranks start."""
        self.submit(ReportHost(host, "gate-failed", detail))

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
