"""A command beside a rank, with the streams of this process."""

from __future__ import annotations

import os
import queue
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from scheduler.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1.service_pb2 import OpenChannelRequest, OpenChannelResponse

CHUNK: Final = 32 << 10
_DEPTH: Final = 64  # pieces of stdin that wait


def run_beside(
    client: Client, job: str, rank: int, command: list[str], *, reads: bool, terminal: bool
) -> int:
    """Run a command beside a rank with the streams of this process; return its exit code. Raises:
    ServiceError."""
    from scheduler.v1.service_pb2 import OpenChannelRequest

    first = OpenChannelRequest(name=job, rank=rank, command=command)
    inputs: queue.Queue[OpenChannelRequest | None] = queue.Queue(_DEPTH)
    if terminal:
        first.columns, first.rows = _terminal_size()

    def resize(*_: object) -> None:
        columns, rows = _terminal_size()
        with suppress(queue.Full):
            inputs.put_nowait(OpenChannelRequest(rows=rows, columns=columns))

    def read() -> None:
        while data := os.read(0, CHUNK):
            inputs.put(OpenChannelRequest(data=data))
        inputs.put(OpenChannelRequest(is_last=True))

    if reads:
        threading.Thread(target=read, daemon=True).start()
    else:
        inputs.put(OpenChannelRequest(is_last=True))
    requests = (each for each in _after(first, iter(inputs.get, None)))
    with _raw(resize) if terminal else nullcontext():
        code = FAILED
        for answer in client.open_channel(job, requests):
            _write(answer)
            code = answer.exit_code if answer.HasField("exit_code") else code
    inputs.put(None)
    return code


def _after(
    first: OpenChannelRequest, others: Iterator[OpenChannelRequest]
) -> Iterator[OpenChannelRequest]:
    yield first
    yield from others


def _terminal_size() -> tuple[int, int]:
    """Columns and rows; those of a usual terminal where this one does not say."""
    columns, rows = os.get_terminal_size(0)
    return columns or 80, rows or 24


def _write(answer: OpenChannelResponse) -> None:
    stream = sys.stderr if answer.is_error else sys.stdout
    stream.buffer.write(answer.data)
    stream.buffer.flush()


@contextmanager
def _raw(resize: signal.Handlers | object) -> Iterator[None]:
    """The terminal passes on every key, and says when it has another size."""
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, resize)  # type: ignore[arg-type]
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
