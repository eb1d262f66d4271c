"""Looks for hosts that slow gangs, by what ranks say of their steps, and reports them.

As `muster stragglers JOB --report` would every few minutes: the health policy says what follows. A
look goes by steps that no look before it saw, so that three reports are three findings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from scheduler.core import Job
from scheduler.core.model.commands import ReportHost
from scheduler.core.model.lifecycle import JobState
from scheduler.core.policies.health_signals import STRAGGLER
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import StoreError
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.observe.step_times import of_stages
from scheduler.observe.stragglers import MeasuredGang, Suspect, stragglers, worth_a_report

LEAST_STEPS = 4  # new ones, for a look
MOST_STEPS = 32  # the newest; more cost time and change little

StepTimes = Callable[[str, int], Mapping[int, Sequence[float]]]

log = logging.getLogger("muster.launch")


class SlowHosts:
    """Looks for hosts that slow gangs, and reports them. `step_times`: of an attempt, by job uid
    and number. `every_s`: between looks."""

    def __init__(self, writer: Writer, step_times: StepTimes, every_s: float) -> None:
        self._writer = writer
        self._step_times = step_times
        self._every_s = every_s
        self._seen: dict[tuple[str, int], int] = {}  # the newest step of the last look, by attempt

    async def run(self) -> None:
        """Look whenever the writer leads, until cancelled."""
        act_for(Caller(SERVER, Role.ADMIN))
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except (NotLeading, WriterStopped, StoreError) as error:
                log.info("cannot report slow hosts: %s", error)

    async def look(self) -> None:
        """Report the hosts that slow gangs. Raises: NotLeading, WriterStopped, StoreError."""
        if self._writer.term is None:
            return
        jobs = [job for job in self._writer.state.in_state(JobState.RUNNING) if job.spec.run]
        self._seen = {
            attempt: step
            for job in jobs
            if (step := self._seen.get(attempt := (job.uid, job.attempt))) is not None
        }
        for job in jobs:
            for suspect in await self._suspects(job):
                report = ReportHost(
                    suspect.name, STRAGGLER, suspect.detail(job.name), gpu=suspect.gpu
                )
                log.info("%s is a straggler: %s", suspect.name, report.detail)
                await self._writer.submit(report)

    async def _suspects(self, job: Job) -> list[Suspect]:
        attempt = (job.uid, job.attempt)
        times, after = self._step_times(*attempt), self._seen.get(attempt, -1)
        steps = sorted(step for step in times if step > after)[-MOST_STEPS:]
        if len(steps) < LEAST_STEPS:
            return []
        self._seen[attempt] = steps[-1]
        of_ranks = [(step, tuple(times[step])) for step in steps]  # agents go on saying more
        hosts = self._writer.state.loaded_fabric.names(job.hosts)
        worlds = [(r.name, r.request.parallelism) for r in job.request.roles] or [("", job.ranks)]
        gang = MeasuredGang(hosts, job.ranks.world_size // len(hosts), {}, job.present.gpus)

        def suspects() -> list[Suspect]:
            return stragglers(gang, of_stages(worlds, of_ranks))

        return worth_a_report(await asyncio.to_thread(suspects))
