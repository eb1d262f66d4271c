"""What ranks write: files of their own, the last lines of logs, and what logs get from now on."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

CHUNK = 64 << 10
_POLL_S = 0.2
TAIL_BYTES = 2_000  # of a rank that did not end well


def log_path(folder: Path, rank: int) -> Path:
    return folder / "logs" / f"rank-{rank}.log"


def read_rank_file(path: Path, most_bytes: int) -> bytes | None:
    """Return the first bytes of a file that a rank has made; None: there is none. It may be
    anything, for it is the user's: no link is followed, and no pipe waited for."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, most_bytes) if is_file else None
    except OSError:
        return None
    finally:
        os.close(file)


def tail(path: Path, most_bytes: int = TAIL_BYTES) -> str:
    """Return the last lines of a log, as text."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            data = file.read(most_bytes)
    except OSError:
        return ""
    lines = data.decode("utf-8", "replace").splitlines()
    return "\n".join(lines[1:] if size > most_bytes and len(lines) > 1 else lines)


async def read(
    path: Path, lines: int, *, follow: bool, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the last `lines` of a log, 0 for all that is kept, and with `follow` what is written
    until `is_over`. Raises: OSError when there is no such log."""
    if lines == 0:
        older = path.with_name(path.name + ".1")
        if older.exists():
            data = older.read_bytes()
            for at in range(0, len(data), CHUNK):
                yield data[at : at + CHUNK]
    file = path.open("rb")
    try:
        if lines:
            file.seek(_start_of_last(path, lines))
        while True:
            was_over = is_over()  # asked first: what is written before the end is read
            while data := file.read(CHUNK):
                yield data
            if not follow or was_over:
                return
            if _has_turned_over(file.fileno(), path):
                while data := file.read(CHUNK):
                    yield data
                file.close()
                file = path.open("rb")
                continue
            await asyncio.sleep(_POLL_S)
    finally:
        file.close()


def _start_of_last(path: Path, lines: int) -> int:
    """Where the last `lines` lines begin."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        start = 0
        while at > 0:
            size = min(CHUNK, at)
            at -= size
            file.seek(at)
            data = file.read(size)
            end = len(data)
            if at + size == os.fstat(file.fileno()).st_size and data.endswith(b"\n"):
                end -= 1
            while (newline := data.rfind(b"\n", 0, end)) >= 0:
                start += 1
                if start == lines:
                    return at + newline + 1
                end = newline
        return 0


def _has_turned_over(number: int, path: Path) -> bool:
    try:
        return os.fstat(number).st_ino != path.stat().st_ino
    except OSError:
        return False
