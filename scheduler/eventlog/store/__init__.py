"""The event log: append-only, durable before it is acknowledged.

Inside: one interface (sql_store), kept by sqlite in a file or by postgres on a server; the chain of
digests over its rows and the mark outside it, which notice what was lost (chain, mark, verify).
Enters: events as text, and snapshots. Leaves: the same in order, or a StoreError.
"""

from __future__ import annotations

from pathlib import Path

from scheduler.eventlog.store.base import (
    POLL_EVENTS,
    Compacted,
    Deposed,
    EndedJob,
    EndedQuery,
    Leader,
    LoggedRequest,
    NotRead,
    NotWritten,
    StoreError,
    Unreachable,
    VersionMismatch,
)
from scheduler.eventlog.store.files import backup as backup_sqlite
from scheduler.eventlog.store.files import restore as restore_sqlite
from scheduler.eventlog.store.files import shrink as shrink_sqlite
from scheduler.eventlog.store.files import truncate as truncate_sqlite
from scheduler.eventlog.store.sql_store import SharedStore, Store
from scheduler.eventlog.store.sqlite import look_at as look_at_sqlite
from scheduler.eventlog.store.sqlite import open_sqlite

__all__ = [
    "POLL_EVENTS",
    "Compacted",
    "Deposed",
    "EndedJob",
    "EndedQuery",
    "Leader",
    "LoggedRequest",
    "NotRead",
    "NotWritten",
    "SharedStore",
    "Store",
    "StoreError",
    "Unreachable",
    "VersionMismatch",
    "backup",
    "is_shared",
    "look_at",
    "open_store",
    "restore",
    "shrink",
    "truncate",
]

_POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str, *, init: bool | None = None, mark: Path | None = None) -> Store:
    """Open the log at `sqlite:///FILE` or `postgresql://...`. One that is not there is made with
    `init`; with None only where nothing is left of an earlier one. `mark`: the file that says how
    far the log has come; without it a SQLite store has one beside it, a database none.

    Raises: StoreError on another kind of URL, a folder that is not there, a file that
    is no muster log, is newer than this program, is corrupt, in use, or not as the mark says;
    likewise for a database, or one that does not answer.
    """
    if is_shared(url):
        from scheduler.eventlog.store.postgres import open_postgres  # loads libpq

        return open_postgres(url, init=init, mark=mark)
    return open_sqlite(url, init=init, mark=mark)


def is_shared(url: str) -> bool:
    """Whether several servers may have a store of this kind open."""
    return url.startswith(_POSTGRES)


def look_at(url: str, mark: Path | None = None) -> Store:
    """Open a log to read it, beside the servers that write it. Raises: StoreError."""
    if is_shared(url):
        from scheduler.eventlog.store.postgres import look_at_postgres  # loads libpq

        return look_at_postgres(url, mark)
    return look_at_sqlite(url, mark)


def backup(url: str, target: Path, *, is_forced: bool = False) -> int:
    """Copy the store to a file as it is at one moment, while servers may write to it.

    The answer is the copy's last version. Raises: StoreError.
    """
    if is_shared(url):
        from scheduler.eventlog.store import pgfiles  # loads libpq

        return pgfiles.backup(url, target, is_forced=is_forced)
    return backup_sqlite(url, target, is_forced=is_forced)


def restore(source: Path, url: str, *, is_forced: bool = False, mark: Path | None = None) -> int:
    """Make a backup the store at `url`, which no server may have open; what was there is
    kept beside it. The answer is the last version. Raises: StoreError.
    """
    if is_shared(url):
        from scheduler.eventlog.store import pgfiles  # loads libpq

        return pgfiles.restore(source, url, is_forced=is_forced)
    return restore_sqlite(source, url, is_forced=is_forced, mark=mark)


def truncate(url: str, keep_from: int, keep_to: int, mark: Path | None = None) -> None:
    """Drop every version of the log but those to keep, and mark where the log ends now; a copy of
    the old store stays beside it. No server may have the store open. Raises: StoreError."""
    if is_shared(url):
        from scheduler.eventlog.store import pgfiles  # loads libpq

        return pgfiles.truncate(url, keep_from, keep_to, mark)
    return truncate_sqlite(url, keep_from, keep_to, mark)


def shrink(url: str) -> None:
    """Give back the room of dropped events. No server may have the store open. PostgreSQL
    sees to that by itself. Raises: StoreError."""
    if not is_shared(url):
        shrink_sqlite(url)
