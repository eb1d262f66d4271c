"""The virtual clock: order, cancellation, no way back."""

from __future__ import annotations

from functools import partial

import pytest

from simulator.kernel import Kernel


def drain(kernel: Kernel) -> None:
    while kernel.step():
        pass


def test_time_goes_first_then_priority_then_the_order_of_scheduling() -> None:
    kernel, log = Kernel(), []
    for time_ns, priority, name in (
        (20, 0, "late"),
        (10, 2, "low"),
        (10, 1, "high, scheduled first"),
        (10, 1, "high, scheduled second"),
    ):
        kernel.at(time_ns, partial(log.append, name), priority)

    drain(kernel)

    assert log == ["high, scheduled first", "high, scheduled second", "low", "late"]


def test_the_clock_shows_the_time_of_what_is_called() -> None:
    kernel, times = Kernel(5), []
    for time_ns in (30, 10, 10):
        kernel.at(time_ns, lambda: times.append(kernel.now_ns))

    drain(kernel)

    assert times == [10, 10, 30]


def test_what_is_called_can_schedule_at_the_same_instant() -> None:
    kernel, log = Kernel(), []
    kernel.at(10, lambda: kernel.at(10, partial(log.append, "child"), 0), 0)
    kernel.at(10, partial(log.append, "later priority"), 1)

    drain(kernel)

    assert log == ["child", "later priority"]


def test_a_cancelled_entry_is_not_called_and_does_not_move_the_clock() -> None:
    kernel, log = Kernel(), []
    kernel.at(10, partial(log.append, "kept"))
    kernel.cancel(kernel.at(99, partial(log.append, "cancelled")))

    drain(kernel)

    assert log == ["kept"]
    assert kernel.now_ns == 10


def test_cancelling_twice_or_after_the_call_does_nothing() -> None:
    kernel, log = Kernel(), []
    first = kernel.at(10, partial(log.append, "first"))
    kernel.step()
    kernel.cancel(first)
    kernel.cancel(first)
    kernel.at(20, partial(log.append, "second"))

    drain(kernel)

    assert log == ["first", "second"]


def test_nothing_is_scheduled_in_the_past() -> None:
    kernel = Kernel(100)

    with pytest.raises(ValueError, match="1 ns in the past"):
        kernel.at(99, lambda: None)


def test_an_empty_clock_says_so() -> None:
    assert Kernel().step() is False
