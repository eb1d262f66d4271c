"""Logs of ranks on their way from an agent to a caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from scheduler.core import Job
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.service.backend import NoLog, RankLog
from scheduler.v1 import agent_pb2

_DEPTH = 256  # chunks that wait for a caller
_FIRST_S = 10.0  # for which an agent may take to answer
_STILL_THERE_S = 5.0


class LogTails:
    """Passes pieces of logs from agents to callers. Runs on the event loop's thread."""

    def __init__(self, sessions: AgentSessions) -> None:
        self._sessions = sessions
        self._ids = count(1)
        self._open: dict[str, tuple[str, asyncio.Queue[agent_pb2.LogChunk]]] = {}

    def on_chunk(self, host: str, chunk: agent_pb2.LogChunk) -> None:
        """Pass on a piece of log that the agent of `host` sent, if it was asked for. A caller that
        does not read is cut off."""
        source, queue = self._open.get(chunk.request_id, ("", None))
        if queue is None or source != host:
            return
        if queue.full():
            del self._open[chunk.request_id]
            queue.get_nowait()
            chunk = agent_pb2.LogChunk(is_last=True, error="the log is written faster than read")
        queue.put_nowait(chunk)

    async def tail(
        self, job: Job, host: str, wanted: RankLog, lines: int, *, follow: bool
    ) -> AsyncIterator[bytes]:
        """Yield what a rank has written in an attempt. Raises: NoLog."""
        if host not in self._sessions.connected:
            whose = f"the log of rank {wanted.rank}"
            raise NoLog(f"the agent of {host}, which has {whose}, is not there")
        request_id = str(next(self._ids))
        queue: asyncio.Queue[agent_pb2.LogChunk] = asyncio.Queue(_DEPTH)
        self._open[request_id] = host, queue
        key = agent_pb2.AttemptKey(job_uid=job.uid, attempt=wanted.attempt)
        word = agent_pb2.TailLogs(
            request_id=request_id,
            key=key,
            rank=wanted.rank,
            lines=lines,
            follow=follow,
            stacks=wanted.stacks,
        )
        self._sessions.send(host, agent_pb2.SessionResponse(tail_logs=word))
        try:
            async for data in self._pieces(host, queue):
                yield data
        finally:
            self._open.pop(request_id, None)
            end = agent_pb2.TailLogs(request_id=request_id, cancel=True)
            self._sessions.send(host, agent_pb2.SessionResponse(tail_logs=end))

    async def _pieces(
        self, host: str, queue: asyncio.Queue[agent_pb2.LogChunk]
    ) -> AsyncIterator[bytes]:
        timeout_s = _FIRST_S
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    chunk = await queue.get()
            except TimeoutError:
                if timeout_s == _FIRST_S or host not in self._sessions.connected:
                    raise NoLog(f"the agent of {host} does not answer") from None
                continue
            timeout_s = _STILL_THERE_S
            if chunk.data:
                yield chunk.data
            if chunk.error:
                raise NoLog(chunk.error)
            if chunk.is_last:
                return
