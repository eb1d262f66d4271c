"""The decision that the present attempt of a gang began with, out of the log."""

from __future__ import annotations

import time

from scheduler.core import Job, SchedulingOptions
from scheduler.core.explain.decision import Decision, begins, decision
from scheduler.core.fold.apply import apply
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store, StoreError

_PIECE, _PAUSE_S = 100, 0.001  # events, some milliseconds of work, and how long others go on then


def decision_of(store: Store, job: Job, options: SchedulingOptions) -> Decision:
    """`job`: one that holds hosts. Cost: some 50 us an event since the last snapshot before it.

    Raises: Compacted where the log does not reach back so far, StoreError.
    """
    version = store.version_at(
        job.present.start_ns
    )  # of the first event of that time, or a later one
    base = newest_snapshot(store, version - 1)
    state, first = base.state, store.first_version()
    if state.version + 1 < first:
        raise Compacted(first)
    for number, (_, event) in enumerate(store.read(state.version)):
        if begins(event, job.name) and event.attempt == job.attempt:
            if state.jobs[job.name].uid == job.uid:
                return decision(state, event, options)
        elif event.time_ns > job.present.start_ns:
            break
        state = apply(state, event)
        if number % _PIECE == 0:
            time.sleep(_PAUSE_S)  # Python runs one thing at a time, and calls wait
    if first > 1:
        raise Compacted(first)
    raise StoreError(f"{store.name} does not say how attempt {job.attempt} of {job.name} began")
