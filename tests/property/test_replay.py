"""Replays against an independent scheduler, and laws that every replay keeps.

The reference below is written from the published definition of EASY backfilling
(Lifka 1995; Mu'alem and Feitelson 2001), on one kind of host and nothing else: it
knows no events, no placement and no state machine.
"""

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
from tests.replays import World, machine, replayed

HOSTS = 6


@dataclass(frozen=True, slots=True)
class Asked:
    number: int
    submit: int
    run: int
    limit: int
    hosts: int
    priority: int


@st.composite
def workloads(draw: st.DrawFn) -> list[Asked]:
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
        Asked(i, submit, run, max(1, run + slack), hosts, priority)
        for i, (submit, run, slack, hosts, priority) in enumerate(jobs)
    ]


def reference(jobs: list[Asked], policy: str) -> dict[int, int]:
    """Start times in seconds, by number."""
    starts: dict[int, int] = {}
    running: list[tuple[int, Asked]] = []  # (start, job)
    now = 0
    while len(starts) < len(jobs):
        running = [(start, job) for start, job in running if start + job.run > now]
        waiting = [job for job in jobs if job.submit <= now and job.number not in starts]
        waiting.sort(key=lambda j: (-j.priority if policy == "production" else 0, j.number))
        for job in starting(waiting, running, now, policy):
            starts[job.number] = now
            running.append((now, job))
        # Decisions fall due when a job comes or ends, not when a limit merely passes.
        due = [job.submit for job in jobs] + [start + job.run for start, job in running]
        now = min((t for t in due if t > now), default=now + 1)
    return starts


def starting(
    waiting: list[Asked], running: list[tuple[int, Asked]], now: int, policy: str
) -> list[Asked]:
    free = HOSTS - sum(job.hosts for _, job in running)
    chosen: list[Asked] = []
    while waiting and waiting[0].hosts <= free:
        chosen.append(waiting.pop(0))
        free -= chosen[-1].hosts
    if not waiting or policy == "fifo":
        return chosen
    # The shadow time: when the estimates of those that run make room for the first.
    ends = [(expected_end(start + job.limit, now), job.hosts) for start, job in running]
    ends += [(now + job.limit, job.hosts) for job in chosen]
    shadow = min(
        t for t, _ in ends if free + sum(h for end, h in ends if end <= t) >= waiting[0].hosts
    )
    extra = free + sum(h for end, h in ends if end <= shadow) - waiting[0].hosts
    for job in waiting[1:]:
        if job.hosts > free:
            continue
        if now + job.limit > shadow:
            if job.hosts > extra:
                continue
            extra -= job.hosts
        free -= job.hosts
        chosen.append(job)
    return chosen


def expected_end(estimate: int, now: int) -> int:
    """A job past its estimate is given one minute, then two, four, ... in all."""
    step = 0
    while estimate + step <= now:
        step = 2 * step or 60
    return estimate + step


def trace(jobs: list[Asked]) -> list[TraceJob]:
    return [
        TraceJob(
            f"j{job.number}",
            job.submit * SECOND_NS,
            job.run * SECOND_NS,
            job.number,
            job.hosts,
            job.limit * SECOND_NS,
            priority=job.priority,
        )
        for job in jobs
    ]


@pytest.mark.parametrize("policy", ["production", "easy", "fifo"])
@given(workloads())
def test_every_job_starts_when_the_reference_starts_it(policy: str, jobs: list[Asked]) -> None:
    world = replayed(machine(HOSTS), trace(jobs), policy)

    expected = {f"j{number}": start for number, start in reference(jobs, policy).items()}
    assert world.starts_s() == expected


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
    jobs: list[Asked], failing: list[Outage], checkpoint_s: int, decision_s: int
) -> None:
    world = replayed(
        machine(HOSTS),
        trace(jobs),
        outages=failing,
        costs=Costs(checkpoint_s, restart_s=2),
        decision_ns=decision_s * SECOND_NS,
    )

    assert set(world.rows) == {f"j{job.number}" for job in jobs}
    for job in jobs:
        row = world.rows[f"j{job.number}"]
        assert row.run_ns == job.run * SECOND_NS
        assert row.end_ns - row.submit_ns >= row.run_ns
    assert_no_host_twice(world)
    metrics = world.metrics
    spent = metrics.spent().hosts
    assert spent.running == sum(row.host_ns for row in world.rows.values())
    assert spent.productive == sum(job.run * job.hosts for job in jobs) * SECOND_NS
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
