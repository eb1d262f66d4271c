"""Gangs that a failure stopped, or that are to leave hosts: swap hosts, shrink or requeue.

Hosts are left because they drain, or because a window that opened says so.
"""

from __future__ import annotations

from placement import hostset
from placement.constraints import joinable
from placement.hostset import HostSet
from placement.swaps import choose_swaps
from scheduler.core.calendar import Calendar
from scheduler.core.company import Company
from scheduler.core.job import Job
from scheduler.core.lifecycle import HostState, JobState
from scheduler.core.plan import Action, Move, Requeue, Resize, Swap, taken
from scheduler.core.policy import Limits, time_limit_ns
from scheduler.core.shrink import resize, without_hosts
from scheduler.core.state import State
from scheduler.core.takeback import Lent


def restarts(state: State, now_ns: int, limits: Limits) -> tuple[Action, ...]:
    """Swaps for gangs that stopped or have hosts to leave, most important first."""
    calendar = Calendar(state)
    hit = state.unhealthy & state.held
    if not hit and not state.stopped and not calendar:
        return ()
    moved = [
        job
        for job in state.in_state(JobState.INTERRUPTED, JobState.RUNNING)
        if job.state is JobState.INTERRUPTED or job.held & (hit | calendar.leaving(job)[0])
    ]
    actions: list[Action] = []
    free, company = state.free, Company(state)
    lent = Lent(state, now_ns, limits, frozenset(job.name for job in moved))
    for job in sorted(moved, key=lambda j: j.order):
        closed = company.closed(job.name, job.spec.neighbours)
        action = _restart(state, job, free & ~closed, closed, lent, calendar, limits, now_ns)
        if action is not None:
            actions.append(action)
        if isinstance(action, Swap | Resize):
            joined = taken(action)
            if isinstance(action, Swap) and action.victims:
                free |= lent.left(action.victims)
            free &= ~joined
            company.took(job, job.held | joined)
    return tuple(actions)


def _restart(
    state: State,
    job: Job,
    free: HostSet,
    closed: HostSet,
    lent: Lent,
    calendar: Calendar,
    limits: Limits,
    now_ns: int,
) -> Action | None:
    """Replace what cannot run; a gang that finds no host for it takes back what is lent to
    preemptible ones, or drops the replicas that it cannot run, if it is elastic, else it is
    requeued.

    One whose hosts were all repaired before this decision starts again in place.
    """
    fabric, end_ns = state.loaded_fabric, now_ns + time_limit_ns(job, limits)
    leaving, must = calendar.leaving(job)
    failed = _blocks_on(state, job, HostState.FAILED)
    away = {*failed, *_blocks_in(job, must)}
    if job.state is JobState.INTERRUPTED:
        leaving |= state.closed  # it stands still: a good moment to go
    rest = {*_blocks_on(state, job, HostState.DRAINING), *_blocks_in(job, leaving)}
    shut = calendar.closed(job, now_ns, end_ns)
    own, free = hostset.of(job.spares) & ~(state.out_of_service | shut), free & ~shut
    for blocks in (sorted(away | rest), sorted(away)):
        if not blocks and job.state is JobState.RUNNING:
            return None  # nothing to leave, or nowhere to go yet: it runs on
        chosen = choose_swaps(fabric, job.request, job.hosts, blocks, own, free)
        if chosen is not None:
            moves = tuple(Move(b, job.hosts[b], joined) for b, joined in chosen.joined)
            return Swap(job.name, moves, chosen.cuts, end_ns=end_ns)
    if away and (loan := lent.back(job, sorted(away), own, free, closed | shut)) is not None:
        moves = tuple(Move(b, job.hosts[b], joined) for b, joined in loan.swaps.joined)
        names = tuple(v.name for v in loan.victims)
        is_counted = (own | free).bit_count() < len(away)
        return Swap(job.name, moves, loan.swaps.cuts, False, end_ns, names, is_counted)
    kept = own | hostset.of(h for b, h in enumerate(job.hosts) if b not in away)
    may = (own | free) & joinable(fabric, job.request.where, kept)
    short = f"{may.bit_count()} to swap in"
    why = f"{job.reason}; no host to swap in ({len(failed)} failed, {short})"
    if job.state is JobState.RUNNING:
        opened = calendar.leave_text(job)
        why = f"{opened}; no host to swap in ({len(away)} to leave, {short})"
    if job.sizes:
        longest_ns = now_ns + time_limit_ns(job.least, limits)
        shut = calendar.closed(job, now_ns, longest_ns)
        lost = hostset.of(job.hosts[block] for block in away)
        fit = job.held & ~(state.out_of_service | shut | lost)
        found = without_hosts(fabric, job, lost, fit, free & ~shut, limits.place)
        if found is not None:
            return resize(found, job, why, longest_ns)
    return Requeue(job.name, why)


def _blocks_on(state: State, job: Job, host_state: HostState) -> list[int]:
    """Blocks of the gang whose host is in this state, which is not HEALTHY."""
    return [b for b, host in enumerate(job.hosts) if state.host(host).state is host_state]


def _blocks_in(job: Job, hosts: HostSet) -> list[int]:
    """Blocks of the gang on these hosts."""
    return [b for b, host in enumerate(job.hosts) if hostset.has(hosts, host)] if hosts else []
