"""A tenant that shares a cluster, against one that has its own: with a quota and with cells.

Four zones of eight hosts. One tenant is due a zone's worth of hosts, and its gangs need a
zone to themselves; the other is due the rest, and fills it with small jobs that nobody may
evict. HiveD calls it a sharing anomaly when the first waits longer than it would in a
cluster of its own. Source: Zhao et al., HiveD (OSDI 2020).
"""

from __future__ import annotations

from functools import cache
from random import Random

from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.core import Tenants
from scheduler.core.model.job import SECOND_NS, JobSpec
from scheduler.core.policies.tenants import GuaranteedCell, Tenant
from simulator.collectors.metrics import JobRow, Metrics
from simulator.experiment import Experiment
from simulator.replay import Replay
from simulator.traces.record import TraceJob

ZONES, HOSTS, GPUS = 4, 8, 8
HOUR_S, DAYS, SEEDS = 3_600, 30, 3
GANG = Request(
    Parallelism(tp=GPUS, dp=HOSTS), (("dp", 1),), spares=NO_SPARES, where=Constraints(same="zone")
)


def cluster(zones: int) -> Fabric:
    tiers = [{"name": "zone", "count": zones}, {"name": "host", "count": HOSTS}]
    return from_spec({"name": "cells", "gpus_per_host": GPUS, "tiers": tiers})


def shared(has_cells: bool) -> Tenants:
    """Both are due as much either way: what differs is whether it is a zone."""
    due = HOSTS * GPUS
    cells = (GuaranteedCell("zone", 1),) if has_cells else ()
    rest = due * (ZONES - 1)
    return Tenants(
        (
            Tenant("large", guaranteed_gpus=due, limit_gpus=due, cells=cells),
            Tenant("small", guaranteed_gpus=rest, limit_gpus=rest),
        ),
        default="small",
    )


def gangs() -> list[TraceJob]:
    """A zone for ten hours, twice a day."""
    twice_s = 12 * HOUR_S
    return [_job(i, "gang", twice_s * (i + 1), 10 * HOUR_S, GANG) for i in range(2 * DAYS)]


def small(seed: int) -> list[TraceJob]:
    """A little more than the rest of the cluster can run, on one to three hosts each."""
    random, at_s, jobs = Random(seed), 0.0, []
    while at_s < DAYS * 24 * HOUR_S:
        hosts, run_s = random.randint(1, 3), random.lognormvariate(9.5, 1.0)
        request = Request(Parallelism(tp=GPUS, dp=hosts), (("dp", 1),), spares=NO_SPARES)
        jobs.append(_job(len(jobs), "small", at_s, run_s, request))
        at_s += random.expovariate(1 / 1_900)
    return jobs


def _job(number: int, kind: str, at_s: float, run_s: float, request: Request) -> TraceJob:
    name, tenant = f"{kind}-{number}", "large" if kind == "gang" else "small"
    line = 2 * number + (kind == "gang")  # a number of its own, from which its uid is made
    at_ns, run_ns = round(at_s) * SECOND_NS, round(run_s) * SECOND_NS
    spec = JobSpec(name, request, tenant=tenant)
    return TraceJob(name, at_ns, run_ns, line, request.parallelism.world_size, spec=spec)


def waits_s(fabric: Fabric, jobs: list[TraceJob], tenants: Tenants | None) -> dict[str, float]:
    """From the submit of each gang to its start."""
    waits: dict[str, float] = {}

    def row(ended: JobRow) -> None:
        if ended.name.startswith("gang-"):
            waits[ended.name] = (ended.wait_ns or 0) / SECOND_NS

    in_order = sorted(jobs, key=lambda job: (job.submit_ns, job.line))
    metrics = Metrics(row)
    Replay(Experiment(fabric, tenants=tenants), in_order, metrics.feed).run()
    return waits


@cache
def further_minutes(has_cells: bool) -> float:
    """The longest that a gang waits beyond its wait in a cluster of its own, over all seeds."""
    own = waits_s(cluster(1), gangs(), Tenants((Tenant("large"),), default="large"))
    return max(
        (waits[name] - own[name]) / 60
        for seed in range(SEEDS)
        for waits in [waits_s(cluster(ZONES), gangs() + small(seed), shared(has_cells))]
        for name in own
    )


OURS = {
    "37": lambda: further_minutes(has_cells=False),
    "37b": lambda: further_minutes(has_cells=True),
}
