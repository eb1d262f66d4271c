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
    log: list[tuple[int, str]] = []
    kernel = clock(lambda name: log.append((kernel.now_ns, name)))
    for time_ns, priority, name in (
        (20, 0, "late"),
        (10, 2, "low"),
        (10, 1, "high, scheduled first"),
        (10, 1, "high, scheduled second"),
    ):
        kernel.at(time_ns, name, priority)

    drain(kernel)

    first, second = "high, scheduled first", "high, scheduled second"
    assert log == [(10, first), (10, second), (10, "low"), (20, "late")]


def test_what_is_done_can_schedule_at_the_same_instant() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    kernel.on(int, lambda _: kernel.at(10, "child", 0))  # each kind goes to who acts on it
    kernel.at(10, 1, 0)
    kernel.at(10, "later priority", 1)

    drain(kernel)

    assert log == ["child", "later priority"]
    with pytest.raises(KeyError, match=r"nothing handles 1\.5"):
        kernel.at(20, 1.5)


def test_a_cancelled_entry_is_not_done_and_does_not_move_the_clock() -> None:
    log: list[str] = []
    kernel = clock(log.append)
    kept = kernel.at(10, "kept")
    kernel.cancel(kernel.at(99, "cancelled"))

    drain(kernel)
    kernel.cancel(kept)  # over, and cancelled twice
    kernel.cancel(kept)

    assert (log, kernel.now_ns) == (["kept"], 10)


def test_nothing_is_scheduled_in_the_past() -> None:
    kernel = clock(str.strip, 100)
    assert kernel.step() is False  # nothing is due

    with pytest.raises(ValueError, match="1 ns in the past"):
        kernel.at(99, "")
