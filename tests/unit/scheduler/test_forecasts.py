"""A forecast is kept: for the version that it is of, and for others in proportion to its cost."""

from __future__ import annotations

import pytest

from scheduler.core import SchedulingOptions
from scheduler.core.explain.forecast import Forecast
from scheduler.service import forecasts
from scheduler.service.forecasts import FRESH_S, SHARE, ForecastCache
from tests.build import loaded, run, submit


class Clock:
    """Each forecast takes a second of it."""

    def __init__(self) -> None:
        self.now_s, self.made = 1_000.0, 0

    def monotonic(self) -> float:
        return self.now_s

    def forecast(self, *_: object) -> Forecast:
        self.made += 1
        self.now_s += 1.0
        return Forecast(frozenset(), {})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(forecasts, "time", clock)
    monkeypatch.setattr(forecasts, "forecast", clock.forecast)
    return clock


def test_a_forecast_is_kept_in_proportion_to_its_cost(clock: Clock) -> None:
    cache, before = ForecastCache(), loaded()
    after = run(before, submit("a"))
    first = cache.of(before, 0, SchedulingOptions())
    clock.now_s += SHARE - 0.5
    assert cache.of(after, 0, SchedulingOptions()) is first
    clock.now_s += 1.0
    assert cache.of(after, 0, SchedulingOptions()) is not first
    assert clock.made == 2


def test_one_of_the_same_version_is_kept_for_half_a_minute(clock: Clock) -> None:
    cache, state = ForecastCache(), loaded()
    first = cache.of(state, 0, SchedulingOptions())
    clock.now_s += FRESH_S - 1
    assert cache.of(state, 0, SchedulingOptions()) is first
    clock.now_s += 2
    assert cache.of(state, 0, SchedulingOptions()) is not first


def test_a_forecast_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasts, "BUDGET_S", 0.0)
    state = run(loaded(), submit("a"))
    ahead = ForecastCache().of(state, 0, SchedulingOptions())
    assert (ahead.starts, ahead.until_ns) == ({}, 0)
