"""Commands that callers run beside the ranks of their jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from scheduler.core.model.commands import OpenChannel
from scheduler.core.model.lifecycle import JobState
from scheduler.identity import caller
from scheduler.service.backend import Backend, Context, NoLog
from scheduler.service.errors import invalid, wrong_state
from scheduler.service.names import job_of
from scheduler.service.rpc.jobs.logs import place_of
from scheduler.v1 import agent_pb2, service_pb2

_MOST_REMEMBERED = 10_000


class ChannelServicer:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ports: dict[tuple[object, ...], None] = {}  # that the log has, by caller

    async def OpenChannel(
        self, requests: AsyncIterator[service_pb2.OpenChannelRequest], context: Context
    ) -> AsyncIterator[service_pb2.OpenChannelResponse]:
        first = await anext(requests, None)
        if first is None:
            raise invalid("name", "is required")
        host, wanted = await self._admitted(first)
        agents = self._backend.agents
        assert agents is not None
        inputs = (_data(request) async for request in requests)
        try:
            async with aclosing(agents.channels.connect(host, wanted, inputs)) as pieces:
                async for piece in pieces:
                    yield service_pb2.OpenChannelResponse(
                        data=piece.data,
                        is_error=piece.is_error,
                        exit_code=piece.exit_code if piece.HasField("exit_code") else None,
                    )
        except NoLog as error:
            raise wrong_state(str(error)) from None

    async def _admitted(
        self, request: service_pb2.OpenChannelRequest
    ) -> tuple[str, agent_pb2.OpenChannel]:
        """The host, and what its agent is asked for, once the log has it. Raises: ApiError."""
        writer = self._backend.writer
        writer.check_leading()  # agents talk to the leader alone
        job = job_of(writer.state, request.name, request.uid)
        if self._backend.agents is None or job.spec.run is None:
            raise wrong_state(f"no agent runs job {job.name}")
        if job.state is not JobState.RUNNING:
            raise wrong_state(f"job {job.name} is {job.state}, not running")
        ranks = job.ranks.world_size
        if not 0 <= request.rank < ranks:
            raise invalid("rank", f"must be 0 to {ranks - 1}, not {request.rank}")
        host, rank = place_of(job, writer.state.loaded_fabric, request.rank)
        command = OpenChannel(
            job.name, job.uid, job.attempt, rank, host, tuple(request.command), request.port
        )
        # A browser opens many connections to one port: the log has the first of them.
        known = (caller().name, job.uid, job.attempt, rank, request.port)
        await self._backend.run(command, only_checked=known in self._ports)
        if request.port:
            self._ports[known] = None
            if len(self._ports) > _MOST_REMEMBERED:
                del self._ports[next(iter(self._ports))]
        return host, agent_pb2.OpenChannel(
            key=agent_pb2.AttemptKey(job_uid=job.uid, attempt=job.attempt),
            rank=rank,
            command=request.command,
            port=request.port,
            rows=max(0, request.rows),
            columns=max(0, request.columns),
        )


def _data(request: service_pb2.OpenChannelRequest) -> agent_pb2.ChannelData:
    return agent_pb2.ChannelData(
        data=request.data,
        is_last=request.is_last,
        rows=max(0, request.rows),
        columns=max(0, request.columns),
    )
