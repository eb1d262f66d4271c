"""The event log: append-only, durable before it is acknowledged."""

from __future__ import annotations

from scheduler.store.base import (
    Asked,
    Compacted,
    Deposed,
    Leader,
    NotWritten,
    SharedStore,
    Store,
    StoreError,
    Unreachable,
    VersionMismatch,
)
from scheduler.store.sqlite import look_at as look_at_sqlite
from scheduler.store.sqlite import open_sqlite

__all__ = [
    "Asked",
    "Compacted",
    "Deposed",
    "Leader",
    "NotWritten",
    "SharedStore",
    "Store",
    "StoreError",
    "Unreachable",
    "VersionMismatch",
    "look_at",
    "open_store",
]

_POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str) -> Store:
    """Open the log at `sqlite:///FILE` or `postgresql://...`, or make it.

    Raises: StoreError on another kind of URL, a folder that is not there, a file that
    is no muster log, is newer than this program, is corrupt, or is in use; likewise for
    a database, or one that does not answer.
    """
    if url.startswith("sqlite://"):
        return open_sqlite(url)
    if url.startswith(_POSTGRES):
        from scheduler.store.postgres import open_postgres  # loads libpq

        return open_postgres(url)
    raise StoreError(
        f"store {url!r} is not supported; give sqlite:///FILE or postgresql://HOST/DATABASE"
    )


def look_at(url: str) -> Store:
    """Open a log to read it, beside the servers that write it. Raises: StoreError."""
    if url.startswith(_POSTGRES):
        from scheduler.store.postgres import look_at_postgres  # loads libpq

        return look_at_postgres(url)
    return look_at_sqlite(url)
