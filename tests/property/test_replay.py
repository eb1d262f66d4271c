"""Replays against the published policies (tests/backfill_reference.py), and laws that every replay
keeps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, State, apply
from scheduler.core.policies.costs import Costs
from simulator.collectors.invariants import InvariantChecker
from simulator.failures import Outage, merged
from simulator.traces.record import SECOND_NS, TraceJob
from tests import backfill_reference as reference
from tests.backfill_reference import Job, Machine
from tests.replays import machine, replayed

HOSTS = 6


@dataclass(frozen=True)
class Ranked(Job):
    priority: int


def production(machine: Machine) -> Iterator[Job]:
    """EASY in order of priority; those of one priority in order of arrival."""
    machine.waiting.sort(key=lambda job: -job.priority if isinstance(job, Ranked) else 0)
    yield from reference.easy(machine)


@st.composite
def workloads(draw: st.DrawFn) -> list[Ranked]:
    """Small times and sizes, so that ties and full machines are common. Limits may be
    longer than the run, or shorter: users guess."""
    drawn = st.tuples(
        st.integers(0, 40),
        st.integers(1, 25),
        st.integers(-5, 15),
        st.integers(1, HOSTS),
        st.integers(0, 2),
    )
    jobs = sorted(draw(st.lists(drawn, min_size=1, max_size=25)), key=lambda job: job[0])
    return [
        Ranked(f"j{i}", submit, run, max(1, run + slack), hosts, priority)
        for i, (submit, run, slack, hosts, priority) in enumerate(jobs)
    ]


def trace(jobs: list[Ranked]) -> list[TraceJob]:
    return [
        TraceJob(
            job.name,
            job.submit * SECOND_NS,
            job.run * SECOND_NS,
            number,
            job.size,
            job.estimate * SECOND_NS,
            priority=job.priority,
        )
        for number, job in enumerate(jobs)
    ]


@pytest.mark.parametrize(
    "policy", [production, reference.easy, reference.fifo, reference.conservative]
)
@given(workloads())
def test_every_job_starts_when_the_reference_starts_it(
    policy: Callable[[Machine], Iterator[Job]], jobs: list[Ranked]
) -> None:
    if policy is reference.conservative:  # nobody can plan with the end of one that overruns
        jobs = [replace(job, run=min(job.run, job.estimate)) for job in jobs]
    options = SchedulingOptions(policy=policy.__name__, most_slips=0, most_reservations=0)
    world = replayed(machine(HOSTS), trace(jobs), policy.__name__, options=options)

    assert world.starts_s() == reference.schedule(jobs, HOSTS, policy)


@st.composite
def outages(draw: st.DrawFn) -> list[Outage]:
    """Each ends; some overlap on one host."""
    drawn = st.tuples(st.integers(0, 120), st.integers(1, 60), st.integers(0, HOSTS - 1))
    found: list[Outage] = []
    for begin, length, host in draw(st.lists(drawn, max_size=8)):
        found.append(Outage(begin * SECOND_NS, f"z0-h{host}", True, "x"))
        found.append(Outage((begin + length) * SECOND_NS, f"z0-h{host}", False, "x"))
    return list(merged([sorted(found)]))


@given(workloads(), outages(), st.sampled_from([0, 7]), st.sampled_from([0, 3]))
def test_whatever_fails_no_work_is_lost_or_done_twice(
    jobs: list[Ranked], failing: list[Outage], checkpoint_s: int, decision_s: int
) -> None:
    world = replayed(
        machine(HOSTS),
        trace(jobs),
        outages=failing,
        costs=Costs(checkpoint_s, restart_s=2),
        decision_ns=decision_s * SECOND_NS,
    )

    assert set(world.rows) == {job.name for job in jobs}
    for job in jobs:
        row = world.rows[job.name]
        assert row.run_ns == job.run * SECOND_NS
        assert row.end_ns - row.submit_ns >= row.run_ns
    checker, state = InvariantChecker(), State.empty()
    for event in world.log:
        state = apply(state, event)
        checker.feed(event, state)
    checker.check(world.tally, world.metrics)
    metrics = world.metrics
    spent = metrics.spent().hosts
    assert spent.running == sum(row.host_ns for row in world.rows.values())
    assert spent.productive == sum(job.run * job.size for job in jobs) * SECOND_NS
    assert metrics.restarts == sum(row.attempts - 1 for row in world.rows.values())
