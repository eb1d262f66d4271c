"""The one place that keeps the index of a state in step with its facts.

Whatever an event does to a job, a host, a window, a request or a lineage goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.structs import replace
from scheduler.core.collections.persistent_map import newest_of_each, with_entry, without_entry
from scheduler.core.model import requests
from scheduler.core.model.events import RequestEvent
from scheduler.core.model.index import Index
from scheduler.core.model.job import NOTHING_HELD, Attempt, Job
from scheduler.core.model.lifecycle import (
    ALLOWS,
    JOB_MOVES,
    Allows,
    HostState,
    JobMove,
)
from scheduler.core.model.lifecycle import after as state_after
from scheduler.core.model.records.tenant import UsageAccount
from scheduler.core.model.run_lineage import KEPT_RUNS, lineage_key, with_checkpoint
from scheduler.core.model.state import RETAINED, Host, State
from scheduler.core.model.window import Booking
from scheduler.core.policies.job_terms import SavedCheckpoint
from scheduler.core.rules.eligibility import eligible_ns, wake_ns
from scheduler.core.tenancy.ownership import charged


def check_move(before: Job, move: JobMove, now: Job) -> None:
    """Refuse a move that the table of job states does not have. Raises: KeyError."""
    if state_after(JOB_MOVES, before.state, move) is not now.state:
        raise KeyError(f"{move} leads from {before.state} to {now.state}")


def with_job(
    state: State, before: Job | None, after: Job | None, now_ns: int, *, is_last: bool = False
) -> State:
    """Return the state in which the job `before` is as `after` is. `before` None: the job is new;
    `after` None: it has ended.

    `is_last`: the job goes behind others that wait, or stand still. Cost: some 15 us.
    """
    job = after or before
    assert job is not None
    jobs = state.jobs
    jobs = without_entry(jobs, job.name) if after is None else with_entry(jobs, job.name, after)
    index = _waiting(state, before, after, is_last)
    accounts = state.accounts
    if before is not None:
        gang = None if after is None else after.gang
        if gang is not before.gang:
            index = _holding(index, before, after)
            accounts = _charged(state, before, gang, now_ns)
        if gang is not None and after is not None:
            index = _standing(index, before, after, is_last)
            if after.is_special is not before.is_special:
                special = tuple(name for name in index.running if jobs[name].is_special)
                index = replace(index, special=special)
    return replace(state, jobs=jobs, accounts=accounts, index=index)


def _charged(
    state: State, before: Job, gang: Attempt | None, now_ns: int
) -> Mapping[str, UsageAccount]:
    """Return the accounts once a job has another gang."""
    old = before.present
    hosts, old_hosts = (0 if gang is None else len(gang.hosts)), len(old.hosts)
    if before.part_gpus:
        sign = bool(hosts) - bool(old_hosts)
        return charged(state, before.tenant, 0, now_ns, sign * before.part_gpus)
    more = hosts + (0 if gang is None else len(gang.spares)) - old_hosts - len(old.spares)
    return charged(state, before.tenant, more, now_ns)


def _waiting(state: State, before: Job | None, after: Job | None, is_last: bool) -> Index:
    """Return the index with a job in the queue, deferred, or neither."""
    index, jobs = state.index, state.jobs
    old = before if before is not None and before.gang is None else None
    new = after if after is not None and after.gang is None else None
    if old is None and new is None:
        return index
    queue, deferred = index.queue, index.deferred
    moves = old is None or new is None or is_last
    if old is not None and moves:
        if old.eligible_ns is None:
            deferred = without_entry(deferred, old.name)
        else:
            queue = queue.without(old.name, old.order, lambda name: jobs[name].order, old.tenant)
    if new is not None:
        if new.eligible_ns is None:
            at_ns = wake_ns(new)
            if moves or deferred[new.name] != at_ns:
                deferred = with_entry(deferred, new.name, at_ns)
        elif moves:  # a requeued job keeps its seniority
            queue = queue.having(new.name, new.order, lambda name: jobs[name].order, new.tenant)
    dependants = _dependants(index.dependants, old, new)
    if queue is index.queue and deferred is index.deferred and dependants is index.dependants:
        return index
    return replace(index, queue=queue, deferred=deferred, dependants=dependants)


def _dependants(
    dependants: Mapping[str, tuple[str, ...]], old: Job | None, new: Job | None
) -> Mapping[str, tuple[str, ...]]:
    """Return the jobs that are told when others have ended, with `new` in place of `old`."""
    before, after = _awaited(old), _awaited(new)
    for uid in before:
        if old is not None and uid not in after:
            others = without(dependants[uid], old.name)
            dependants = (
                with_entry(dependants, uid, others) if others else without_entry(dependants, uid)
            )
    for uid in after:
        if new is not None and uid not in before:
            dependants = with_entry(dependants, uid, (*dependants.get(uid, ()), new.name))
    return dependants


def _awaited(job: Job | None) -> tuple[str, ...]:
    """Return the uids of the live jobs that a waiting job depends on."""
    if job is None or not job.dependencies:
        return ()
    return tuple(dict.fromkeys(each.uid for each in job.dependencies if each.outcome is None))


def _holding(index: Index, before: Job, after: Job | None) -> Index:
    """Return the index once a job has another gang, or none any more. A shared host is held until
    the last job leaves it."""
    name, shared = before.name, index.shared
    held, lent = index.held & ~before.allocation, index.lent & ~before.lent_hosts
    now = NOTHING_HELD if after is None else after.present
    if after is not None:
        held, lent = held | after.allocation, lent | after.lent_hosts
    has_moved = after is None or after.gang is None or after.attempt != before.attempt
    if before.part_gpus and has_moved:
        for host in before.hosts:
            sharing = without(shared[host], name)
            held |= bool(sharing) << host
            shared = with_entry(shared, host, sharing) if sharing else without_entry(shared, host)
        for host in now.hosts:
            shared = with_entry(shared, host, (*shared.get(host, ()), name))
    running, special, interrupted = index.running, index.special, index.interrupted
    if after is None or after.gang is None:
        running, special = running.dropped(name), without(special, name)
        interrupted = without(interrupted, name)
    elif before.gang is None:
        running = running.appended(name)
        special = (*special, name) if before.is_special else special
    return replace(
        index,
        running=running,
        interrupted=interrupted,
        special=special,
        held=held,
        lent=lent,
        shared=shared,
    )


def _standing(index: Index, before: Job, after: Job, is_last: bool) -> Index:
    """Return the index with a gang among those that a failure stopped, or not."""
    name, interrupted = after.name, index.interrupted
    if after.present.stop_ns is None:
        if before.present.stop_ns is None:
            return index
        return replace(index, interrupted=without(interrupted, name))
    if before.present.stop_ns is None or is_last:
        return replace(index, interrupted=(*without(interrupted, name), name))
    return index


def with_eligibility(job: Job, now_ns: int) -> Job:
    """Return the state in which a waiting job is considered from now on, or deferred."""
    return replace(job, eligible_ns=now_ns if eligible_ns(job) <= now_ns else None)


def with_ended(state: State, over: Job) -> State:
    """Return the state that keeps a job which has ended at hand."""
    ended, counts = newest_of_each(
        state.ended,
        state.index.ended_counts,
        over.uid,
        over,
        over.tenant,
        RETAINED,
        lambda _, other: other.tenant,
    )
    return replace(state, ended=ended, index=replace(state.index, ended_counts=counts))


def with_request(state: State, event: RequestEvent, jobs: Mapping[str, Job]) -> State:
    """Return the state that remembers the request of `event`, which has an id. `jobs`: before."""
    identifier = requests.parse_request_id(event.request_id)
    known, counts = newest_of_each(
        state.requests,
        state.index.request_counts,
        identifier.key,
        requests.completed(event, jobs),
        identifier.tenant,
        requests.REMEMBERED,
        lambda key, _: requests.parse_request_id(key).tenant,
    )
    return replace(state, requests=known, index=replace(state.index, request_counts=counts))


def with_lineage(state: State, job: Job, saved: SavedCheckpoint) -> State:
    """Return the state in which the run of a job has one checkpoint more."""
    lineages, counts = newest_of_each(
        state.lineages,
        state.index.lineage_counts,
        lineage_key(job),
        with_checkpoint(state.lineages, job, saved),
        job.tenant,
        KEPT_RUNS,
        lambda _, other: other.tenant,
    )
    return replace(state, lineages=lineages, index=replace(state.index, lineage_counts=counts))


def with_host(state: State, host: int, record: Host) -> State:
    """Return the state with a host in another state."""
    hosts = state.hosts
    if record.state is not HostState.HEALTHY:
        hosts = with_entry(hosts, host, record)
    elif host in hosts:
        hosts = without_entry(hosts, host)
    bit, allows, index = 1 << host, ALLOWS[record.state], state.index
    index = replace(
        index,
        unhealthy=index.unhealthy & ~bit | bit * (allows is Allows.NOTHING),
        probation=index.probation & ~bit | bit * (allows is Allows.PREEMPTIBLE),
        golden=index.golden & ~bit | bit * (allows is Allows.LARGE_FIRST),
    )
    return replace(state, hosts=hosts, index=index)


def with_windows(state: State, windows: Mapping[str, Booking], links_ns: int) -> State:
    """Return the state with these windows. `links_ns`: when links last changed."""
    closed = 0
    for booking in windows.values():
        closed |= booking.hosts if booking.is_closing else 0
    index = replace(state.index, closed=closed)
    return replace(state, windows=windows, links_ns=links_ns, index=index)


def without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the names less one, which may not be among them."""
    if name not in names:
        return names
    at = names.index(name)
    return names[:at] + names[at + 1 :]
