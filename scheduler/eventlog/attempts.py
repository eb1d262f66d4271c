"""Attempts of a gang, out of the log: the hosts of an earlier one, for the state knows those of the
last one, and the decision that the present one began with."""

from __future__ import annotations

from typing import Final

from scheduler.core import Job, SchedulingOptions
from scheduler.core.explain.decision import Decision, begins, decision
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import Event, GangResized, GangSwapped, JobStarted, JobSubmitted
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store, StoreError

_PAUSE_S: Final = 0.001


def attempt_hosts(store: Store, job: Job, attempt: int) -> tuple[str, ...]:
    """Return the hosts of an earlier attempt in block order; none where the log does not reach
    back so far. Cost: some 10 us an event since the job was submitted.

    Raises: StoreError.
    """
    hosts, is_this, newest = tuple[str, ...](), False, 0
    version = store.version_at(job.submit_ns)
    for _, event in store.read(max(0, version - 1), _PAUSE_S):
        if isinstance(event, JobSubmitted) and event.spec.name == job.name:
            is_this, hosts = event.uid == job.uid, ()
        elif is_this and _is_start(event, job.name):
            assert isinstance(event, JobStarted | GangSwapped | GangResized)
            if event.attempt > attempt:
                break
            hosts, newest = _with(hosts, event), event.attempt
    return hosts if newest == attempt else ()


def _is_start(event: Event, name: str) -> bool:
    return isinstance(event, JobStarted | GangSwapped | GangResized) and event.name == name


def _with(hosts: tuple[str, ...], event: JobStarted | GangSwapped | GangResized) -> tuple[str, ...]:
    """The hosts once this attempt has begun on them; none where the ones before are not known."""
    if not isinstance(event, GangSwapped):
        return event.hosts
    joined = {swap.block: swap.joined for swap in event.swaps}
    return tuple(joined.get(block, host) for block, host in enumerate(hosts))


def decision_of(store: Store, job: Job, options: SchedulingOptions) -> Decision:
    """Return the decision behind the present hosts of a job. `job`: one that holds hosts. Cost:
    some 50 us an event since the last snapshot before it.

    Raises: Compacted where the log does not reach back so far, StoreError.
    """
    version = store.version_at(
        job.present.start_ns
    )  # of the first event of that time, or a later one
    base = newest_snapshot(store, version - 1)
    state, first = base.state, store.first_version()
    if state.version + 1 < first:
        raise Compacted(first)
    for _, event in store.read(state.version, _PAUSE_S):
        if begins(event, job.name) and event.time_ns == job.present.start_ns:
            if state.jobs[job.name].uid == job.uid:
                return decision(state, event, options)
        elif event.time_ns > job.present.start_ns:
            break
        state = apply(state, event)
    if first > 1:
        raise Compacted(first)
    raise StoreError(f"{store.name} does not say how attempt {job.attempt} of {job.name} began")
