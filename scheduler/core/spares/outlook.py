"""What the spares of each zone are good for, and what one more would buy.

A zone with k spares is short while more than k of its hosts are out. A failure then costs its
gang what the cheapest restart does without a spare: nothing where a host is free in the
zone, longer steps where one is free elsewhere, the work of evicted gangs; at worst the
wait for a repair, the first of k + 1 or more that are under way, 1/(k+1) of a repair on
average. One spare more makes that rarer and the wait shorter. The price is that of the largest
gang of the zone, as things are now; the others count by their GPUs. The zones of one gang that hold
fewer spares than their target have the price of its own restart.
"""

from __future__ import annotations

from muster.structs import struct
from placement import Sizing
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.spare_pools import SparePools, rack_hosts
from scheduler.core.model.lifecycle import HostState, JobState
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.restart.prospect import cost_s

DAYS_A_YEAR = 365.25
DAYS_A_MONTH = 30


@struct(frozen=True, slots=True)
class ZoneOutlook:
    """The spares of one outermost domain. `gang_hosts`: hosts that its spares stand by for; `down`:
    hosts out by failure. `held`: spares in service, by job in `holders`; `own`: spares that jobs
    hold for themselves alone. `lent`: spares that `borrowers` are on. `wish`: what the rule asks
    for.

    `short`: share of the time in which the spares held are not enough, `short_next` with one more;
    `saved_gpu_hours`: what that one would save in a year.
    """

    domain: str
    gang_hosts: int
    held: int
    own: int
    holders: tuple[tuple[str, int], ...]
    lent: int
    borrowers: tuple[tuple[str, int], ...]
    free: int
    down: int
    wish: int
    whole_racks: int
    short: float
    short_next: float
    saved_gpu_hours: float


@struct(frozen=True, slots=True)
class SparesOutlook:
    """The spares of all zones. `pooled`: spares that one pool of all zones would need for the same
    assurance."""

    zones: tuple[ZoneOutlook, ...]
    sizing: Sizing
    failures: int
    repairs: int
    pooled: int


def spares_outlook(state: State, now_ns: int, options: SchedulingOptions) -> SparesOutlook:
    """Return the spares of every outermost domain, in the order of the fabric. Cost: O(hosts held),
    and a restart for each zone."""
    pools, fabric = SparePools(state), state.loaded_fabric
    names = tuple(fabric.tiers[0].domains) if fabric.tiers else (fabric.name,)
    prices = [_price_s(pools, zone, now_ns, options) for zone in pools.zones]
    zones = tuple(_zone(pools, at, name, prices[at]) for at, name in enumerate(names))
    pooled = pools.pooled_spares
    return SparesOutlook(zones, pools.sizing, state.faults.failures, state.faults.repairs, pooled)


def _price_s(
    pools: SparePools, zone: HostSet, now_ns: int, options: SchedulingOptions
) -> float | None:
    """Seconds of all of its GPUs that a gang of the zone loses where no spare is held; None:
    it waits for a repair."""
    gangs = [j for j in pools.jobs if j.state is JobState.RUNNING and j.allocation & zone]
    if not gangs:
        return None
    largest = max(gangs, key=lambda j: len(j.hosts))
    cost = cost_s(pools.state, largest, zone, now_ns, options)
    gpus = len(largest.hosts) * pools.state.loaded_fabric.gpus_per_host
    return None if cost is None else cost / gpus


def _zone(pools: SparePools, at: int, name: str, price_s: float | None) -> ZoneOutlook:
    state, sizing, inside = pools.state, pools.sizing, pools.zones[at]
    hosts, held = pools.hosts[at], pools.spares_by_zone[at]
    short, short_next = sizing.shortage_share(hosts, held), sizing.shortage_share(hosts, held + 1)
    failed = [i for i, host in state.hosts.items() if host.state is HostState.FAILED]
    spares = {
        job.name: count
        for job in map(state.jobs.__getitem__, state.index.running)
        if (count := sum(inside >> s & 1 for s in job.all_spares))
    }
    owing = [(debt.job.name, debt.hosts.bit_count()) for debt in pools.loans.debts(inside)]
    shared = {job.name for job in pools.jobs}
    return ZoneOutlook(
        name,
        hosts,
        held,
        sum(count for job, count in spares.items() if job not in shared),
        tuple(spares.items()),
        sum(count for _, count in owing),
        tuple(owing),
        (state.free & inside).bit_count(),
        sum(inside >> host & 1 for host in failed),
        pools.wishes[at],
        _count_spare_racks(pools, at),
        short,
        short_next,
        _saved(pools, at, short, short_next, price_s),
    )


def _count_spare_racks(pools: SparePools, at: int) -> int:
    """Racks whose hosts are all spares: as many switches may be lost."""
    fabric, size = pools.state.loaded_fabric, rack_hosts(pools.state.loaded_fabric)
    if not size:
        return 0
    by_rack: dict[int, int] = {}
    for job in pools.jobs:
        for spare in job.spares:
            if pools.zones[at] >> spare & 1:
                rack = int(fabric.tiers[-1].domain_by_host[spare])
                by_rack[rack] = by_rack.get(rack, 0) + 1
    return sum(count == size for count in by_rack.values())


def _saved(
    pools: SparePools, at: int, short: float, short_next: float, price_s: float | None
) -> float:
    """GPU-hours a year that one spare more would save."""
    sizing, held, inside = pools.sizing, pools.spares_by_zone[at], pools.zones[at]
    repair_h = sizing.repair_days * 24
    most_h = repair_h if price_s is None else price_s / 3600
    lost_h = short * min(most_h, repair_h / (held + 1))
    lost_h -= short_next * min(most_h, repair_h / (held + 2))
    stopped = sum(  # GPUs that stand still, over the failures of a day
        len(job.hosts) * sum(inside >> host & 1 for host in job.hosts) for job in pools.jobs
    )
    gpus = stopped * pools.state.loaded_fabric.gpus_per_host
    return gpus * sizing.failures_per_host_day * DAYS_A_YEAR * max(0.0, lost_h)


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
