"""The event log: append-only, durable before it is acknowledged, one SQLite file.

`append` is one transaction in WAL mode with synchronous=FULL, so what it returned
from survives kill -9 and power loss. One server writes at a time: it holds a lock
that the operating system drops when the process dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from scheduler.codec import UndecodableEvent, decode, encode
from scheduler.core.events import Event

SCHEMA = 1
_FORMAT = "muster event log"
_URL = "sqlite:///"

_TABLES = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE log (
        version INTEGER PRIMARY KEY,  -- 1, 2, 3, ... without a gap
        time_ns INTEGER NOT NULL,
        type    TEXT NOT NULL,
        body    TEXT NOT NULL         -- JSON
    ) STRICT;
"""


class StoreError(Exception):
    """The log cannot be used; the message is a sentence for the operator."""


class VersionMismatch(StoreError):
    """Somebody else appended meanwhile: what was checked no longer holds."""


class Store:
    """An open log. Use `append` from one thread; `read` from any."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock

    def append(self, expected_version: int, events: Sequence[Event]) -> int:
        """Write `events` after `expected_version`, all or none; the new last version.

        Raises: VersionMismatch when the log ends elsewhere, StoreError when the disk
        refuses.
        """
        rows = [
            (version, event.time_ns, *encode(event))
            for version, event in enumerate(events, expected_version + 1)
        ]
        try:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                last = _last_version(connection)
                if last != expected_version:
                    raise VersionMismatch(
                        f"{self.path} ends at version {last}, expected {expected_version}"
                    )
                connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise StoreError(f"cannot write to {self.path}: {error}") from error
        return expected_version + len(rows)

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """(version, event) in order, on a connection of its own.

        Raises: StoreError on a record that cannot be read, or a missing one.
        """
        expected = after_version
        query = "SELECT version, type, body FROM log WHERE version > ? ORDER BY version"
        try:
            with closing(_connect(self.path)) as connection:
                for version, type_name, body in connection.execute(query, (after_version,)):
                    expected += 1
                    if version != expected:
                        raise StoreError(f"{self.path} is corrupt: version {expected} is missing")
                    yield version, decode(type_name, body)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} is corrupt: {error}") from error
        except UndecodableEvent as error:
            raise StoreError(f"{self.path} is corrupt: version {expected}: {error}") from None

    def close(self) -> None:
        """Fold the WAL into the file and let another server have it."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        os.close(self._lock)


def open_store(url: str) -> Store:
    """Open the log at `sqlite:///FILE`, or make it.

    Raises: StoreError on another kind of URL, a folder that is not there, a file that
    is no muster log, is newer than this program, is corrupt, or is in use.
    """
    path = _path(url)
    lock = _locked(path)
    try:
        connection = _checked(path)
    except BaseException:
        os.close(lock)
        raise
    return Store(path, connection, lock)


def _path(url: str) -> Path:
    if not url.startswith(_URL) or len(url) == len(_URL):
        raise StoreError(f"store {url!r} is not supported; give {_URL}FILE")
    path = Path(url.removeprefix(_URL)).expanduser()
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store")
    if not path.parent.is_dir():
        raise StoreError(f"cannot make {path}: there is no folder {path.parent}")
    return path


def _locked(path: Path) -> int:
    """A lock beside the file, held until the process ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot make {beside}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreError(f"{path} is in use by another server") from None
    return lock


def _checked(path: Path) -> sqlite3.Connection:
    """A connection to a log that is whole and of this version."""
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from None
    try:
        if not _table_names(connection):
            _create(connection)
        _check(path, connection)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(f"{path} is no muster store, or is corrupt: {error}") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun by hand: the module would begin them too late.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)


def _table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _create(connection: sqlite3.Connection) -> None:
    meta = f"INSERT INTO meta VALUES ('format', '{_FORMAT}'), ('schema', '{SCHEMA}');"
    connection.executescript(f"BEGIN;{_TABLES}{meta}COMMIT;")


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Raises: StoreError unless the file is a whole log that this version reads."""
    if not {"meta", "log"} <= _table_names(connection):
        raise StoreError(f"{path} is a database, but no muster store")
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    if meta.get("format") != _FORMAT or not meta.get("schema", "").isdigit():
        raise StoreError(f"{path} is a database, but no muster store")
    schema = int(meta["schema"])
    if schema > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer muster: schema {schema}, this one reads {SCHEMA}"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{path} is corrupt: {verdict}")


def _last_version(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT COALESCE(MAX(version), 0) FROM log").fetchone()
    return int(last)
