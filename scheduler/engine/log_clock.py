"""The time that events get: the machine's clock, as long as it agrees with how time passes.

A log that was written with a clock that was ahead would make time stand still until the clock has
caught up, and a gang that waits out its backoff would never start. A clock that leaps ahead would
end every backoff and time limit at once. So the time is also measured from the last reading on:

    the clock is behind the log         time goes on at half the pace until the clock is level
    the clock leaps ahead by a minute   time goes on at twice the pace until it is level
    else                                time is what the clock says

Versions order the log; times only never decrease.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

_MINUTE_NS = 60 * 10**9
LEAP_NS = _MINUTE_NS  # ahead of what was measured, more than any correction of a sound clock

log = logging.getLogger("muster.clock")


def passed_ns() -> int:
    """Return the time since the machine started, also while it was suspended; setting the clock
    does not change it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class LogClock:
    """The time of new events, which never goes back. `clock` gives the time, `measure` how much of
    it passed; None: the clock is to be trusted. `last_ns`: the time of the log's last event. Use
    from any thread."""

    def __init__(
        self, clock: Callable[[], int], measure: Callable[[], int] | None, last_ns: int
    ) -> None:
        self._clock = clock
        self._measure = measure
        self._lock = Lock()
        self._last_ns = last_ns
        self._is_off = False
        read_ns = clock()
        self._at_ns = max(read_ns, last_ns)  # a server may have been down for long
        self._measured_ns = measure() if measure is not None else 0
        self._warn(read_ns - self._at_ns)

    def advance(self, last_ns: int) -> None:
        """Note that the log has come to this time, written by another server."""
        with self._lock:
            self._last_ns = max(self._last_ns, last_ns)
            if last_ns > self._at_ns:
                self._at_ns = last_ns
                self._measured_ns = self._measure() if self._measure is not None else 0

    def now_ns(self) -> int:
        """Return the time, never before that of the last event nor before an earlier answer."""
        if self._measure is None:
            return max(self._last_ns, self._clock())
        with self._lock:
            read_ns, measured_ns = self._clock(), self._measure()
            passed = max(0, measured_ns - self._measured_ns)
            ahead_ns = read_ns - (self._at_ns + passed)
            if ahead_ns > LEAP_NS or (self._is_off and ahead_ns > 0):
                self._at_ns = min(read_ns, self._at_ns + 2 * passed)
            else:
                self._at_ns = max(read_ns, self._at_ns + passed // 2)
            self._measured_ns = measured_ns
            self._warn(read_ns - self._at_ns)
            return self._at_ns

    def _warn(self, ahead_ns: int) -> None:
        """A warning when the clock begins to be off, and when it is level again."""
        is_off = abs(ahead_ns) > LEAP_NS or (self._is_off and ahead_ns != 0)
        if is_off == self._is_off:
            return
        self._is_off = is_off
        if is_off:
            where, pace = ("ahead of", "twice") if ahead_ns > 0 else ("behind", "half")
            log.warning(
                "the machine's clock is %s s %s the log: time goes on at %s the pace until they"
                " are level; set the clock, if it is wrong",
                f"{abs(ahead_ns) / 1e9:,.0f}",
                where,
                pace,
            )
        else:
            log.warning("the machine's clock is level with the log again")
