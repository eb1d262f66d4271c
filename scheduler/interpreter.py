"""How Python runs a server: its process answers many calls beside threads that compute."""

from __future__ import annotations

import gc
import sys

_SWITCH_S = 0.0005


def prefer_answers() -> None:
    """For a process that serves and nothing else, once it has started.

    A thread that computes lets others go on after half a millisecond, not after five: an
    append, and every call beside a decision, waits for its turn several times.

    States are values without cycles, so looking for cycles in 100,000 jobs, a fifth of a
    second in which nobody is answered, is for the rare ones that libraries leave.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 2_000)  # the youngest in 5 ms, all of them hardly ever
