"""Gangs that a failure stopped, or that sit on draining hosts: swap hosts or requeue."""

from __future__ import annotations

from placement import hostset
from placement.constraints import joinable
from placement.hostset import HostSet
from placement.swaps import choose_swaps
from scheduler.core.company import Company
from scheduler.core.job import Job
from scheduler.core.lifecycle import HostState, JobState
from scheduler.core.plan import Action, Move, Requeue, Swap
from scheduler.core.state import State


def restarts(state: State) -> tuple[Action, ...]:
    """Swaps for gangs that stopped or sit on draining hosts, most important first."""
    hit = state.unhealthy & state.held
    if not hit and not state.stopped:
        return ()
    moved = [
        job
        for job in state.in_state(JobState.INTERRUPTED, JobState.RUNNING)
        if job.state is JobState.INTERRUPTED or (hit and job.held & hit)
    ]
    actions: list[Action] = []
    free, company = state.free, Company(state)
    for job in sorted(moved, key=lambda j: j.order):
        open_to = free & ~company.closed(job.name, job.spec.neighbours)
        action = _restart(state, job, open_to)
        if action is not None:
            actions.append(action)
        if isinstance(action, Swap):
            joined = hostset.of(move.joined for move in action.moves)
            free &= ~joined
            company.took(job, job.held | joined)
    return tuple(actions)


def _restart(state: State, job: Job, free: HostSet) -> Action | None:
    """Replace what cannot run; a gang that stopped and finds no host is requeued.

    One whose hosts were all repaired before this decision starts again in place.
    """
    failed = _blocks_on(state, job, HostState.FAILED)
    draining = _blocks_on(state, job, HostState.DRAINING)
    own = hostset.of(job.spares) & ~state.unhealthy
    for blocks in (sorted(failed + draining), failed):
        if not blocks and job.state is JobState.RUNNING:
            return None  # not draining, or nowhere to go yet: it runs on
        chosen = choose_swaps(state.loaded_fabric, job.spec.request, job.hosts, blocks, own, free)
        if chosen is not None:
            moves = tuple(Move(b, job.hosts[b], joined) for b, joined in chosen.joined)
            return Swap(job.name, moves, chosen.cuts)
    kept = own | hostset.of(h for b, h in enumerate(job.hosts) if b not in failed)
    may = (own | free) & joinable(state.loaded_fabric, job.spec.request.where, kept)
    short = f"{len(failed)} failed, {may.bit_count()} to swap in"
    return Requeue(job.name, f"{job.reason}; no host to swap in ({short})")


def _blocks_on(state: State, job: Job, host_state: HostState) -> list[int]:
    """Blocks of the gang whose host is in this state, which is not HEALTHY."""
    return [b for b, host in enumerate(job.hosts) if state.host(host).state is host_state]
