"""Changes out of the log, for those who watch from an earlier version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice

from scheduler.changes import Change, history
from scheduler.recovery import newest_snapshot
from scheduler.store import Compacted, Store

_PAGE = 500  # changes read at once


async def recorded(
    store: Store, after_version: int, to_version: int
) -> AsyncGenerator[Change, None]:
    """Changes after one version, up to another, read page by page in a thread.

    Raises: Compacted when they are no longer kept, StoreError.
    """
    changes = await asyncio.to_thread(_history, store, after_version)
    while page := await asyncio.to_thread(lambda: list(islice(changes, _PAGE))):
        for change in page:
            if change.version > to_version:
                return
            yield change


def _history(store: Store, after_version: int) -> Iterator[Change]:
    """Changes after a version, from the snapshot before it."""
    if after_version + 1 < (first := store.first_version()):
        raise Compacted(first)
    base = newest_snapshot(store, after_version).state
    return history(base, store.read(base.version), after_version)
