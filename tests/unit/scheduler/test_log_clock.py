"""The time of events goes on, whatever the machine's clock does."""

import pytest

from scheduler.engine.log_clock import LogClock

S = 10**9
HOUR = 3_600 * S
DAY = 24 * HOUR


class Machine:
    """A clock that can be set, and the time that passes."""

    def __init__(self, now_ns: int) -> None:
        self.clock_ns = now_ns
        self.passed_ns = 0

    def wait(self, ns: int) -> None:
        self.clock_ns += ns
        self.passed_ns += ns

    def log_clock(self, last_ns: int = 0) -> LogClock:
        return LogClock(lambda: self.clock_ns, lambda: self.passed_ns, last_ns)


@pytest.fixture
def machine() -> Machine:
    return Machine(1_000 * DAY)


def test_a_sound_clock_and_small_corrections_are_followed_exactly(machine: Machine) -> None:
    clock = machine.log_clock()
    for step in (0, 1, S, 59 * S, DAY):
        machine.wait(step)
        assert clock.now_ns() == machine.clock_ns
    machine.clock_ns += 30 * S
    assert clock.now_ns() == machine.clock_ns


def test_a_log_from_the_future_does_not_stop_time(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    future = machine.clock_ns + 365 * DAY
    clock = machine.log_clock(future)
    assert clock.now_ns() == future
    assert "clock is 31,536,000 s behind the log: time goes on at half the pace" in caplog.text
    machine.wait(120 * S)
    assert clock.now_ns() == future + 60 * S


def test_a_clock_that_was_ahead_and_is_set_right_is_caught_up_with(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    clock = machine.log_clock()
    machine.clock_ns -= HOUR
    before = clock.now_ns()
    for _ in range(130):
        machine.wait(60 * S)
        now = clock.now_ns()
        assert now > before
        before = now
    assert before == machine.clock_ns
    assert [record.message for record in caplog.records][-1].endswith("level with the log again")
    assert len(caplog.records) == 2  # not one for every reading


def test_a_leap_of_the_clock_is_not_followed_at_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    clock = machine.log_clock()
    started = clock.now_ns()
    machine.clock_ns += 365 * DAY
    assert clock.now_ns() == started
    machine.wait(10 * S)
    assert clock.now_ns() == started + 20 * S
    assert "ahead of the log: time goes on at twice the pace" in caplog.text
    machine.clock_ns -= 365 * DAY  # it was a mistake
    machine.wait(60 * S)
    assert started + 70 * S <= clock.now_ns() <= started + 71 * S


def test_the_time_that_a_server_was_down_counts_and_a_leader_is_believed(machine: Machine) -> None:
    assert machine.log_clock(machine.clock_ns - 30 * DAY).now_ns() == machine.clock_ns
    clock = machine.log_clock()
    clock.advance(machine.clock_ns + HOUR)
    machine.wait(10 * S)
    assert clock.now_ns() == machine.clock_ns + HOUR - 5 * S


def test_a_follower_that_begins_to_lead_goes_on_from_the_last_event(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    clock = machine.log_clock()
    for _ in range(60):
        machine.wait(60 * S)
        clock.advance(machine.clock_ns - S)
    assert clock.now_ns() == machine.clock_ns
    assert caplog.text == ""


def test_a_clock_without_a_measure_is_trusted_but_for_the_log() -> None:
    readings = iter([10, 20, 5, 40])
    clock = LogClock(lambda: next(readings), None, 15)
    clock.advance(15)
    assert [clock.now_ns() for _ in range(3)] == [20, 15, 40]
