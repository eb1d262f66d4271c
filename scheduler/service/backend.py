"""What every servicer stands on: the writer, once the log is replayed, and its commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import grpc

from scheduler.core import Conflict, Rejected, State, admit, replay
from scheduler.core.model.commands import Command
from scheduler.core.model.events import Event
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.authorisation import unauthorised
from scheduler.engine.proposal import Answer
from scheduler.engine.writer import Writer
from scheduler.identity import caller
from scheduler.service.bulk_reads import BulkReads
from scheduler.service.errors import conflict, rejected, starting
from scheduler.service.forecasts import ForecastCache
from scheduler.service.questions import Questions
from scheduler.v1 import agent_pb2
from scheduler.wire.jobs import StepProgress

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ChannelSource(Protocol):
    """Runs commands beside ranks, and reads their logs."""

    def connect(
        self,
        host: str,
        wanted: agent_pb2.OpenChannel,
        inputs: AsyncIterator[agent_pb2.ChannelData] | None = None,
    ) -> AsyncGenerator[agent_pb2.ChannelData, None]:
        """Stream the output of a command, or a log, and last how it ended. Raises: NoLog."""


class RankAgents(Protocol):
    """The agents that run ranks, and what these say."""

    @property
    def channels(self) -> ChannelSource: ...

    def step_times(self, uid: str, attempt: int) -> Mapping[int, Sequence[float]]:
        """Return how long each rank of an attempt computed, by step."""

    def progress(self, uid: str, attempt: int) -> tuple[StepProgress, float] | None:
        """Return how far an attempt is, and how many seconds ago it said so."""

    def container_refusal(self, container: ContainerSpec) -> str:
        """Return why no host can run this container, "" where one may."""

    def host_reading(self, host: str) -> HostReading | None:
        """Return what the agent of a host has read of its health last, None where it has not."""


class NoLog(Exception):
    """There is no such log, or nobody to ask for it or for a command; the text says why."""


class HostReading(NamedTuple):
    """Health of a host as its agent read it, in words, and when that was."""

    time_ns: int
    text: str


class Backend:
    """Parts that the servicers of one server share. `questions`: where they compute for long;
    `reads`: where they make long answers. `has_agents`: whether jobs with a command can be run;
    `agents`: by whom, once they are served."""

    def __init__(self, questions: Questions | None = None, *, has_agents: bool = False) -> None:
        self.questions = questions or Questions()
        self.reads = BulkReads()
        self.forecasts = ForecastCache()
        self.has_agents = has_agents
        self.agents: RankAgents | None = None
        self._writer: Writer | None = None

    def attach(self, writer: Writer) -> None:
        """Answer calls from here on; before, they end UNAVAILABLE."""
        self._writer = writer
        writer.add_mirror(self.questions.mirror)

    @property
    def state(self) -> State | None:
        """The newest durable state; None before `attach`."""
        return self._writer.state if self._writer else None

    def leader(self) -> str:
        """Return the address of another server that leads, "" where none is known to."""
        return "" if self._writer is None or self._writer.is_leading else self._writer.leader

    @property
    def writer(self) -> Writer:
        """The writer. Raises: ApiError before `attach`."""
        if self._writer is None:
            raise starting("the server is starting: it is replaying its log")
        return self._writer

    async def run(self, command: Command, prefix: str = "", *, only_checked: bool = False) -> State:
        """Carry out `command`, or only check it, and return the state after it.

        `prefix`: where the command's fields lie in the request. Raises: ApiError.
        """
        writer = self.writer
        answer = _after(writer, command) if only_checked else await writer.submit(command)
        if isinstance(answer, Rejected):
            raise rejected(answer, prefix)
        return answer

    async def carry_out(
        self, check: Callable[[State, int], Answer], *, only_checked: bool = False
    ) -> tuple[Event, ...]:
        """Make the events durable that `check` returns on the newest state, or only return them.
        Raises: ApiError."""
        writer = self.writer
        if only_checked:
            answer = check(writer.state, writer.now_ns())
        else:
            answer = await writer.carry_out(check)
        if isinstance(answer, Conflict):
            raise conflict(str(answer))
        if isinstance(answer, Rejected):
            raise rejected(answer)
        return answer


class Servicer:
    """Answers the calls of one subject. What a method raises ends its call by the interceptors'
    error boundary, as errors.py says."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


def _after(writer: Writer, command: Command) -> State | Rejected:
    """The state that `command` would leave."""
    state = writer.state
    if refusal := unauthorised(state, command, caller()):
        return refusal
    answer = admit(state, command, writer.now_ns())
    return answer if isinstance(answer, Rejected) else replay(answer, state)
