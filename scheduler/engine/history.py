"""Changes out of the log, for those who watch from an earlier version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice

from scheduler.core import State
from scheduler.core.fold.apply import apply, effects
from scheduler.core.fold.effects import EventEffect
from scheduler.core.model.events import Event
from scheduler.engine.feed import Change
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store

_PAGE = 500  # changes read at once


async def recorded(
    store: Store, kind: type[Change], after_version: int, to_version: int
) -> AsyncGenerator[Change, None]:
    """Changes after one version, up to another, read page by page in a thread.

    Raises: Compacted when they are no longer kept, StoreError.
    """
    found = await asyncio.to_thread(_history, store, after_version)
    changes = ((version, effect) for version, effect in found if isinstance(effect, kind))
    while page := await asyncio.to_thread(lambda: list(islice(changes, _PAGE))):
        for version, change in page:
            if version > to_version:
                return
            yield change


def _history(store: Store, after_version: int) -> Iterator[tuple[int, EventEffect]]:
    """Effects after a version, from the snapshot before it."""
    if after_version + 1 < (first := store.first_version()):
        raise Compacted(first)
    base = newest_snapshot(store, after_version).state
    return history(base, store.read(base.version), after_version)


def history(
    state: State, events: Iterable[tuple[int, Event]], after_version: int
) -> Iterator[tuple[int, EventEffect]]:
    """Effects after `after_version`, each with its version, from the events that follow `state`.

    Cost: the fold of all those events, some 50 us each, since a change shows its job,
    hosts or window as they were then.
    """
    for _, event in events:
        after = apply(state, event)
        if after.version > after_version:
            yield from ((after.version, effect) for effect in effects(state, event, after))
        state = after
