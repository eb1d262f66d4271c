"""The newest forecast of the queue, made when somebody asks and kept for a while.

A forecast costs seconds where the queue is long, and Python runs one thing at a time: it stops
after BUDGET_S, pauses for others between two decisions, and is made again no sooner than it cost,
times SHARE.
"""

from __future__ import annotations

import time
from threading import Lock

from scheduler.core import SchedulingOptions, State
from scheduler.core.explain.forecast import Forecast, forecast

BUDGET_S = 1.0
SHARE = 20
FRESH_S = 30.0  # of a state that does not change: gangs may outrun their limits
PAUSE_S = 0.0005


def bounded_forecast(state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
    """A forecast that stops after BUDGET_S."""
    begin_s = time.monotonic()

    def is_over() -> bool:
        time.sleep(PAUSE_S)
        return time.monotonic() - begin_s > BUDGET_S

    return forecast(state, now_ns, options, is_over)


class ForecastCache:
    """Use from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forecast: Forecast | None = None
        self._of: tuple[int, SchedulingOptions] | None = None
        self._made_s = self._cost_s = 0.0

    def of(self, state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
        """Return the forecast of the state, or of one shortly before it."""
        with self._lock:
            age_s = time.monotonic() - self._made_s
            is_same = self._of == (state.version, options)
            if self._forecast is None or age_s > (FRESH_S if is_same else SHARE * self._cost_s):
                begin_s = time.monotonic()
                self._forecast = bounded_forecast(state, now_ns, options)
                self._of = (state.version, options)
                self._made_s = time.monotonic()
                self._cost_s = self._made_s - begin_s
            return self._forecast
