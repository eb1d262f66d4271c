"""Promises hold where windows are: nobody starts later than was promised.

All windows are known from the beginning, jobs run exactly as long as they state, no host
fails. Then under *conservative* nobody starts later than any promise made to it, and under
*easy* the first that waits is not put off.
"""

from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, State, admit, decide, replay
from scheduler.core.capacity.window_hosts import gangs_on
from scheduler.core.model.commands import Command
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import Action, BackfillReservation, Start
from scheduler.core.model.rejected import Rejected
from scheduler.core.model.window import WindowKind
from scheduler.core.rules.calendar import next_edge_ns
from tests.build import admitted, committed, end, fabric, loaded, submit
from tests.windows import set_window

FABRIC = fabric(2, 2, 2)

JOBS = st.lists(
    st.tuples(
        st.integers(0, 20),  # seconds after the one before
        st.integers(1, 8),  # hosts
        st.integers(1, 40),  # limit, and how long it runs
        st.booleans(),  # whether hosts may be held for it
    ),
    min_size=3,
    max_size=20,
)
WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.integers(1, 60),
        st.sampled_from([("z0",), ("z1-r0",), ("z0-r0", "z1-r1"), ("z1-r1-h0",), ()]),
        st.integers(1, 4),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
Job = tuple[int, int, int, bool]
Window = tuple[int, int, tuple[str, ...], int, bool]


def booked(windows: list[Window]) -> State:
    """The empty cluster with those of the windows that can be had."""
    state = loaded(FABRIC)
    for number, (start_s, lasts_s, place, count, is_held) in enumerate(windows):
        is_held = is_held or not place
        window = set_window(
            f"w{number}",
            *place,
            start_s=start_s,
            end_s=start_s + lasts_s,
            count=count if not place else 0,
            jobs=("vip*",) if is_held else (),
        )
        answer = admit(state, window, 0)
        state = state if isinstance(answer, Rejected) else replay(answer, state)
    return state


class Life:
    """A cluster until all has ended; promises are checked as they are made and kept."""

    def __init__(self, jobs: list[Job], windows: list[Window], policy: str) -> None:
        self.state, self.limits = booked(windows), SchedulingOptions(policy=policy)
        self.jobs = jobs
        self.promised: dict[str, int] = {}
        self.due: list[tuple[int, int, str]] = []
        at_s = 0
        for number, (after_s, *_) in enumerate(jobs):
            at_s += after_s
            heappush(self.due, (at_s * SECOND_NS, 1, f"{number}"))

    def live(self) -> None:
        now_ns = 0
        while self.due or self.state.index.queue:
            edge_ns = next_edge_ns(self.state)
            moments = [
                at for at in (edge_ns, self.due[0][0] if self.due else None) if at is not None
            ]
            assert moments, f"{list(self.state.index.queue)} wait for ever"
            now_ns = max(now_ns, min(moments))
            while self.due and self.due[0][0] == now_ns:
                _, is_arrival, name = heappop(self.due)
                command = self.arrival(int(name)) if is_arrival else end(name)
                self.state = replay(admitted(self.state, command, now_ns), self.state)
            self.decide(now_ns)

    def arrival(self, number: int) -> Command:
        _, hosts, limit_s, is_vip = self.jobs[number]
        return submit(f"{'vip' if is_vip else 'j'}{number}", hosts, limit_s=limit_s)

    def decide(self, now_ns: int) -> None:
        """Until nothing more is to be done at this moment."""
        actions: tuple[Action, ...] | None = None
        while actions != ():
            plan = decide(self.state, now_ns, self.limits)
            actions = plan.actions
            starts = [action for action in actions if isinstance(action, Start)]
            self.check(plan.reservations, starts, now_ns)
            self.state = replay(committed(self.state, plan, now_ns), self.state)
            for start in starts:
                heappush(self.due, (start.end_ns, 0, start.name))
        check_open(self.state)
        for name in self.state.index.queue:
            assert self.promised.get(name, now_ns + 1) > now_ns, f"{name} is late"

    def check(
        self, reservations: tuple[BackfillReservation, ...], starts: list[Start], now_ns: int
    ) -> None:
        for reservation in reservations:
            earlier = self.promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            self.promised[reservation.name] = reservation.start_ns
        for start in starts:
            late_ns = now_ns - self.promised.get(start.name, now_ns)
            assert late_ns <= 0, f"{start.name} starts {late_ns} ns late"


def check_open(state: State) -> None:
    """Maintenance finds its hosts empty, a reservation those alone that it is for."""
    for booking in state.windows.values():
        if booking.state is WindowState.OPEN:
            there = [job.name for job in gangs_on(state, booking)]
            is_held = booking.window.kind is WindowKind.RESERVATION
            assert all(is_held and name.startswith("vip") for name in there)


@pytest.mark.parametrize("policy", ["conservative", "easy", "fifo"])
@settings(max_examples=30, deadline=None)
@given(jobs=JOBS, windows=WINDOWS)
def test_windows_put_nobody_off(policy: str, jobs: list[Job], windows: list[Window]) -> None:
    life = Life(jobs, windows, policy)
    life.live()
    assert not life.state.jobs, "everybody had a turn"
