"""Changes out of the log, for those who watch from an earlier version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice

from scheduler.core import State
from scheduler.core.model.events import Event
from scheduler.engine.feed import Change
from scheduler.eventlog.host_changes import HostsChange, hosts_changed
from scheduler.eventlog.job_changes import JobChange, apply_and_diff
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store
from scheduler.eventlog.window_changes import WindowChange, window_changed

_PAGE = 500  # changes read at once


async def recorded(
    store: Store, kind: type[Change], after_version: int, to_version: int
) -> AsyncGenerator[Change, None]:
    """Changes after one version, up to another, read page by page in a thread.

    Raises: Compacted when they are no longer kept, StoreError.
    """
    found = await asyncio.to_thread(_history, store, after_version)
    changes = (change for change in found if isinstance(change, kind))
    while page := await asyncio.to_thread(lambda: list(islice(changes, _PAGE))):
        for change in page:
            if change.version > to_version:
                return
            yield change


def _history(store: Store, after_version: int) -> Iterator[JobChange | HostsChange | WindowChange]:
    """Changes after a version, from the snapshot before it."""
    if after_version + 1 < (first := store.first_version()):
        raise Compacted(first)
    base = newest_snapshot(store, after_version).state
    return history(base, store.read(base.version), after_version)


def history(
    state: State, events: Iterable[tuple[int, Event]], after_version: int
) -> Iterator[JobChange | HostsChange | WindowChange]:
    """Changes after `after_version`, from the events that follow `state`.

    Cost: the fold of all those events, some 50 us each, since a change shows its job,
    hosts or window as they were then.
    """
    for _, event in events:
        after, change = apply_and_diff(state, event)
        if after.version > after_version:
            hosts, window = hosts_changed(state, event, after), window_changed(state, event, after)
            yield from (told for told in (change, hosts, window) if told)
        state = after
