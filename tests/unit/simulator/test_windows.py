"""Windows in a replay: opened and closed by the virtual clock, and by nothing else."""

import pytest

from scheduler.core.model.events import Event, JobRequeued, JobStarted, WindowClosed, WindowOpened
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.window import Window
from tests.replays import World, machine, replayed, trace_job
from tests.windows import window

HOSTS = [f"z0-h{i}" for i in range(4)]


def two_gangs(*windows: Window, limit_s: float | None = None) -> World:
    """Two gangs of two hosts for 100 s each, on four."""
    jobs = [trace_job(name, 0, 100, 2, limit_s) for name in "ab"]
    return replayed(machine(4), jobs, windows=lambda _: windows)


def at_s(world: World, kind: type[Event]) -> list[float]:
    return [event.time_ns / SECOND_NS for event in world.of(kind)]


def test_a_job_waits_for_the_end_of_maintenance() -> None:
    world = two_gangs(window("w", *HOSTS[:2], start_s=50, end_s=300))
    assert at_s(world, JobStarted) == [0, 100]
    assert at_s(world, WindowOpened) == [50]


def test_the_end_of_a_window_starts_what_waits() -> None:
    world = two_gangs(window("w", *HOSTS, start_s=0, end_s=70))
    assert at_s(world, WindowClosed) == [70]
    assert at_s(world, JobStarted) == [70, 70]


def test_a_gang_in_the_way_is_requeued_and_comes_back() -> None:
    """Both say that they take 40 s, and take 100."""
    leaving = window("w", *HOSTS[:2], start_s=50, end_s=60, leave="requeue")
    world = two_gangs(leaving, limit_s=40)
    assert at_s(world, JobRequeued) == [50]
    assert at_s(world, JobStarted) == pytest.approx([0, 0, 60])
