"""The zones of a gang that hold fewer spares than their target, and what that costs in a month.

A failure meets no spare while as many hosts of the zone are out as it holds spares. It then costs
what the cheapest restart does without one, as in outlook: at worst the wait for the first repair.
"""

from __future__ import annotations

from muster.structs import struct
from placement.fabric import hostset
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.restart.prospect import cost_s

DAYS_A_MONTH = 30


@struct(frozen=True, slots=True)
class SpareShortage:
    """The lack of spares of a gang in one outermost domain. `spares`: in service for the gang
    there, of `target`. `missed`: failures of its hosts in 30 days that find no spare; `gpu_hours`:
    what each then costs."""

    domain: str
    spares: int
    target: int
    missed: float
    gpu_hours: float


def spare_shortages(
    state: State, name: str, now_ns: int, options: SchedulingOptions
) -> tuple[SpareShortage, ...]:
    """Return the zones of a gang that lack spares, in the order of the fabric; none of a gang that
    holds no hosts, asks for no spares or leaves its host to others. Cost: a restart for each."""
    job = state.jobs.get(name)
    if job is None or not job.hosts or job.part_gpus or job.spec.request.spares.hosts == 0:
        return ()
    pools, fabric, rule = SparePools(state), state.loaded_fabric, job.spec.request.spares
    sizing, gpus = pools.sizing, len(job.hosts) * fabric.gpus_per_host
    names = fabric.tiers[0].domains if fabric.tiers else (fabric.name,)
    own = hostset.of(job.all_spares) & ~state.index.out_of_service
    shortages = []
    for at, (domain, zone) in enumerate(zip(names, pools.zones, strict=True)):
        mine = (hostset.of(job.hosts) & zone).bit_count()
        if rule.is_auto:
            hosts, spares, target = pools.hosts[at], pools.spares_by_zone[at], pools.wishes[at]
        else:
            hosts, spares = mine, (own & zone).bit_count()
            target = rule.required(len(job.hosts)) * mine // len(job.hosts)
        if not mine or spares >= target:
            continue
        chance = sizing.shortage_share(hosts, spares - 1) if spares else 1.0
        cost = cost_s(state, job, zone, now_ns, options)
        most_h = sizing.repair_days * 24 / (spares + 1)
        lost_h = most_h if cost is None else min(most_h, cost / gpus / 3600)
        missed = mine * sizing.failures_per_host_day * DAYS_A_MONTH * chance
        shortages.append(SpareShortage(domain, spares, target, missed, lost_h * gpus))
    return tuple(shortages)
