"""How long this process has been running."""

from __future__ import annotations

import os
import time

_IMPORTED = time.perf_counter()


def seconds_so_far() -> float:
    """Return the seconds since the process started; since this import where the system hides its
    start."""
    return _started_before_import() + time.perf_counter() - _IMPORTED


def _started_before_import() -> float:
    """Seconds from the start of the process to the import of this module (Linux)."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
    return max(0.0, age - (time.perf_counter() - _IMPORTED))
