"""Spares that were used are held again; surplus ones are let go.

Only in a decision in which nothing else happens, so everybody who waits has been asked
before: a number or share of spares that a job insists on comes first, then what the zones of
all others lack. Neither takes a host that somebody waits for whose start can be foreseen.
Spares are let go when a zone holds more than would be enough ten times as surely, so that
none comes and goes as rates drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import or_

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, joinable
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.grow import GrowthRoom
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import ReplenishSpares
from scheduler.core.model.scheduling_options import SchedulingOptions, expected_end_ns
from scheduler.core.model.state import State
from scheduler.core.rules.calendar import Calendar
from scheduler.core.tenancy.spare_loans import SpareLoans
from scheduler.core.wording import hosts_text

SURELY = 10  # times as seldom short as asked for


def replenishments(
    state: State, now_ns: int, options: SchedulingOptions, room: GrowthRoom
) -> tuple[ReplenishSpares, ...]:
    """Return the spares that jobs take from the free hosts, or give back. Cost: O(hosts held),
    nothing where none wants spares."""
    gangs = map(state.jobs.__getitem__, state.index.special)
    if all(job.spec.request.spares.hosts == 0 for job in gangs):
        return ()
    pools = SparePools(state)
    if moved := (*_home(state, now_ns), *_release_unusable(state)):
        return moved
    if room.free:
        actions = [
            *_required(pools, now_ns, options, room),
            *_replenished(pools, now_ns, options, room),
        ]
        if actions:
            return tuple(actions)
    return tuple(_release_excess(pools))


def _home(state: State, now_ns: int) -> Iterator[ReplenishSpares]:
    """Spares that were lent and that nobody is on any more, unless a window has them now."""
    loans = SpareLoans(state)
    for job in state.in_state(JobState.RUNNING) if loans.unused_loans else ():
        barred = Calendar(state).closed(job, now_ns, now_ns + 1)
        home = (h for h in loans.idle(job) if not hostset.has(barred, h))
        spares = (*job.spares, *(h for h in home if h not in job.spares))
        if more := hostset.of(spares) & ~hostset.of(job.spares):
            yield ReplenishSpares(
                job.name, spares, more, f"gets back {hosts_text(more.bit_count())}"
            )


def _release_unusable(state: State) -> Iterator[ReplenishSpares]:
    """Release spares that are cordoned or drained: nobody may start on them, and their site waits
    for them to be empty."""
    hosts = state.index.unhealthy & state.index.held
    for job in state.in_state(JobState.RUNNING) if hosts else ():
        unusable = hostset.of(job.spares) & hosts
        if unusable:
            kept = tuple(s for s in job.spares if not hostset.has(unusable, s))
            text = f"releases {hosts_text(unusable.bit_count())} that nothing may start on"
            yield ReplenishSpares(job.name, kept, 0, text)


def _required(
    pools: SparePools, now_ns: int, options: SchedulingOptions, room: GrowthRoom
) -> Iterator[ReplenishSpares]:
    """For gangs that insist on more spares than they have left."""
    for job in sorted(pools.state.in_state(JobState.RUNNING), key=lambda j: j.order):
        rule = job.spec.request.spares
        lacking = 0 if rule.is_auto else rule.required(len(job.hosts)) - len(job.all_spares)
        if lacking > 0:
            held = hostset.of(job.hosts)
            near = reduce(or_, (zone for zone in pools.zones if zone & held), 0)
            hosts = _replenish_job(pools, job, near, lacking, now_ns, options, room)
            yield from hosts or _replenish_job(pools, job, ~0, lacking, now_ns, options, room)


def _replenished(
    pools: SparePools, now_ns: int, options: SchedulingOptions, room: GrowthRoom
) -> Iterator[ReplenishSpares]:
    """Give zones the spares that they lack, held by the most important gang that can."""
    grown: set[str] = set()
    for inside, wish, held in zip(pools.zones, pools.wishes, pools.spares_by_zone, strict=True):
        lacking = wish - held
        if lacking <= 0:
            continue
        for job in pools.jobs:
            if (
                job.name in grown
                or job.state is not JobState.RUNNING
                or not job.allocation & inside
            ):
                continue
            for refill in _replenish_job(pools, job, inside, lacking, now_ns, options, room):
                grown.add(job.name)
                lacking -= refill.joined.bit_count()
                yield refill
            if lacking <= 0:
                break


def _replenish_job(
    pools: SparePools,
    job: Job,
    inside: HostSet,
    most: int,
    now_ns: int,
    options: SchedulingOptions,
    room: GrowthRoom,
) -> list[ReplenishSpares]:
    """At most so many hosts more for `job`, of these."""
    state = pools.state
    if not room.free & inside:
        return []
    end_ns = expected_end_ns(job, now_ns, options)
    hosts, count = room.spare_room(job, end_ns)
    hosts &= room.free & inside
    if job.request.where != ANYWHERE:
        hosts &= joinable(state.loaded_fabric, job.request.where, job.allocation)
    more = _chosen(pools, hosts, min(most, count))
    if not more:
        return []
    room.record_growth(job, more, end_ns)
    spares = (*job.spares, *hostset.members(more))
    return [
        ReplenishSpares(
            job.name, spares, more, f"holds {hosts_text(more.bit_count())} more", end_ns
        )
    ]


def _chosen(pools: SparePools, hosts: HostSet, count: int) -> HostSet:
    """Hosts of racks that are not wholly free first: whole ones serve the next gang best,
    and are what a lost switch takes, so they come first where whole racks are asked for."""
    fabric = pools.state.loaded_fabric
    members = hostset.members(hosts)
    if len(fabric.tiers) > 1 and len(members) > count:
        rack_of = {host: int(fabric.tiers[-1].domain_by_host[host]) for host in members}
        free_in = Counter(rack_of.values())
        sign = -1 if pools.sizing.racks else 1
        members.sort(key=lambda host: (sign * free_in[rack_of[host]], host))
    return hostset.of(members[: max(0, count)])


def _release_excess(pools: SparePools) -> Iterator[ReplenishSpares]:
    """Spares beyond need, those of the least important jobs first, where no gang lies
    before elsewhere."""
    surely = replace(pools.sizing, epsilon=pools.sizing.epsilon / SURELY)
    enough = pools.wishes_by(surely)
    beyond = sum(pools.spares_by_zone) - sum(enough)
    over = [held - much for held, much in zip(pools.spares_by_zone, enough, strict=True)]
    zone_of = pools.state.loaded_fabric.zone_of
    for job in reversed(pools.jobs):
        if beyond <= 0:
            return
        released = []
        for spare in sorted(job.spares, key=lambda s: (pools.hosts[zone_of(s)] > 0, s)):
            zone = zone_of(spare)
            if beyond > 0 and over[zone] > 0:
                released.append(spare)
                beyond, over[zone] = beyond - 1, over[zone] - 1
        if released:
            kept = tuple(s for s in job.spares if s not in released)
            yield ReplenishSpares(
                job.name, kept, 0, f"releases {hosts_text(len(released))}: more than enough"
            )
