"""Which hosts are held, and what of a host that jobs share: one place for all events that change
what a job holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placement.fabric.hostset import HostSet
from scheduler.core.collections.persistent_map import with_entry, without_entry
from scheduler.core.model.job import Job
from scheduler.core.model.records.tenant import UsageAccount
from scheduler.core.model.state import State
from scheduler.core.tenancy.ownership import charged


class Holdings(NamedTuple):
    """These three of a state."""

    held: HostSet
    shared: Mapping[int, tuple[str, ...]]
    accounts: Mapping[str, UsageAccount]


def holdings(state: State, before: Job, after: Job | None, now_ns: int) -> Holdings:
    """What they are once `before` holds what `after` does; None: nothing. A shared host is held
    until the last job leaves it."""
    is_part = bool(before.part_gpus)
    held, shared = state.held & ~before.held, state.shared
    for host in before.hosts if is_part else ():
        sharing = tuple(name for name in shared[host] if name != before.name)
        held |= bool(sharing) << host
        shared = with_entry(shared, host, sharing) if sharing else without_entry(shared, host)
    for host in after.hosts if is_part and after is not None else ():
        shared = with_entry(shared, host, (*shared.get(host, ()), before.name))
    if after is not None:
        held |= after.held
    sign = (after is not None and bool(after.hosts)) - bool(before.hosts)
    more = 0 if is_part else _size(after) - _size(before)
    part_gpus = sign * before.part_gpus
    accounts = charged(state, before.tenant, more, now_ns, part_gpus)
    return Holdings(held, shared, accounts)


def _size(job: Job | None) -> int:
    return 0 if job is None else len(job.hosts) + len(job.spares)
