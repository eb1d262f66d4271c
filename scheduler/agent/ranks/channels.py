"""Commands that users run beside the ranks of an attempt, ports that they connect to, and logs that
they read.

Each command is a process of its own (supervisor.run_beside), which becomes the user of the job, is
among the processes of the attempt, and ends everything that it has started when it ends. It is
ended with the attempt, with the stream to the server, and with the agent, in whose session it is,
for the agent ends children of any other session as strays. A log is read to its end.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from scheduler.agent.ranks import ranklog
from scheduler.agent.ranks.attempt import SUPERVISOR, Key
from scheduler.v1 import agent_pb2

CHUNK = 32 << 10
WINDOW = 16  # pieces that are sent ahead of what the other side has taken
MOST_COMMANDS = 64  # of one host
_MOST_WAITING = 4 * WINDOW  # pieces of a server that does not count

Data = agent_pb2.ChannelData


class Channels:
    """Runs commands beside ranks, passes on their input and output, and sends logs. `say`: sends
    messages to the server."""

    def __init__(self, host: str, say: Callable[[agent_pb2.SessionRequest], None]) -> None:
        self._host, self._say = host, say
        self._open: dict[str, _Channel] = {}

    def run_command(self, wanted: agent_pb2.OpenChannel, key: Key, folder: Path) -> None:
        """Run a command beside the ranks of the attempt in `folder`."""
        if sum(channel.key is not None for channel in self._open.values()) >= MOST_COMMANDS:
            self.refuse(wanted.channel_id, f"{MOST_COMMANDS} commands run beside ranks there")
            return
        channel = _Channel(wanted, self._say, key)
        self._begin(channel, channel.run_command(folder))

    def send_log(
        self, wanted: agent_pb2.OpenChannel, folder: Path, is_over: Callable[[], bool]
    ) -> None:
        """Send the log of a rank of the attempt in `folder`, or its stacks, until it `is_over`."""
        path = ranklog.log_path(folder, wanted.rank)
        path = path.with_suffix(".stacks") if wanted.log.stacks else path
        if not path.exists():
            reason = f"{self._host} has no log of rank {wanted.rank} in this attempt"
            self.refuse(wanted.channel_id, reason)
            return
        channel = _Channel(wanted, self._say)
        self._begin(channel, channel.send_log(path, is_over))

    def _begin(self, channel: _Channel, work: Coroutine[Any, Any, int]) -> None:
        self._open[channel.id] = channel
        channel.task = asyncio.create_task(channel.carry_out(work))
        channel.task.add_done_callback(lambda _: self._open.pop(channel.id, None))

    def refuse(self, channel_id: str, reason: str) -> None:
        """Tell the server why a command is not run, or a log not sent."""
        self._say(_word(Data(channel_id=channel_id, error=reason)))

    def hear(self, data: Data) -> None:
        """Pass input on to a command, or end the channel."""
        channel = self._open.get(data.channel_id)
        if channel is not None and data.close:
            channel.task.cancel()
        elif channel is not None:
            channel.hear(data)

    def close(self, key: Key | None = None) -> None:
        """End the commands beside the ranks of an attempt; None: all channels."""
        for channel in self._open.values():
            if key in (None, channel.key):
                channel.task.cancel()


class _Channel:
    """One command, or one log. `key`: of the attempt with which it ends, None of a log."""

    task: asyncio.Task[None]

    def __init__(
        self,
        wanted: agent_pb2.OpenChannel,
        say: Callable[[agent_pb2.SessionRequest], None],
        key: Key | None = None,
    ) -> None:
        self.id, self.key = wanted.channel_id, key
        self._wanted = wanted
        self._say = say
        self._terminal = -1
        self._window = asyncio.Semaphore(WINDOW)
        self._inputs: asyncio.Queue[Data] = asyncio.Queue(_MOST_WAITING)

    def hear(self, data: Data) -> None:
        for _ in range(min(data.taken, WINDOW)):
            self._window.release()
        if data.rows and self._terminal >= 0:
            _resize(self._terminal, data.rows, data.columns)
        if data.data or data.is_last:
            with suppress(asyncio.QueueFull):
                self._inputs.put_nowait(data)

    def _tell(self, **fields: object) -> None:
        self._say(_word(Data(channel_id=self.id, **fields)))  # type: ignore[arg-type]

    async def carry_out(self, work: Coroutine[Any, Any, int]) -> None:
        """Tell how it has ended: with an exit code, or why it has none."""
        try:
            code = await work
        except OSError as error:
            self._tell(error=f"it cannot be run or read: {error}")
        except asyncio.CancelledError:
            self._tell(error="it was ended with its attempt, or by whoever ran it")
            raise
        except Exception as error:  # its caller hears of it; nobody else looks at the task
            self._tell(error=f"the agent failed: {error!r}")
        else:
            self._tell(exit_code=code if code >= 0 else 128 - code)

    async def send_log(self, path: Path, is_over: Callable[[], bool]) -> int:
        """Send a log to its end. Raises: OSError."""
        wanted = self._wanted.log
        async for data in ranklog.read(path, wanted.lines, follow=wanted.follow, is_over=is_over):
            await self._window.acquire()
            self._tell(data=data)
        return 0

    async def run_command(self, folder: Path) -> int:
        """Run the command and return its exit code. Raises: OSError."""
        wanted = self._wanted
        where = (str(folder), str(wanted.rank), str(wanted.port))
        command = (sys.executable, "-I", "-S", SUPERVISOR, "--beside", *where, *wanted.command)
        return await (self._on_terminal if wanted.rows else self._on_pipes)(command)

    async def _on_pipes(self, command: tuple[str, ...]) -> int:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env={}
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = (
            self._send(process.stdout),
            self._send(process.stderr, is_error=True),
        )
        return await self._until_end(process, process.stdin, *outputs)

    async def _on_terminal(self, command: tuple[str, ...]) -> int:
        terminal, end = pty.openpty()
        self._terminal = terminal
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            try:
                _resize(terminal, self._wanted.rows, self._wanted.columns)
                process = await asyncio.create_subprocess_exec(
                    *command, stdin=end, stdout=end, stderr=end, env={}
                )
            finally:
                os.close(end)
            reading, _ = await loop.connect_read_pipe(
                lambda: protocol, os.fdopen(os.dup(terminal), "rb", 0)
            )
            writing, flow = await loop.connect_write_pipe(
                asyncio.streams.FlowControlMixin, os.fdopen(os.dup(terminal), "wb", 0)
            )
            writer = asyncio.StreamWriter(writing, flow, None, loop)
            try:
                return await self._until_end(process, writer, self._send(reader))
            finally:
                reading.close()
                writing.abort()
        finally:
            self._terminal = -1
            os.close(terminal)

    async def _until_end(
        self,
        process: asyncio.subprocess.Process,
        writer: asyncio.StreamWriter,
        *outputs: Awaitable[None],
    ) -> int:
        """Pass on what it reads and writes; its exit code. Its process does not outlive this."""
        taking = asyncio.create_task(self._take(writer))
        sending = asyncio.gather(*outputs)
        try:
            await sending
            return await process.wait()
        finally:
            taking.cancel()
            sending.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()  # it ends what it has started

    async def _send(self, reader: asyncio.StreamReader, *, is_error: bool = False) -> None:
        """Send what it writes, to its end."""
        with suppress(OSError):  # so a terminal ends
            while data := await reader.read(CHUNK):
                await self._window.acquire()
                self._tell(data=data, is_error=is_error)

    async def _take(self, writer: asyncio.StreamWriter) -> None:
        """Write what it reads; what it does not want to read any more is dropped."""
        while True:
            data = await self._inputs.get()
            with suppress(OSError):
                writer.write(data.data)
                await writer.drain()
            if data.is_last and self._terminal >= 0:
                writer.write(b"\x04")
            elif data.is_last:
                writer.close()
            self._tell(taken=1)


def _resize(terminal: int, rows: int, columns: int) -> None:
    size = (min(rows, 0xFFFF), min(columns, 0xFFFF), 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size))


def _word(data: Data) -> agent_pb2.SessionRequest:
    return agent_pb2.SessionRequest(channel_data=data)
