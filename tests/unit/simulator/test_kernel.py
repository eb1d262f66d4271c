"""The virtual clock: order, cancellation, no way back, who acts on what."""

from collections.abc import Callable

import pytest

from simulator.kernel import SimulationKernel


def clock(act: Callable[[str], object], start_ns: int = 0) -> SimulationKernel:
    """One on which words are due."""
    kernel = SimulationKernel(start_ns)
    kernel.on(str, act)
    return kernel


def drain(kernel: SimulationKernel) -> None:
    while kernel.step():
        pass


def test_time_goes_first_then_priority_then_the_order_of_scheduling() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    for time_ns, priority, name in (
        (20, 0, "late"),
        (10, 2, "low"),
        (10, 1, "high, scheduled first"),
        (10, 1, "high, scheduled second"),
    ):
        kernel.at(time_ns, name, priority)

    drain(kernel)

    assert log == ["high, scheduled first", "high, scheduled second", "low", "late"]


def test_the_clock_shows_the_time_of_what_is_due() -> None:
    times: list[int] = []
    kernel = clock(lambda _: times.append(kernel.now_ns), 5)
    for time_ns in (30, 10, 10):
        kernel.at(time_ns, "")

    drain(kernel)

    assert times == [10, 10, 30]


def test_what_is_done_can_schedule_at_the_same_instant() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    kernel.on(int, lambda _: kernel.at(10, "child", 0))
    kernel.at(10, 1, 0)
    kernel.at(10, "later priority", 1)

    drain(kernel)

    assert log == ["child", "later priority"]


def test_each_kind_goes_to_who_acts_on_it() -> None:
    words: list[str] = []
    numbers: list[int] = []
    kernel = clock(words.append)
    kernel.on(int, numbers.append)
    kernel.at(1, "word")
    kernel.at(2, 2)

    drain(kernel)

    assert (words, numbers) == (["word"], [2])


def test_a_kind_on_which_nobody_acts_is_not_scheduled() -> None:
    with pytest.raises(KeyError, match="nothing handles 1"):
        SimulationKernel().at(10, 1)


def test_a_cancelled_entry_is_not_done_and_does_not_move_the_clock() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    kernel.at(10, "kept")
    kernel.cancel(kernel.at(99, "cancelled"))

    drain(kernel)

    assert log == ["kept"]
    assert kernel.now_ns == 10


def test_cancelling_twice_or_afterwards_does_nothing() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    first = kernel.at(10, "first")
    kernel.step()
    kernel.cancel(first)
    kernel.cancel(first)
    kernel.at(20, "second")

    drain(kernel)

    assert log == ["first", "second"]


def test_nothing_is_scheduled_in_the_past() -> None:
    kernel = clock(str.strip, 100)

    with pytest.raises(ValueError, match="1 ns in the past"):
        kernel.at(99, "")


def test_an_empty_clock_says_so() -> None:
    assert SimulationKernel().step() is False
