"""How Python runs a server: its process answers many calls beside threads that compute."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_SWITCH_S = 0.0005

# Of mallopt(3), from glibc's malloc.h.
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 128 * 1024  # where glibc begins
_ARENAS: Final = 2


def keep_heap_whole() -> bool:
    """For a process that serves for months; call it before there are threads. Whether it could.

    Now and then a state's large tables are made anew, some MB that are soon let go. glibc
    asks the system for such a piece by itself and gives it back, but only at first: it then
    takes pieces of that size from the heap, where small ones that last settle in the holes, and
    the heap grows although no more is in use. Nor does each thread get a heap of its own.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES) and mallopt(_M_ARENA_MAX, _ARENAS))


def prefer_answers() -> None:
    """For a process that serves and nothing else, once it has started.

    A thread that computes lets others go on after half a millisecond, not after five: an
    append, and every call beside a decision, waits for its turn several times.
    """
    sys.setswitchinterval(_SWITCH_S)
    expect_no_cycles()


def expect_no_cycles() -> None:
    """For a process that computes states, once its programs are loaded.

    States are values without cycles, so looking for cycles is for the rare ones that libraries
    leave; in a replay looking through all the programs again and again is 3 % of the time.
    Among 10,000 new objects it takes 5 ms, every fourth of a second while thousands submit;
    among the million of 50,000 jobs a third of a second, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 100, 20)
