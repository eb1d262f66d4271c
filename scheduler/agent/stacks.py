"""Where the ranks of an attempt are: their stacks, written beside their logs.

A rank that uses muster.progress writes its own down when it gets a signal (faulthandler), also one
whose main thread is in a collective; of another one py-spy tells, where the host has it, and else
the kernel says in which call each thread waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Final

from scheduler.agent.attempt import HostAttempt
from scheduler.agent.processes import catches
from scheduler.agent.ranklog import log_path

SIGNAL: Final = signal.SIGRTMIN + 7  # as muster.progress has it
_WRITE_S: Final = 1.0  # for which ranks may write
_PY_SPY_S: Final = 4.0
_MOST_BYTES: Final = 256 << 10


async def dump(attempt: HostAttempt) -> None:
    """Write the stacks of all ranks of the host to files."""
    known = attempt.stack_pids().items()
    pids = {rank: pid for rank, pid in known if catches(pid, SIGNAL)}
    written = {rank: len(_read(_stacks_of(attempt, rank))) for rank in pids}
    for pid in pids.values():
        with contextlib.suppress(OSError):
            os.kill(pid, SIGNAL)
    await asyncio.sleep(_WRITE_S)
    others = {rank: pid for rank, pid in attempt.process_pids().items() if rank not in pids}
    for rank in pids:
        _keep(attempt, rank, _read(_stacks_of(attempt, rank))[written[rank] :])
    for rank, pid in others.items():
        _keep(attempt, rank, await _inspect_process(pid))


def _stacks_of(attempt: HostAttempt, rank: int) -> Path:
    return attempt.folder / "run" / f"stacks.{rank}"


def _keep(attempt: HostAttempt, rank: int, text: bytes) -> None:
    path = log_path(attempt.folder, rank).with_suffix(".stacks")
    with contextlib.suppress(OSError):
        path.write_bytes(text or b"it wrote nothing down\n")


def _read(path: Path) -> bytes:
    """Read what a rank wrote, which may be anything, for the file is the user's."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST_BYTES) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)


async def _inspect_process(pid: int) -> bytes:
    """Look at a process from outside that does not write its stacks down."""
    if program := shutil.which("py-spy"):
        process = await asyncio.create_subprocess_exec(
            program,
            "dump",
            "--nonblocking",
            "--pid",
            str(pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PY_SPY_S):
                text, _ = await process.communicate()
                if process.returncode == 0:
                    return text[:_MOST_BYTES]
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    lines = ["no Python stacks: the rank does not use muster.progress, and py-spy is not there"]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            name, call = (task / "comm").read_text().strip(), (task / "wchan").read_text().strip()
            lines.append(f"thread {task.name} {name}: in {call or 'user code'}")
    return ("\n".join(lines) + "\n").encode()
