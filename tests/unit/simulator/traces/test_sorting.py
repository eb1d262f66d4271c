"""Files in no order: sorted on disk, in little memory."""

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest

from simulator.traces import sorting
from simulator.traces.record import TraceJob
from tests.replays import trace_job


def jobs(count: int) -> Iterator[TraceJob]:
    random = Random(3)
    return (trace_job(f"j{i}", random.randrange(count // 2), 1, line=i) for i in range(count))


@pytest.mark.parametrize("run", [1, 7, 100, 1000])
def test_runs_on_disk_and_in_memory_give_one_order(
    monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    monkeypatch.setattr(sorting, "RUN", run)

    assert list(sorting.by_submit(jobs(100))) == sorted(jobs(100), key=sorting.order)


@pytest.mark.slow
def test_memory_is_a_run_not_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "RUN", 1_000)
    monkeypatch.setattr(sorting, "BATCH", 5)

    def peak(use: Callable[[Iterable[TraceJob]], object]) -> int:
        tracemalloc.start()
        use(jobs(10_000))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert 3 * peak(lambda stream: deque(sorting.by_submit(stream), 1)) < peak(sorted_in_memory)


def sorted_in_memory(stream: Iterable[TraceJob]) -> list[TraceJob]:
    return sorted(stream, key=sorting.order)
