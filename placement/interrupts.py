"""Ctrl-C beside linear programs, which CLP catches for itself while it solves one."""

from __future__ import annotations

import ctypes
import signal
from threading import Lock
from types import TracebackType

LARGE = 1024  # bytes: any system's `struct sigaction` is smaller


class Kept:
    """Around each program: what catches Ctrl-C stays what it was.

    CLP puts back what it found when it began. Of two programs at once the second one finds CLP's
    own, and puts that back for good. So whoever ends puts back what was there before there was
    any; a program that still goes on does without. Python's `signal` does that in the main thread
    only, so the system is asked.
    """

    def __init__(self) -> None:
        self._system = ctypes.PyDLL(None)  # keeps Python's lock: to let go of it takes longer
        self._before = ctypes.create_string_buffer(LARGE)
        self._programs = 0
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._programs:
                self._system.sigaction(int(signal.SIGINT), None, self._before)
            self._programs += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._programs -= 1
            self._system.sigaction(int(signal.SIGINT), self._before, None)
