"""Reservations are kept: nobody who was promised a start starts later.

Jobs end at their limits or before, no host fails, and every decision's reservations are
written down. Under priority a promise ends when something more important arrives.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, decide, replay
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Plan, Start
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from tests.build import admitted, committed, end, fabric, loaded, run, submit

EMPTY = loaded(fabric(1, 2, 4))

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


GUARANTEES = Tenants(
    (Tenant("a", guaranteed_gpus=16), Tenant("b", guaranteed_gpus=24), Tenant("default"))
)
TENANT_BY_PRIORITY = ("a", "b", "default")


def lived(
    jobs: list[tuple[int, int, int, int, int]],
    options: SchedulingOptions,
    tenants: Tenants | None = None,
) -> Iterator[tuple[int, list[int], Plan]]:
    """(time, priorities that arrived, plan) of every decision, until all has ended."""
    state, at_s = EMPTY, 0
    if tenants:
        state = run(EMPTY, LoadTenants(tenants))
    happenings: list[tuple[int, int, int]] = []  # time, 0 end or 1 arrival, number
    for number, (after_s, *_) in enumerate(jobs):
        at_s += after_s
        heappush(happenings, (at_s, 1, number))
    while happenings:
        now_s, now_ns, arrived = happenings[0][0], happenings[0][0] * SECOND_NS, []
        while happenings and happenings[0][0] == now_s:
            _, is_arrival, number = heappop(happenings)
            _, hosts, limit_s, _, priority = jobs[number]
            name = f"j{number}"
            job = submit(name, hosts, limit_s=limit_s, priority=priority)
            if tenants:
                tenant = TENANT_BY_PRIORITY[priority]
                job = submit(name, min(hosts, 3), limit_s=limit_s, tenant=tenant)
            state = replay(admitted(state, job if is_arrival else end(name), now_ns), state)
            arrived += [priority] if is_arrival else []
        while True:
            plan = decide(state, now_ns, options)
            yield now_s, arrived, plan
            if not plan.actions:
                break
            for event in committed(state, plan, now_ns):
                state = replay([event], state)
            for action in plan.actions:
                if isinstance(action, Start):
                    number = int(action.name[1:])
                    run_s = min(jobs[number][2], jobs[number][3])
                    heappush(happenings, (now_s + run_s, 0, number))
    assert not state.jobs, "everybody had a turn"


@pytest.mark.parametrize("policy", BUILT_IN)
@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_nobody_starts_later_than_promised(
    policy: str, jobs: list[tuple[int, int, int, int, int]]
) -> None:
    promised: dict[str, int] = {}
    for now_s, arrived, plan in lived(jobs, SchedulingOptions(policy=policy)):
        if policy == "production" and arrived:
            promised = {
                name: start_ns
                for name, start_ns in promised.items()
                if jobs[int(name[1:])][4] >= max(arrived)
            }
        for action in plan.actions:
            if isinstance(action, Start):
                late_ns = now_s * SECOND_NS - promised.get(action.name, now_s * SECOND_NS)
                assert late_ns <= 0, f"{action.name} starts {late_ns} ns late"
        for reservation in plan.reservations:
            earlier = promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            promised[reservation.name] = reservation.start_ns


@settings(max_examples=100, deadline=None)
@given(jobs=JOBS)
def test_so_it_is_where_others_are_guaranteed_hosts(
    jobs: list[tuple[int, int, int, int, int]],
) -> None:
    """In order of arrival, so that nobody comes between; each tenant's promise stands."""
    promised: dict[str, int] = {}
    for now_s, _, plan in lived(jobs, SchedulingOptions(policy="easy"), GUARANTEES):
        for action in plan.actions:
            assert isinstance(action, Start)
            assert now_s * SECOND_NS <= promised.get(action.name, now_s * SECOND_NS)
        for reservation in plan.reservations:
            earlier = promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            promised[reservation.name] = reservation.start_ns


def test_a_tenant_does_not_use_up_what_its_first_job_counts_on() -> None:
    """j3 counts on the second of two hosts that are promised to its tenant; j4, of the same
    tenant, would outlast that start and hold it."""
    jobs = [(0, 1, 1, 1, 1), (0, 1, 2, 1, 1), (0, 3, 2, 1, 2), (0, 2, 1, 1, 1), (0, 1, 2, 1, 1)]
    starts = {
        action.name: now_s
        for now_s, _, plan in lived(jobs, SchedulingOptions(policy="easy"), GUARANTEES)
        for action in plan.actions
        if isinstance(action, Start)
    }
    assert starts == {"j0": 0, "j1": 0, "j2": 0, "j3": 1, "j4": 1}


@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_a_reservation_names_hosts_that_will_do(
    jobs: list[tuple[int, int, int, int, int]],
) -> None:
    for _, _, plan in lived(jobs, SchedulingOptions()):
        for reservation in plan.reservations:
            assert reservation.hosts.bit_count() == jobs[int(reservation.name[1:])][1]
            assert reservation.hosts < 1 << 8
