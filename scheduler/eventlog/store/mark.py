"""What is known of a log outside of it: which log it is, and how far it has come.

A log cannot say itself that its end is missing, or that it stands where another one was. So a
server keeps the version and the digest of the newest acknowledged event in a file of its own.

The file has two lines of 512 bytes that are written by turns, each with a checksum: a crash in
the middle of one leaves the other. It is mapped into memory, so an append pays for a copy of
200 bytes and no call of the system. What is copied outlives the process at once, and a power
failure once it is synced, at most a second later. A mark is never ahead of its log.
"""

from __future__ import annotations

import logging
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import Event, Lock

from muster.structs import replace, struct
from scheduler.eventlog.store.base import StoreError
from scheduler.files.atomic_file import sync_folder

_LINE = 512  # a sector: no disk writes half of it
_SYNC_S = 1.0

log = logging.getLogger("muster.store")


@struct(frozen=True, slots=True)
class LogPosition:
    """A place in a log. `time_ns`, `digest`: of the event with this version. `restores`: how often
    a backup was put back in place of the log, as far as the store counts that."""

    store_id: str
    version: int
    digest: bytes
    time_ns: int
    restores: int = 0

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.time_ns / 1e9, UTC)
        return f"version {self.version:,} of {moment:%Y-%m-%dT%H:%M:%SZ}"


class HighWaterMark:
    """The file at `path` that says how far the log has come; use `advance` from one thread."""

    def __init__(self, path: Path, point: LogPosition) -> None:
        self.path = path
        self._point = point
        if not path.exists() or path.stat().st_size != 2 * _LINE:
            _make(path, _line(point) * 2)
        try:
            with path.open("r+b") as file:
                self._lines = mmap.mmap(file.fileno(), 2 * _LINE)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from None
        self._turn = 0
        self._lock = Lock()  # a map that is closed must not be synced
        self._stopped = Event()
        self._thread = ThreadPoolExecutor(1, "muster-mark")
        self._syncing: Future[None] | None = None
        self._write()
        self._write()

    def advance(self, version: int, digest: bytes, time_ns: int) -> None:
        """Note that the log has come to `version`, durably."""
        self._point = replace(self._point, version=version, digest=digest, time_ns=time_ns)
        self._write()

    def close(self) -> None:
        """Sync the mark and close it."""
        self._stopped.set()
        self._thread.shutdown()
        self._sync()
        with self._lock:
            self._lines.close()

    def _write(self) -> None:
        at = self._turn * _LINE
        self._lines[at : at + _LINE] = _line(self._point)
        self._turn = 1 - self._turn
        if self._syncing is None or self._syncing.done():
            self._syncing = self._thread.submit(self._sync_soon)

    def _sync_soon(self) -> None:
        self._stopped.wait(_SYNC_S)
        self._sync()

    def _sync(self) -> None:
        try:
            with self._lock:
                self._lines.flush()
        except OSError as error:
            log.warning("%s is not synced: %s", self.path, error.strerror)


def mark_of(path: Path) -> Path:
    """Return where the mark of a store in a file is, unless it is configured otherwise."""
    return path.with_name(f"{path.name}.mark")


def read_mark(path: Path | None) -> LogPosition | None:
    """Read the mark: the newer of the two lines of the file; None without a file. Raises:
    StoreError."""
    if path is None or not path.exists():
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from None
    points = [_point(content[at : at + _LINE]) for at in (0, _LINE)]
    newest = max(filter(None, points), key=lambda point: point.version, default=None)
    if newest is None:
        raise StoreError(
            f"{path} is damaged: whether the end of the log is missing cannot be known;"
            " muster store recover takes the log as it is"
        )
    return newest


def check_end(
    name: str, mark: LogPosition, position: LogPosition, digest_then: bytes | None
) -> None:
    """Compare the end of a log, which is at `position`, with the mark.

    `digest_then`: what the log has at the mark's version, None: no longer anything.
    Raises: StoreError when the log is another one, ends too early, or has other events.
    """
    way_out = "restore a backup, or see with muster store recover what is lost without one"
    if mark.version == 0:  # nothing can be missing
        return
    if mark.store_id != position.store_id:
        raise StoreError(
            f"{name} is not the store that was here before, which came to {mark}: put that one"
            " back; muster store recover accepts this one"
        )
    if position.restores > mark.restores:
        return
    if position.version < mark.version:
        raise StoreError(
            f"{name} ends at version {position.version:,}, but had come to {mark}:"
            f" {mark.version - position.version:,} acknowledged changes are missing; {way_out}"
        )
    if digest_then not in (None, mark.digest):
        raise StoreError(
            f"{name} has other events up to version {mark.version:,} than it had; {way_out}"
        )


def _line(point: LogPosition) -> bytes:
    text = (
        f"{point.store_id} {point.version} {point.digest.hex()} {point.time_ns} {point.restores}"
    ).encode()
    return (text + b" " + _checksum(text)).ljust(_LINE - 1) + b"\n"


def _point(line: bytes) -> LogPosition | None:
    text, _, checksum = line.rstrip().rpartition(b" ")
    if not text or _checksum(text) != checksum:
        return None
    store_id, version, digest, time_ns, restores = text.decode().split()
    return LogPosition(store_id, int(version), bytes.fromhex(digest), int(time_ns), int(restores))


def _checksum(text: bytes) -> bytes:
    return blake2b(text, digest_size=8).hexdigest().encode()


def _make(path: Path, content: bytes) -> None:
    """Raises: StoreError."""
    part_file = path.with_name(f"{path.name}.part")
    try:
        with part_file.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part_file.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
