"""Reservations are kept: nobody who was promised a start starts later.

Jobs end at their limits or before, no host fails, and every decision's reservations are
written down. Under priority a promise ends when something more important arrives. Windows are all
known from the beginning, and jobs run exactly as long as they state where there are some.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, State, decide, replay
from scheduler.core.capacity.window_hosts import gangs_on
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import Plan, Start
from scheduler.core.model.window import WindowKind
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.calendar import next_edge_ns
from tests.build import admitted, committed, end, fabric, loaded, run, submit
from tests.property.driver import tried
from tests.windows import set_window

EMPTY = loaded(fabric(2, 2, 2))

Job = tuple[int, int, int, int, int]
# (seconds after the one before, hosts, limit, seconds it really runs at most, priority)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 8),
        st.integers(1, 60),
        st.integers(1, 60),
        st.integers(0, 2),
    ),
    min_size=3,
    max_size=25,
)
Window = tuple[int, int, tuple[str, ...], int, bool]
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
GUARANTEES = Tenants(
    (Tenant("a", guaranteed_gpus=16), Tenant("b", guaranteed_gpus=24), Tenant("default"))
)
TENANT_BY_PRIORITY = ("a", "b", "default")


def booked(windows: list[Window]) -> State:
    """The empty cluster with those of the windows that can be had."""
    state = EMPTY
    for number, (start_s, lasts_s, place, count, is_held) in enumerate(windows):
        window = set_window(
            f"w{number}",
            *place,
            start_s=start_s,
            end_s=start_s + lasts_s,
            count=0 if place else count,
            jobs=("vip*",) if is_held or not place else (),
        )
        state = tried(state, 0, window)
    return state


def check_open(state: State) -> None:
    """Maintenance finds its hosts empty, a reservation those alone that it is for."""
    for booking in state.windows.values():
        if booking.state is WindowState.OPEN:
            there = [job.name for job in gangs_on(state, booking)]
            is_held = booking.window.kind is WindowKind.RESERVATION
            assert all(is_held and name.startswith("vip") for name in there)


class Life:
    """A cluster until all has ended. Where tenants are, a job's priority says whose it is; where
    windows are, whether it is a VIP."""

    def __init__(
        self,
        jobs: list[Job],
        options: SchedulingOptions,
        tenants: Tenants | None = None,
        windows: list[Window] | None = None,
    ) -> None:
        self.jobs, self.options, self.tenants, self.windows = jobs, options, tenants, windows
        self.state = booked(windows or [])
        if tenants:
            self.state = run(self.state, LoadTenants(tenants))
        self.due: list[tuple[int, int, int]] = []  # time, 0 end or 1 arrival, number
        at_s = 0
        for number, (after_s, *_) in enumerate(jobs):
            at_s += after_s
            heappush(self.due, (at_s * SECOND_NS, 1, number))

    def name(self, number: int) -> str:
        return f"{'vip' if self.windows and self.jobs[number][4] == 2 else 'j'}{number}"

    def arrival(self, number: int) -> Command:
        _, hosts, limit_s, _, priority = self.jobs[number]
        name = self.name(number)
        if self.tenants:
            tenant = TENANT_BY_PRIORITY[priority]
            return submit(name, min(hosts, 3), limit_s=limit_s, tenant=tenant)
        return submit(name, hosts, limit_s=limit_s, priority=0 if self.windows else priority)

    def decisions(self) -> Iterator[tuple[int, list[int], Plan]]:
        """(time, priorities that arrived, plan) of every decision."""
        now_ns = 0
        while self.due or self.state.index.queue:
            moments = [next_edge_ns(self.state), self.due[0][0] if self.due else None]
            ahead = [at for at in moments if at is not None]
            assert ahead, f"{list(self.state.index.queue)} wait for ever"
            now_ns, arrived = max(now_ns, min(ahead)), list[int]()
            while self.due and self.due[0][0] == now_ns:
                _, is_arrival, number = heappop(self.due)
                command = self.arrival(number) if is_arrival else end(self.name(number))
                self.state = replay(admitted(self.state, command, now_ns), self.state)
                arrived += [self.jobs[number][4]] if is_arrival else []
            while True:
                plan = decide(self.state, now_ns, self.options)
                yield now_ns, arrived, plan
                if not plan.actions:
                    break
                self.state = replay(committed(self.state, plan, now_ns), self.state)
                for start in starts(plan):
                    number = int(start.name.lstrip("vipj"))
                    _, _, limit_s, run_s, _ = self.jobs[number]
                    lasts_s = limit_s if self.windows else min(limit_s, run_s)
                    heappush(self.due, (now_ns + lasts_s * SECOND_NS, 0, number))
            check_open(self.state)
        assert not self.state.jobs, "everybody had a turn"


def starts(plan: Plan) -> list[Start]:
    return [action for action in plan.actions if isinstance(action, Start)]


def check_kept(life: Life) -> None:
    promised: dict[str, int] = {}
    is_ranked = life.options.policy == "production"
    for now_ns, arrived, plan in life.decisions():
        if is_ranked and arrived:
            promised = {
                name: start_ns
                for name, start_ns in promised.items()
                if life.jobs[int(name[1:])][4] >= max(arrived)
            }
        for start in starts(plan):
            assert now_ns <= promised.get(start.name, now_ns), f"{start.name} starts late"
        for reservation in plan.reservations:
            earlier = promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            promised[reservation.name] = reservation.start_ns
            if is_ranked:
                needed = life.state.jobs[reservation.name].needed
                assert reservation.hosts.bit_count() == needed
        if life.windows and not plan.actions:
            late = [
                name for name in life.state.index.queue if promised.get(name, now_ns + 1) <= now_ns
            ]
            assert not late, f"{late} wait beyond their start"


@pytest.mark.parametrize(
    ("policy", "tenants"), [*((policy, None) for policy in BUILT_IN), ("easy", GUARANTEES)]
)
@settings(max_examples=40, deadline=None)
@given(jobs=JOBS)
def test_nobody_starts_later_than_promised(
    policy: str, tenants: Tenants | None, jobs: list[Job]
) -> None:
    """Also where others are guaranteed hosts, in order of arrival: nobody comes between."""
    check_kept(Life(jobs, SchedulingOptions(policy=policy), tenants))


@pytest.mark.parametrize("policy", ["conservative", "easy", "fifo"])
@settings(max_examples=30, deadline=None)
@given(jobs=JOBS, windows=WINDOWS)
def test_windows_put_nobody_off(policy: str, jobs: list[Job], windows: list[Window]) -> None:
    check_kept(Life(jobs, SchedulingOptions(policy=policy), windows=windows))


def test_a_tenant_does_not_use_up_what_its_first_job_counts_on() -> None:
    """j3 counts on the second of two hosts that are promised to its tenant; j4, of the same
    tenant, would outlast that start and hold it."""
    jobs = [(0, 1, 1, 1, 1), (0, 1, 2, 1, 1), (0, 3, 2, 1, 2), (0, 2, 1, 1, 1), (0, 1, 2, 1, 1)]
    life = Life(jobs, SchedulingOptions(policy="easy"), GUARANTEES)
    begun = {start.name: at for at, _, plan in life.decisions() for start in starts(plan)}
    assert begun == {"j0": 0, "j1": 0, "j2": 0, "j3": SECOND_NS, "j4": SECOND_NS}
