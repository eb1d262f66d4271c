"""Commands beside ranks, and logs of ranks, on their way between a caller and an agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from scheduler.launch.streams.sessions import AgentSessions
from scheduler.service.backend import NoLog
from scheduler.v1 import agent_pb2

WINDOW = 16  # pieces that are sent ahead of what the agent has taken
_LOOK_S = 5.0
_MOST_REMEMBERED = 10_000  # jobs whose channels have ended

Data = agent_pb2.ChannelData


@dataclass(slots=True, eq=False)
class _Channel:
    """`uid`: of the job whose hosts it uses, "" of a log. `used_s`: when anything went through
    it."""

    host: str
    uid: str
    has_terminal: bool
    used_s: float
    outputs: asyncio.Queue[Data] = field(default_factory=lambda: asyncio.Queue(4 * WINDOW))
    window: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WINDOW))

    def end_if_failed(self, sending: asyncio.Task[None]) -> None:
        """End it where its caller sent what is no message, or may send nothing any more."""
        if not sending.cancelled() and (error := sending.exception()) is not None:
            with suppress(asyncio.QueueFull):  # then what it writes ends it
                self.outputs.put_nowait(Data(error=str(error)))


class AgentChannels:
    """Commands that run beside ranks, and logs that are read, on the side of the server. Runs on
    the event loop's thread."""

    def __init__(self, sessions: AgentSessions) -> None:
        self._sessions = sessions
        self._ids = count(1)
        self._open: dict[str, _Channel] = {}
        self._used_s: dict[str, float] = {}  # by uid of a job, of channels that have ended

    def on_data(self, host: str, data: Data) -> None:
        """Take data of a channel from the agent of `host`, if the channel leads there."""
        channel = self._open.get(data.channel_id)
        if channel is None or channel.host != host:
            return
        channel.used_s = time.monotonic()
        for _ in range(min(data.taken, WINDOW)):
            channel.window.release()
        if data.data or data.error or data.HasField("exit_code"):
            with suppress(asyncio.QueueFull):  # of an agent that does not count
                channel.outputs.put_nowait(data)

    def idle_s(self, uid: str) -> float | None:
        """Return for how many seconds no command has used the hosts of a job; None: none ever has.
        A command without a terminal uses them as long as it runs."""
        now_s = time.monotonic()
        open_now = [each for each in self._open.values() if each.uid == uid]
        if any(not each.has_terminal for each in open_now):
            return 0.0
        used_s = [each.used_s for each in open_now]
        used_s += [self._used_s[uid]] if uid in self._used_s else []
        return now_s - max(used_s) if used_s else None

    async def connect(
        self,
        host: str,
        wanted: agent_pb2.OpenChannel,
        inputs: AsyncIterator[Data] | None = None,
    ) -> AsyncGenerator[Data, None]:
        """Yield what the command writes, or the log says, and last how it ended. Raises: NoLog."""
        if host not in self._sessions.connected:
            raise NoLog(f"the agent of {host} is not there")
        uid = "" if wanted.HasField("log") else wanted.key.job_uid
        channel = _Channel(host, uid, wanted.rows > 0, time.monotonic())
        wanted.channel_id = str(next(self._ids))
        self._open[wanted.channel_id] = channel
        self._sessions.send(host, agent_pb2.SessionResponse(open_channel=wanted))
        sending = asyncio.create_task(self._send(wanted.channel_id, channel, inputs))
        sending.add_done_callback(channel.end_if_failed)
        try:
            while True:
                data = await self._next(channel)
                if data.error:
                    raise NoLog(data.error)
                yield data
                if data.HasField("exit_code"):
                    return
                self._tell(host, Data(channel_id=wanted.channel_id, taken=1))
        finally:
            sending.cancel()
            del self._open[wanted.channel_id]
            self._used_s.pop(uid, None)
            self._used_s[uid] = time.monotonic()
            if len(self._used_s) > _MOST_REMEMBERED:
                del self._used_s[next(iter(self._used_s))]  # the one that was used longest ago
            self._tell(host, Data(channel_id=wanted.channel_id, close=True))

    async def _next(self, channel: _Channel) -> Data:
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    return await channel.outputs.get()
            except TimeoutError:
                if channel.host not in self._sessions.connected:
                    raise NoLog(f"the agent of {channel.host} is not there any more") from None

    async def _send(
        self, channel_id: str, channel: _Channel, inputs: AsyncIterator[Data] | None
    ) -> None:
        """Pass on what the caller sends, no faster than it is taken."""
        if inputs is None:
            return
        async for data in inputs:
            channel.used_s = time.monotonic()
            if data.data or data.is_last:
                await channel.window.acquire()
            data.channel_id = channel_id
            self._tell(channel.host, data)

    def _tell(self, host: str, data: Data) -> None:
        self._sessions.send(host, agent_pb2.SessionResponse(channel_data=data))
