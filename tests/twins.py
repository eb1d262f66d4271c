"""A cluster with a past: days of jobs and failures on a small fabric, kept as a backup is."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.request import NO_SPARES, Parallelism, Request
from scheduler.core import JobSpec, State, Tenants, apply
from scheduler.core.model.events import Event
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Tenant
from scheduler.eventlog.ended_jobs import ended_by
from scheduler.eventlog.store.sqlite import open_sqlite
from simulator.experiment import Experiment
from simulator.failures.cause import FailureCause, RepairTime
from simulator.failures.process import outages
from simulator.replay import Replay
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome

MONDAY_NS = 1_795_996_800 * SECOND_NS  # 2026-11-30T00:00Z
DAY_NS = 86_400 * SECOND_NS
TENANTS = Tenants(tenants=(Tenant("vision"), Tenant("speech")), default="vision")


def cluster(zones: int = 2, hosts: int = 8) -> Fabric:
    return from_spec(
        {
            "name": "lab",
            "gpus_per_host": 8,
            "tiers": [
                {"name": "zone", "count": zones, "oversubscription": 7},
                {"name": "rack", "count": 2},
                {"name": "host", "count": hosts // 2},
            ],
        }
    )


def jobs(days: float, a_day: float, seed: int = 1) -> Iterator[TraceJob]:
    """Jobs of 1 to 6 hosts that run for some hours, of two tenants."""
    random, at_s = Random(f"{seed}/past"), 0.0
    number = 0
    while (at_s := at_s + random.expovariate(a_day / 86_400)) < days * 86_400:
        number += 1
        hosts = random.choice((1, 1, 2, 3, 6))
        tenant = random.choice(("vision", "vision", "speech"))
        request = Request(Parallelism(dp=8 * hosts), (("dp", 1),), spares=NO_SPARES)
        spec = JobSpec(f"{tenant}/job-{number}", request, tenant=tenant)
        outcome = TraceOutcome.FAILED if random.random() < 0.1 else TraceOutcome.COMPLETED
        yield TraceJob(
            str(number),
            MONDAY_NS - round(days * DAY_NS) + round(at_s * SECOND_NS),
            round(random.lognormvariate(9.3, 0.9) * SECOND_NS),
            number,
            time_limit_ns=DAY_NS,
            spec=spec,
            outcome=outcome,
        )


def past(
    fabric: Fabric, days: float = 10, a_day: float = 20, failures: float = 20.0
) -> list[tuple[State, Event, State]]:
    """The log until Monday, event by event, with the states before and after. `failures`: per
    1,000 host-days."""
    steps = list[tuple[State, Event, State]]()
    state = State.empty()

    def keep(event: Event, after: State) -> None:
        nonlocal state
        steps.append((state, event, after))
        state = after

    cause = FailureCause("gpu", failures, RepairTime(12))
    experiment = Experiment(
        fabric, costs=Costs(1800, 300, 0), tenants=TENANTS, has_assumed_limits=True
    )
    Replay(experiment, jobs(days + 5, a_day), keep, outages(cause, fabric, 1)).run()
    first_ns = steps[0][1].time_ns
    return [step for step in steps if step[1].time_ns <= first_ns + days * DAY_NS]


def backup(path: Path, fabric: Fabric | None = None, **options: float) -> State:
    """A file as `muster store backup` writes it. The answer: the state at its end."""
    steps = past(fabric or cluster(), **options)
    with closing(open_sqlite(f"sqlite:///{path}", mark=path.with_name("mark"))) as store:
        ended = [job for step in steps if (job := ended_by(*step)) is not None]
        store.append(0, [event for _, event, _ in steps], ended=ended)
    path.with_name("mark").unlink()
    state = State.empty()
    for _, event, _ in steps:
        state = apply(state, event)
    return state
