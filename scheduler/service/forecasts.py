"""The newest forecast of the queue, made in the background and kept with its version.

A forecast costs seconds where the queue is long, and Python runs one thing at a time: one thread
makes it, and rests after each decision for a multiple of what that took. Who asks reads the
furthest result: one version of the log has one forecast, which only goes further.
"""

from __future__ import annotations

import time
from threading import Condition, Thread

from muster.structs import struct
from scheduler.core import SchedulingOptions, State
from scheduler.core.explain.forecast import Forecast, forecast, forecasts

BUDGET_S = 1.0  # of a forecast that is made for one caller
PAUSE_S = 0.0005
REST = 2.0  # times the thread rests as long as it has worked
WAIT_S = (
    1.0  # for a forecast of this version, where one takes no longer than SHORT_S or none is kept
)
SHORT_S = 0.25
IDLE_S = 10.0  # without a question, after which the thread ends


def bounded_forecast(state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
    """A forecast that stops after BUDGET_S."""
    begin_s = time.monotonic()

    def is_over() -> bool:
        time.sleep(PAUSE_S)
        return time.monotonic() - begin_s > BUDGET_S

    return forecast(state, now_ns, options, is_over)


@struct(frozen=True, slots=True)
class _Question:
    state: State
    now_ns: int
    options: SchedulingOptions

    def is_same(self, other: _Question | None) -> bool:
        """Whether one forecast does for both."""
        if other is None:
            return False
        return (self.state.version, self.options) == (other.state.version, other.options)


@struct(frozen=True, slots=True)
class _Result:
    question: _Question
    forecast: Forecast
    is_whole: bool

    def is_overtaken(self, now_ns: int) -> bool:
        """Whether a start that it foresaw should have been by now: a gang outruns its limit."""
        starts = self.forecast.starts.values()
        return any(self.question.now_ns < start.start_ns < now_ns for start in starts)


class ForecastCache:
    """Use from any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._newest: _Question | None = None
        self._result: _Result | None = None
        self._thread: Thread | None = None
        self._cost_s = 0.0

    def of(self, state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
        """Return the forecast of the state as far as it has come, or while a long one of it is
        made the last whole one."""
        question = _Question(state, now_ns, options)

        def is_there() -> bool:
            return self._result is not None and self._result.is_whole and self._fits(question)

        with self._changed:
            self._newest = question
            if self._thread is None:
                self._thread = Thread(target=self._work, name="muster-forecast", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if self._result is None or self._cost_s <= SHORT_S:
                self._changed.wait_for(is_there, WAIT_S)
            if self._result is None:  # it has not come to its first decision
                return Forecast(frozenset(), {}, now_ns)
            return self._result.forecast

    def _fits(self, question: _Question) -> bool:
        result = self._result
        return (
            result is not None
            and question.is_same(result.question)
            and not result.is_overtaken(question.now_ns)
        )

    def _work(self) -> None:
        while True:
            with self._changed:
                has_work = self._changed.wait_for(self._is_due, IDLE_S)
                question = self._newest
                if not has_work or question is None:
                    self._thread = None
                    return
            began_s, rested_s = time.monotonic(), 0.0
            at_s = began_s
            for made in forecasts(question.state, question.now_ns, question.options):
                is_whole = made.until_ns is None
                with self._changed:
                    if self._result is None or not self._result.is_whole or is_whole:
                        self._result = _Result(question, made, is_whole)
                rest_s = max(PAUSE_S, REST * (time.monotonic() - at_s))
                time.sleep(rest_s)
                rested_s += rest_s
                at_s = time.monotonic()
            with self._changed:
                self._result = _Result(question, made, is_whole=True)
                self._cost_s = time.monotonic() - began_s - rested_s
                self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._newest is not None and not (
            self._fits(self._newest) and self._result is not None and self._result.is_whole
        )
