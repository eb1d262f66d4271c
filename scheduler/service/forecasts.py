"""The newest forecast of the queue, made in the background and kept with its version.

A forecast costs seconds where the queue is long, and Python runs one thing at a time: one thread
makes it, and rests after each decision for a multiple of what that took. Who asks reads the
furthest result: one version of the log has one forecast, which only goes further.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import NamedTuple

from scheduler.core import SchedulingOptions, State
from scheduler.core.explain.forecast import Forecast, forecast, forecasts

BUDGET_S = 1.0  # of a forecast that is made for one caller
PAUSE_S = 0.0005
REST = 2.0  # times the thread rests as long as it has worked
SHORT_S = 0.25
WAIT_S = 1.0  # for one of this version, where it takes at most SHORT_S or none is kept

log = logging.getLogger("muster.questions")


def bounded_forecast(state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
    """Make a forecast that stops after BUDGET_S."""
    begin_s = time.monotonic()

    def is_over() -> bool:
        time.sleep(PAUSE_S)
        return time.monotonic() - begin_s > BUDGET_S

    return forecast(state, now_ns, options, is_over)


class _Question(NamedTuple):
    state: State
    now_ns: int
    options: SchedulingOptions


class _Result(NamedTuple):
    question: _Question
    forecast: Forecast
    is_whole: bool

    def is_for(self, question: _Question) -> bool:
        """Whether there is no more to foresee: no start of it should have been by now, as where a
        gang outruns its limit."""
        of, starts = self.question, self.forecast.starts.values()
        is_same = (of.state.version, of.options) == (question.state.version, question.options)
        if not (self.is_whole and is_same):
            return False
        return not any(of.now_ns < start.start_ns < question.now_ns for start in starts)


class ForecastCache:
    """Keeps the newest forecast for all callers. Use from any thread."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._newest: _Question | None = None
        self._result: _Result | None = None
        self._pool = ThreadPoolExecutor(1, "muster-forecast")
        self._is_working = self._is_closed = False
        self._cost_s = 0.0

    def of(self, state: State, now_ns: int, options: SchedulingOptions) -> Forecast:
        """Return the forecast of the state as far as it has come; while a long one is being made,
        the last one that is whole."""
        question = _Question(state, now_ns, options)
        with self._changed:
            self._newest = question
            if self._is_due() and not self._is_working:
                self._is_working = True
                self._pool.submit(self._work)
            self._changed.wait_for(lambda: self._is_long() or self._has_whole(question), WAIT_S)
            if self._result is None:  # it has not come to its first decision
                return Forecast(frozenset(), {}, now_ns)
            return self._result.forecast

    def close(self) -> None:
        """End the forecast under way after its next decision."""
        with self._changed:
            self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_long(self) -> bool:
        """Whether there is a result, and waiting for a newer one would take long."""
        return self._result is not None and self._cost_s > SHORT_S

    def _has_whole(self, question: _Question) -> bool:
        return self._result is not None and self._result.is_for(question)

    def _is_due(self) -> bool:
        is_asked = self._newest is not None and not self._has_whole(self._newest)
        return is_asked and not self._is_closed

    def _work(self) -> None:
        """Make forecasts until there is one of the newest question."""
        try:
            while True:
                with self._changed:
                    question = self._newest
                    if question is None or not self._is_due():
                        self._is_working = False
                        return
                self._make(question)
        except Exception:
            if not self._is_closed:  # placement may find its threads gone with the process
                log.exception("the forecast of starts has failed; it is made again when asked for")
            self._is_working = False

    def _make(self, question: _Question) -> None:
        begin_s = time.monotonic()
        worked_s, at_s = 0.0, begin_s
        made = Forecast(frozenset(), {})
        for made in forecasts(question.state, question.now_ns, question.options):
            with self._changed:
                if self._result is None or not self._result.is_whole:
                    self._result = _Result(question, made, is_whole=False)
            if self._is_closed:
                return
            step_s = time.monotonic() - at_s
            worked_s += step_s
            if worked_s > self._cost_s and worked_s > SHORT_S:
                with self._changed:
                    self._cost_s = worked_s
                    self._changed.notify_all()
            time.sleep(max(PAUSE_S, REST * step_s))
            at_s = time.monotonic()
        with self._changed:
            self._result = _Result(question, made, is_whole=True)
            self._cost_s = worked_s
            self._changed.notify_all()
