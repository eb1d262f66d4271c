"""Replays against the published policies (tests/backfill_reference.py), and laws that every replay
keeps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.events import (
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobRequeued,
    JobStarted,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.costs import Costs
from simulator.failures import Outage, merged
from simulator.traces.record import SECOND_NS, TraceJob
from tests import backfill_reference as reference
from tests.backfill_reference import Job, Machine
from tests.replays import World, machine, replayed

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


@pytest.mark.parametrize("policy", [production, reference.easy, reference.fifo])
@given(workloads())
def test_every_job_starts_when_the_reference_starts_it(
    policy: Callable[[Machine], Iterator[Job]], jobs: list[Ranked]
) -> None:
    world = replayed(machine(HOSTS), trace(jobs), policy.__name__)

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
    assert_no_host_twice(world)
    metrics = world.metrics
    spent = metrics.spent().hosts
    assert spent.running == sum(row.host_ns for row in world.rows.values())
    assert spent.productive == sum(job.run * job.size for job in jobs) * SECOND_NS
    assert metrics.restarts == sum(row.attempts - 1 for row in world.rows.values())


def assert_no_host_twice(world: World) -> None:
    """Follow the log by names alone: a host has one gang and is up when it gets it."""
    gangs: dict[str, list[str]] = {}
    out: set[str] = set()
    for event in world.log:
        match event:
            case JobStarted():
                assert event.name not in gangs
                gangs[event.name] = list(event.hosts)
                assert not out & set(event.hosts)
            case GangResized():
                gangs[event.name] = list(event.hosts)
                assert not out & set(event.hosts)
            case GangSwapped():
                for swap in event.swaps:
                    assert gangs[event.name][swap.block] == swap.left
                    assert swap.joined not in out
                    gangs[event.name][swap.block] = swap.joined
            case JobRequeued() | JobEnded():
                gangs.pop(event.name, None)
            case HostMoved():
                (out.add if event.move is HostMove.FAIL else out.discard)(event.host)
            case _:
                pass
        held = [host for hosts in gangs.values() for host in hosts]
        assert len(held) == len(set(held))
