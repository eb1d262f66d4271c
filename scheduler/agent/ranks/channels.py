"""Commands that users run beside the ranks of an attempt, and ports that they connect to.

Each is a process of its own (supervisor.run_beside), which becomes the user of the job, is among
the processes of the attempt, and ends everything that it has started when it ends. It is ended
with the attempt, with the stream to the server, and with the agent, in whose session it is, for
the agent ends children of any other session as strays.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from scheduler.agent.ranks.attempt import SUPERVISOR, Key
from scheduler.v1 import agent_pb2

CHUNK = 32 << 10
WINDOW = 16  # pieces that are sent ahead of what the other side has taken
MOST_CHANNELS = 64  # of one host
_MOST_WAITING = 4 * WINDOW  # pieces of a server that does not count

Data = agent_pb2.ChannelData


class Channels:
    """Runs commands beside ranks, and passes on their input and output. `say`: sends messages to
    the server."""

    def __init__(self, say: Callable[[agent_pb2.SessionRequest], None]) -> None:
        self._say = say
        self._open: dict[str, _Channel] = {}

    def open(self, wanted: agent_pb2.OpenChannel, key: Key, folder: Path) -> None:
        """Run a command beside the ranks of the attempt in `folder`."""
        if len(self._open) >= MOST_CHANNELS:
            self.refuse(wanted.channel_id, f"{MOST_CHANNELS} commands run beside ranks there")
            return
        channel = _Channel(wanted, key, folder, self._say)
        self._open[wanted.channel_id] = channel
        channel.task.add_done_callback(lambda _: self._open.pop(wanted.channel_id, None))

    def refuse(self, channel_id: str, reason: str) -> None:
        """Tell the server why a command is not run."""
        self._say(_word(Data(channel_id=channel_id, error=reason)))

    def hear(self, data: Data) -> None:
        """Pass input on to a command, or end the command."""
        channel = self._open.get(data.channel_id)
        if channel is not None and data.close:
            channel.task.cancel()
        elif channel is not None:
            channel.hear(data)

    def close(self, key: Key | None = None) -> None:
        """End the commands beside the ranks of an attempt; None: all."""
        for channel in self._open.values():
            if key in (None, channel.key):
                channel.task.cancel()


class _Channel:
    """One command."""

    def __init__(
        self,
        wanted: agent_pb2.OpenChannel,
        key: Key,
        folder: Path,
        say: Callable[[agent_pb2.SessionRequest], None],
    ) -> None:
        self.key = key
        self._wanted = wanted
        self._say = say
        self._terminal = -1
        self._window = asyncio.Semaphore(WINDOW)
        self._inputs: asyncio.Queue[Data] = asyncio.Queue(_MOST_WAITING)
        self.task = asyncio.create_task(self._run(folder))

    def hear(self, data: Data) -> None:
        for _ in range(min(data.taken, WINDOW)):
            self._window.release()
        if data.rows and self._terminal >= 0:
            _resize(self._terminal, data.rows, data.columns)
        if data.data or data.is_last:
            with suppress(asyncio.QueueFull):
                self._inputs.put_nowait(data)

    def _tell(self, **fields: object) -> None:
        self._say(_word(Data(channel_id=self._wanted.channel_id, **fields)))  # type: ignore[arg-type]

    async def _run(self, folder: Path) -> None:
        wanted = self._wanted
        where = (str(folder), str(wanted.rank), str(wanted.port))
        command = (sys.executable, "-I", "-S", SUPERVISOR, "--beside", *where, *wanted.command)
        try:
            code = await (self._on_terminal if wanted.rows else self._on_pipes)(command)
        except OSError as error:
            self._tell(error=f"it cannot be run: {error}")
        except asyncio.CancelledError:
            self._tell(error="it was ended with its attempt, or by whoever ran it")
            raise
        except Exception as error:  # its caller hears of it; nobody else looks at the task
            self._tell(error=f"the agent failed: {error!r}")
        else:
            self._tell(exit_code=code if code >= 0 else 128 - code)

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
