"""The event log: append-only, durable before it is acknowledged."""

from __future__ import annotations

from scheduler.store.base import Compacted, Store, StoreError, VersionMismatch
from scheduler.store.sqlite import open_sqlite

__all__ = ["Compacted", "Store", "StoreError", "VersionMismatch", "open_store"]

_OPENERS = {"sqlite": open_sqlite}


def open_store(url: str) -> Store:
    """Open the log at `sqlite:///FILE`, or make it.

    Raises: StoreError on another kind of URL, a folder that is not there, a file that
    is no muster log, is newer than this program, is corrupt, or is in use.
    """
    scheme, _, _ = url.partition("://")
    if scheme not in _OPENERS:
        raise StoreError(f"store {url!r} is not supported; give sqlite:///FILE")
    return _OPENERS[scheme](url)
