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
from pathlib import Path
from typing import Final

from scheduler.agent.ranks.attempt import HostAttempt
from scheduler.agent.ranks.processes import catches
from scheduler.agent.ranks.ranklog import log_path, read_rank_file

SIGNAL: Final = signal.SIGRTMIN + 7  # as muster.progress has it
_WRITE_S: Final = 1.0  # for which ranks may write
_PY_SPY_S: Final = 4.0
_MOST_BYTES: Final = 256 << 10


async def dump(attempt: HostAttempt) -> None:
    """Write the stacks of all ranks of the host to files."""
    known = attempt.stack_pids().items()
    pids = {rank: pid for rank, pid in known if catches(pid, SIGNAL)}
    written = {rank: len(_stacks_of(attempt, rank)) for rank in pids}
    for pid in pids.values():
        with contextlib.suppress(OSError):
            os.kill(pid, SIGNAL)
    await asyncio.sleep(_WRITE_S)
    others = {rank: pid for rank, pid in attempt.process_pids().items() if rank not in pids}
    for rank in pids:
        _keep(attempt, rank, _stacks_of(attempt, rank)[written[rank] :])
    for rank, pid in others.items():
        _keep(attempt, rank, await _inspect_process(pid))


def _stacks_of(attempt: HostAttempt, rank: int) -> bytes:
    return read_rank_file(attempt.folder / "run" / f"stacks.{rank}", _MOST_BYTES) or b""


def _keep(attempt: HostAttempt, rank: int, text: bytes) -> None:
    path = log_path(attempt.folder, rank).with_suffix(".stacks")
    with contextlib.suppress(OSError):
        path.write_bytes(text or b"it wrote nothing down\n")


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
