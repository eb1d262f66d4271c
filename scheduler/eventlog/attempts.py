"""Which hosts an attempt of a gang had, out of the log: the state knows those of the last one."""

from __future__ import annotations

import time
from typing import Final

from scheduler.core import Job
from scheduler.core.model.events import Event, GangResized, GangSwapped, JobStarted, JobSubmitted
from scheduler.eventlog.store import Store

_PIECE: Final = 100  # events, and how long others go on then
_PAUSE_S: Final = 0.001


def attempt_hosts(store: Store, job: Job, attempt: int) -> tuple[str, ...]:
    """Return the hosts of an earlier attempt in block order; none where the log does not reach
    back so far. Cost: some 10 us an event since the job was submitted.

    Raises: StoreError.
    """
    hosts: tuple[str, ...] = ()
    is_this = False
    version = store.version_at(job.submit_ns)
    for number, (_, event) in enumerate(store.read(max(0, version - 1))):
        if isinstance(event, JobSubmitted) and event.spec.name == job.name:
            is_this, hosts = event.uid == job.uid, ()
        elif is_this and _is_start(event, job.name):
            assert isinstance(event, JobStarted | GangSwapped | GangResized)
            hosts = _with(hosts, event)
            if event.attempt == attempt:
                return hosts
        if number % _PIECE == 0:
            time.sleep(_PAUSE_S)  # Python runs one thing at a time, and calls wait
    return ()


def _is_start(event: Event, name: str) -> bool:
    return isinstance(event, JobStarted | GangSwapped | GangResized) and event.name == name


def _with(hosts: tuple[str, ...], event: JobStarted | GangSwapped | GangResized) -> tuple[str, ...]:
    """The hosts once this attempt has begun on them; none where the ones before are not known."""
    if not isinstance(event, GangSwapped):
        return event.hosts
    joined = {swap.block: swap.joined for swap in event.swaps}
    return tuple(joined.get(block, host) for block, host in enumerate(hosts))
