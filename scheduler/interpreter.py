"""How Python runs a server: its process answers many calls beside threads that compute."""

from __future__ import annotations

import gc
import sys

_SWITCH_S = 0.0005


def prefer_answers() -> None:
    """Tune the interpreter of a process that serves, once it has started.

    A thread that computes lets others go on after half a millisecond, not after five: an
    append, and every call beside a decision, waits for its turn several times.
    """
    sys.setswitchinterval(_SWITCH_S)
    expect_no_cycles()


def expect_no_cycles() -> None:
    """Tune garbage collection of a process that computes states, once its programs are loaded.

    States are values without cycles, so looking for cycles is for the rare ones that libraries
    leave; in a replay looking through all the programs again and again is 3 % of the time.
    Among 10,000 new objects it takes 5 ms, every fourth of a second while thousands submit;
    among the million of 50,000 jobs a third of a second, in which nobody is answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 100, 20)
