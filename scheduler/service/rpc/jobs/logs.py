"""What ranks have written and how long they computed, of the hosts that run them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from placement.fabric.tree import Fabric
from placement.workload.roles import ranks_of_roles
from scheduler.core import Job
from scheduler.core.model.lifecycle import LIVE
from scheduler.engine.authorisation import Act, refused
from scheduler.eventlog.attempts import attempt_hosts
from scheduler.identity import caller
from scheduler.service.backend import Context, NoLog, Servicer
from scheduler.service.errors import invalid, rejected, wrong_state
from scheduler.service.names import any_job_of
from scheduler.v1 import agent_pb2, service_pb2

_LOOK_S: Final = 0.25  # between two looks at a job that is not running
_RETRY_S: Final = 1.0  # after an agent was not there


class LogServicer(Servicer):
    async def TailLogs(
        self, request: service_pb2.TailLogsRequest, context: Context
    ) -> AsyncIterator[service_pb2.TailLogsResponse]:
        writer = self._backend.writer
        writer.check_leading()  # agents talk to the leader alone
        job = await any_job_of(writer, request.name, request.uid)
        if refusal := refused(writer.state.tenants, caller(), job, Act.READ_LOGS):
            raise rejected(refusal)
        if self._backend.agents is None:
            raise wrong_state("this server has no agents, so it has no logs")
        if job.spec.run is None:
            raise wrong_state(f"no agent runs job {job.name}: its file has no `run`")
        if not 0 <= request.rank < job.ranks.world_size:
            most = job.ranks.world_size - 1
            raise invalid("rank", f"must be 0 to {most}, not {request.rank}")
        if request.lines < 0:
            raise invalid("lines", "must not be negative")
        if not 0 <= request.attempt <= job.attempt:
            raise invalid("attempt", f"must be 0 to {job.attempt}, not {request.attempt}")
        is_present = request.attempt in (0, job.attempt) and not request.stacks
        of = self._pieces if is_present else self._of_attempt
        async with aclosing(of(job, request)) as pieces:
            async for data in pieces:
                yield service_pb2.TailLogsResponse(data=data)

    async def ListStepTimes(
        self, request: service_pb2.ListStepTimesRequest, context: Context
    ) -> service_pb2.ListStepTimesResponse:
        writer, agents = self._backend.writer, self._backend.agents
        writer.check_leading()
        job = await any_job_of(writer, request.name)
        if agents is None or job.spec.run is None:
            raise wrong_state(f"no agent runs job {job.name}: nobody says how long ranks compute")
        response = service_pb2.ListStepTimesResponse(attempt=job.attempt)
        for step, seconds in sorted(agents.step_times(job.uid, job.attempt).items()):
            response.steps.add(step=step, seconds=seconds)
        return response

    async def _pieces(
        self, job: Job, request: service_pb2.TailLogsRequest
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of the log of the present attempt, or the last one; with `follow` of those after
        it too."""
        lines, done = request.lines, 0
        while True:
            if job.attempt == done or not job.hosts:
                if not request.follow or job.state not in LIVE:
                    if not done:
                        raise wrong_state(f"job {job.name} has not run yet")
                    return
                await asyncio.sleep(_LOOK_S)
                job = self._now(job)
                continue
            try:
                fabric = self._backend.writer.state.loaded_fabric
                host, rank = place_of(job, fabric, request.rank)
                wanted = agent_pb2.ReadLog(lines=lines, follow=request.follow)
                async for data in self._read(job, host, rank, job.attempt, wanted):
                    yield data
                done, lines = job.attempt, 0
            except NoLog as error:
                if not request.follow or job.state not in LIVE:
                    raise wrong_state(str(error)) from None
                await asyncio.sleep(_RETRY_S)
            job = self._now(job)

    async def _of_attempt(
        self, job: Job, request: service_pb2.TailLogsRequest
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of the log of one attempt, or of stacks, to its end."""
        writer, attempt = self._backend.writer, request.attempt or job.attempt
        hosts = job.host_names(writer.state.loaded_fabric).hosts
        if attempt != job.attempt:
            hosts = await asyncio.to_thread(attempt_hosts, writer.store, job, attempt)
        if not hosts:
            raise wrong_state(f"the log does not say any more which hosts attempt {attempt} had")
        fabric = writer.state.loaded_fabric
        place, rank = place_of(job, fabric, request.rank)
        gpus = fabric.gpus_per_host
        host = hosts[min(request.rank // gpus, len(hosts) - 1)] if attempt != job.attempt else place
        follow = request.follow and not request.stacks
        wanted = agent_pb2.ReadLog(lines=request.lines, follow=follow, stacks=request.stacks)
        try:
            async for data in self._read(job, host, rank, attempt, wanted):
                yield data
        except NoLog as error:
            text = f"no stacks were taken: {error}" if request.stacks else str(error)
            raise wrong_state(text) from None

    async def _read(
        self, job: Job, host: str, rank: int, attempt: int, log: agent_pb2.ReadLog
    ) -> AsyncGenerator[bytes, None]:
        """Yield what the agent of a host reads of a rank's log in an attempt. Raises: NoLog."""
        assert self._backend.agents is not None
        key = agent_pb2.AttemptKey(job_uid=job.uid, attempt=attempt)
        wanted = agent_pb2.OpenChannel(key=key, rank=rank, log=log)
        async with aclosing(self._backend.agents.channels.connect(host, wanted)) as pieces:
            async for piece in pieces:
                if piece.data:  # else it is the end
                    yield piece.data

    def _now(self, job: Job) -> Job:
        return self._backend.writer.state.find(job.name, job.uid) or job


def place_of(job: Job, fabric: Fabric, rank: int) -> tuple[str, int]:
    """Return the host of a rank, and the rank by which its process is known there."""
    ranks = job.ranks_per_host(fabric.gpus_per_host)
    block = min(rank // ranks, len(job.hosts) - 1)
    run = job.spec.run
    is_shared = run is not None and run.per_host == 1
    if run is not None and run.roles:
        each = zip(run.roles, ranks_of_roles(job.request), strict=True)
        is_shared |= any(role.per_host == 1 and rank in ranks for role, ranks in each)
    return job.host_names(fabric).hosts[block], block * ranks if is_shared else rank
