"""When waiting jobs start, by the scheduler run ahead on a copy."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core import SchedulingOptions, State
from scheduler.core.explain.forecast import forecast
from scheduler.core.model.commands import HoldJob
from scheduler.core.model.job import SECOND_NS
from tests.build import cordon, end, fabric, fail, loaded, run, schedule, settled, submit
from tests.windows import with_window

HOUR_NS = 3_600 * SECOND_NS


def filled(*names: str, hosts: int = 2, limit_s: int = 3_600, **job: Any) -> State:
    """One-host jobs of an hour on two hosts, the first two running since 0."""
    state = loaded(fabric(zones=1, racks=hosts, hosts=1))
    return settled(run(state, *(submit(name, 1, limit_s=limit_s, **job) for name in names)))


def hours(state: State, **options: Any) -> dict[str, float]:
    starts = forecast(state, 0, SchedulingOptions(**options)).starts
    return {name: start.start_ns / HOUR_NS for name, start in starts.items()}


@pytest.mark.parametrize("policy", ["production", "conservative", "easy", "fifo"])
def test_a_queue_of_equal_jobs_starts_in_steps(policy: str) -> None:
    state = filled(*(f"j{i:02}" for i in range(12)))
    expected = {f"j{i:02}": i // 2 for i in range(2, 12)}
    assert hours(state, policy=policy) == expected
    chain = forecast(state, 0, SchedulingOptions(policy=policy)).chain("j07")
    assert [(link.name, link.start_ns // HOUR_NS, link.after) for link in chain] == [
        ("j02", 1, ("j00", "j01")),
        ("j04", 2, ("j02", "j03")),
        ("j07", 3, ("j04", "j05")),
    ]


def test_a_forecast_is_what_happens_when_jobs_run_to_their_limits() -> None:
    """Of jobs of many sizes and lengths: the forecast at the begin, and what the scheduler does."""
    state = loaded(fabric(zones=2, racks=2, hosts=2))
    sizes = ((4, 3), (8, 1), (2, 2), (1, 5), (6, 2), (3, 1), (1, 1), (5, 4), (2, 1))
    jobs = (submit(f"j{i}", n, limit_s=h * 3_600) for i, (n, h) in enumerate(sizes))
    state = settled(run(state, *jobs))
    first = forecast(state, 0, SchedulingOptions())
    assert set(first.starts) == set(state.index.queue)
    for hour in range(1, 20):
        now_ns = hour * HOUR_NS
        over = [job.name for job in state.holding if job.release.end_ns <= now_ns]
        state = settled(run(state, *map(end, over), now_ns=now_ns), now_ns)
        for job in state.holding:
            if job.present.start_ns == now_ns:
                assert first.starts[job.name].start_ns == now_ns, job.name
    assert not state.index.queue


def test_windows_and_begin_times_count() -> None:
    state = with_window(loaded(fabric(zones=1, racks=2, hosts=1)), "z0")
    late = submit("late", 1, limit_s=3_600)
    late = replace(late, spec=replace(late.spec, begin_ns=5 * HOUR_NS))
    state = settled(run(state, submit("long", 2, limit_s=7_200), late))
    assert hours(state) == {"long": 2, "late": 5}


def test_held_jobs_and_those_that_never_fit_have_no_start() -> None:
    state = filled("a", "b", "c", "d")
    state = run(state, HoldJob("c"))
    ahead = forecast(state, 0, SchedulingOptions())
    assert ahead.starts.keys() == {"d"}
    assert (ahead.until_ns, ahead.waiting) == (None, {"c", "d"})


def test_hosts_under_repair_come_back() -> None:
    state = schedule(run(filled("a"), fail("z0-r1-h0")))
    state = run(state, submit("b", 2, limit_s=3_600))
    repaired = forecast(state, 0, SchedulingOptions()).starts["b"].start_ns
    assert repaired > HOUR_NS
    out = run(filled("a"), cordon("z0-r1-h0"), submit("b", 2, limit_s=3_600))
    assert not forecast(out, 0, SchedulingOptions()).starts


def test_who_waits_at_the_end_of_the_budget_does_not_start_before() -> None:
    state = filled(*(f"j{i}" for i in range(9)))
    decisions = iter([False] * 5 + [True])
    ahead = forecast(state, 0, SchedulingOptions(), lambda: next(decisions))
    assert ahead.starts.keys() == {"j2", "j3", "j4", "j5"}
    assert ahead.until_ns == 3 * HOUR_NS
