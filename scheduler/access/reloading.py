"""A value read from files, read again when they change; a broken change is not taken."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from scheduler.files.errors import InputError

Value = TypeVar("Value")
LOOK_EVERY_S = 1.0

log = logging.getLogger("muster.access")


class Reloading(Generic[Value]):
    """A value read from files, which is read again when they change. Use from any thread. Raises:
    InputError when it cannot be read at first."""

    def __init__(self, paths: Sequence[str], read: Callable[[], Value]) -> None:
        self._paths = tuple(paths)
        self._read = read
        self._lock = Lock()
        self._stamp = self._stamps()
        self._looked = time.monotonic()
        self._value = read()

    def current(self) -> Value:
        """Return the value, at most a second older than the files."""
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            self.look()
        return self._value

    def look(self) -> None:
        """Read the files again if they have changed; broken files leave the value as it was."""
        with self._lock:
            self._looked = time.monotonic()
            stamp = self._stamps()
            if stamp == self._stamp:
                return
            # First the stamp: a file that changes while it is read is read once more.
            self._stamp = stamp
            try:
                self._value = self._read()
            except InputError as error:
                log.error("rejected, the old one stays in use: %s", error)
            else:
                log.warning("read again: %s", ", ".join(self._paths))

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
