"""What a state knows of gangs beside its jobs: one place for all events that change what a job
holds."""

from __future__ import annotations

from scheduler.core.collections.evolve import evolve
from scheduler.core.collections.persistent_map import with_entry, without_entry
from scheduler.core.model.job import NOTHING_HELD, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State
from scheduler.core.tenancy.ownership import charged


def with_job(state: State, before: Job, after: Job | None, now_ns: int) -> State:
    """Return the state in which the job `before` is as `after` is; None: it has ended.

    A shared host is held until the last job leaves it. Cost: some 15 us.
    """
    name, is_part, jobs = before.name, bool(before.part_gpus), state.jobs
    now = NOTHING_HELD if after is None else after.present
    held, lent = (0, 0) if after is None else (after.held, after.lent_hosts)
    moves = is_part and (after is None or after.gang is None or after.attempt != before.attempt)
    held, shared = held | state.held & ~before.held, state.shared
    for host in before.hosts if moves else ():
        sharing = without(shared[host], name)
        held |= bool(sharing) << host
        shared = with_entry(shared, host, sharing) if sharing else without_entry(shared, host)
    for host in now.hosts if moves else ():
        shared = with_entry(shared, host, (*shared.get(host, ()), name))
    sign = bool(now.hosts) - bool(before.hosts)
    more = 0 if is_part else len(now.hosts + now.spares) - len(before.hosts + before.spares)
    is_stopped = after is not None and after.state is JobState.INTERRUPTED
    running, special = state.running, state.special
    if sign > 0:
        running = (*running, name)
        special = (*special, name) if before.is_special else special
    elif sign < 0:
        running, special = without(running, name), without(special, name)
    return evolve(
        state,
        jobs=without_entry(jobs, name) if after is None else with_entry(jobs, name, after),
        running=running,
        interrupted=state.interrupted if is_stopped else without(state.interrupted, name),
        special=special,
        held=held,
        lent=lent | state.lent & ~before.lent_hosts,
        shared=shared,
        accounts=charged(state, before.tenant, more, now_ns, sign * before.part_gpus),
    )


def with_stopped(state: State, before: Job, after: Job, now_ns: int) -> State:
    """Return the state in which a failure has stopped the gang of `before`, the last so far."""
    stopped = (*without(state.interrupted, before.name), before.name)
    return evolve(with_job(state, before, after, now_ns), interrupted=stopped)


def without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the names less one, which may not be among them."""
    if name not in names:
        return names
    at = names.index(name)
    return names[:at] + names[at + 1 :]
