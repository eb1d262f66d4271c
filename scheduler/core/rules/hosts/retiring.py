"""Gangs on retiring hosts leave when they have just saved their state."""

from __future__ import annotations

from placement import choose_swaps
from placement.fabric import hostset
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import HostState, JobState
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.policies.costs import SECOND_NS
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar, next_edge_ns

JUST_SAVED_NS = 60 * SECOND_NS  # a checkpoint so young need not be waited for again


def has_just_saved(state: State, job: Job, now_ns: int) -> bool:
    """Whether leaving now loses next to nothing, by the one rule of costs. A gang that
    stands still loses nothing in any case."""
    if job.state is JobState.INTERRUPTED:
        return True
    costs = state.tenants.preemption.costs
    return job.next_save_ns(now_ns - JUST_SAVED_NS, costs) <= now_ns


def due_ns(state: State, now_ns: int, options: SchedulingOptions) -> tuple[int | None, ...]:
    """When time alone changes something of hosts: windows, judgements, gangs that leave."""
    return (next_edge_ns(state), state.judge_ns or None, leave_ns(state, now_ns, options))


def leave_ns(state: State, now_ns: int, options: SchedulingOptions) -> int | None:
    """When the next gang saves that could leave its retiring hosts now; None: none could, and
    something has to change first."""
    if not state.index.unhealthy & state.index.held:
        return None
    retiring = hostset.of(i for i, h in state.hosts.items() if h.state is HostState.RETIRING)
    costs = state.tenants.preemption.costs
    if not retiring & state.index.held or not costs.checkpoint_s:
        return None
    calendar, affinity = Calendar(state), AffinityIndex(state)

    def could(job: Job) -> bool:
        blocks = [b for b, host in enumerate(job.hosts) if hostset.has(retiring, host)]
        barred = calendar.closed(job, now_ns, now_ns + time_limit_ns(job, options))
        own = hostset.of(job.spares) & ~(state.index.out_of_service | barred)
        free = state.free & ~(barred | affinity.closed(job.name, job.spec.affinity))
        swaps = choose_swaps(state.loaded_fabric, job.request, job.hosts, blocks, own, free)
        return bool(blocks) and swaps is not None

    gangs = (job for job in state.in_state(JobState.RUNNING) if job.allocation & retiring)
    return min((job.next_save_ns(now_ns, costs) for job in gangs if could(job)), default=None)
