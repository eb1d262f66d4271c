"""Replays against the published policies (scripts/backfill_reference.py), and laws of replays."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, State, apply
from scheduler.core.policies.costs import Costs
from scripts import backfill_reference as reference
from scripts import conservative_reference
from scripts.backfill_reference import Job, Machine
from simulator.collectors.invariants import InvariantChecker
from simulator.failures import Outage, merged
from simulator.traces.record import SECOND_NS, TraceJob
from tests.replays import down, machine, replayed, trace_job, up

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
        trace_job(job.name, job.submit, job.run, job.size, job.estimate, job.priority, number)
        for number, job in enumerate(jobs)
    ]


@pytest.mark.parametrize(
    "policy", [production, reference.easy, reference.fifo, reference.conservative]
)
@settings(max_examples=40)
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
        found += [down(begin, f"z0-h{host}"), up(begin + length, f"z0-h{host}")]
    return list(merged([sorted(found)]))


@settings(max_examples=50)
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


# --- the references, by hand and against each other ------------------------------------

PROCESSORS = 64


def crowded(seed: int, count: int, load: float, exactness: str) -> list[Job]:
    """Jobs whose queue forms and dissolves: sizes in powers of two and odd ones, run
    times over three decades, several at one instant."""
    rng = random.Random(seed)
    jobs, now = [], 0
    for number in range(1, count + 1):
        size = min(PROCESSORS, rng.choice([1, 1, 2, 3, 4, 8, 8, 13, 16, 32, 50, 64]))
        run = round(10 ** rng.uniform(1, 4))
        factors = {"exact": [1], "loose": [1, 1.5, 3, 10]}
        estimate = max(1, round(run * rng.choice(factors[exactness])))
        jobs.append(Job(str(number), now, run, estimate, size))
        mean_s = size * run / PROCESSORS
        now += round(rng.choice([0, 1, 2]) * mean_s / load)
    return jobs


@pytest.mark.parametrize("exactness", ["exact", "loose"])
def test_the_fast_reference_says_what_the_plain_one_does(exactness: str) -> None:
    """The plain one takes too long for the logs that `make validate` replays."""
    jobs = crowded(5, 60, 1.3, exactness)
    starts = conservative_reference.schedule(jobs, PROCESSORS)
    assert starts == reference.schedule(jobs, PROCESSORS, reference.conservative)
    assert sum(starts[job.name] > job.submit for job in jobs) > 30  # a queue forms


def test_the_reference_by_hand() -> None:
    """Four processors; `wide` waits for `long`; EASY lets `brief` by and holds `tardy`."""
    jobs = [
        Job("long", 0, 10, 10, 3),
        Job("wide", 1, 5, 5, 4),
        Job("tardy", 2, 20, 20, 1),
        Job("brief", 3, 7, 7, 1),
    ]
    fifo = {"long": 0, "wide": 10, "tardy": 15, "brief": 15}
    assert reference.schedule(jobs, 4, reference.fifo) == fifo
    assert reference.schedule(jobs, 4, reference.easy) == {**fifo, "brief": 3}
    assert reference.schedule(jobs, 4, reference.conservative) == {**fifo, "brief": 3}


def test_conservative_keeps_what_easy_breaks() -> None:
    """`second` may be delayed under EASY, for only `first` holds a reservation."""
    jobs = [
        Job("runs", 0, 10, 10, 2),
        Job("first", 1, 10, 10, 3),
        Job("second", 2, 10, 10, 4),
        Job("filler", 3, 30, 30, 1),
    ]
    easy = reference.schedule(jobs, 4, reference.easy)
    conservative = reference.schedule(jobs, 4, reference.conservative)
    assert (easy["filler"], easy["second"]) == (3, 33)
    assert (conservative["filler"], conservative["second"]) == (30, 20)
