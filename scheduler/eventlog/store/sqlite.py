"""The log in one SQLite file.

`append` is one transaction in WAL mode with synchronous=FULL, so what it returned
from survives kill -9 and power loss. One server writes at a time: it holds a lock
that the operating system drops when the process dies, however it dies. The lock is on
the file itself, so it holds by whatever path somebody else comes to it. SQLite names the
WAL after the path, so a file with a second name (a hard link) is refused: under that name
the newest changes would be missing, and later mixed with others.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from scheduler.core.model.events import Event
from scheduler.eventlog.codec import UndecodableEvent, decode, encode
from scheduler.eventlog.store.base import Asked, Compacted, NotWritten, StoreError, VersionMismatch
from scheduler.eventlog.store.folding import MOST_PAGES, Folding
from scheduler.eventlog.store.schema import create, schema_of

PREFIX = "sqlite:///"

_ROLLED_BACK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)

_LAST = """
    SELECT MAX(
        (SELECT COALESCE(MAX(version), 0) FROM log),
        (SELECT COALESCE(MAX(version), 0) FROM snapshot)
    )
"""


_MOST_CACHED = 32  # statements: each keeps what was last bound to it, a row for each event
_MOST_ROWS = 1_000  # of one statement: SQLite takes 32,766 values


@cache
def _insert(rows: int) -> str:
    """Adds so many rows, unless the log ends elsewhere than said."""
    values = ", ".join(["(?, ?, ?, ?, ?)"] * rows)
    return f"INSERT INTO log SELECT * FROM (VALUES {values}) WHERE ? = ({_LAST})"


class SqliteStore:
    """An open log; see Store."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._identities = self._present()
        self._folding = Folding(lambda: connect(path))

    @property
    def name(self) -> str:
        return str(self.path)

    def append(
        self,
        expected_version: int,
        events: Sequence[Event],
        term: int = 0,
        actors: Sequence[str] = (),
    ) -> int:
        """As Store says. One server has the file, so there are no terms to compare.

        One statement, which is a transaction by itself, unless there are very many: every
        further one would let go of Python's lock, and wait for it among those who compute.
        """
        if self._present() != self._identities:
            raise StoreError(self._what_is_gone())
        by = zip(events, actors or repeat("", len(events)), strict=True)
        rows = [
            (version, event.time_ns, *encode(event), actor)
            for version, (event, actor) in enumerate(by, expected_version + 1)
        ]
        parts = [rows[at : at + _MOST_ROWS] for at in range(0, len(rows), _MOST_ROWS)]
        with self._transaction() if len(parts) > 1 else self._refusals() as connection:
            for part in parts:
                self._add(connection, part)
        self._folding.wrote(len(rows))
        return expected_version + len(rows)

    def _present(self) -> tuple[tuple[int, int] | None, ...]:
        """Which files stand at the paths of the store and of its WAL."""
        return _identity(self.path), _identity(wal_of(self.path))

    def _what_is_gone(self) -> str:
        """SQLite would go on writing to files that no start will find."""
        gone = self.path if _identity(self.path) != self._identities[0] else wal_of(self.path)
        return f"{gone} was moved, replaced or removed while it was in use"

    def _add(self, connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
        """Raises: VersionMismatch."""
        before = rows[0][0] - 1
        added = connection.execute(_insert(len(rows)), (*chain.from_iterable(rows), before))
        if added.rowcount != len(rows):
            (last,) = connection.execute(_LAST).fetchone()
            raise VersionMismatch(f"{self.path} ends at version {last}, expected {before}")

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """As Store says, on a connection of its own."""
        expected = after_version
        query = "SELECT version, type, body FROM log WHERE version > ? ORDER BY version"
        with self._reading() as connection:
            if (first := _first(connection)) > after_version + 1:
                raise Compacted(first)
            for version, type_name, body in connection.execute(query, (after_version,)):
                expected += 1
                if version != expected:
                    raise StoreError(f"{self.path} is corrupt: version {expected} is missing")
                yield version, self._decoded(version, type_name, body)

    def asked(self, after_version: int = 0) -> Iterator[Asked]:
        """As Store says, on a connection of its own."""
        query = """
            SELECT version, type, body, actor FROM log
            WHERE version > ? AND actor <> '' ORDER BY version
        """
        with self._reading() as connection:
            for version, type_name, body, actor in connection.execute(query, (after_version,)):
                yield Asked(version, self._decoded(version, type_name, body), actor)

    def _decoded(self, version: int, type_name: str, body: str) -> Event:
        try:
            return decode(type_name, body)
        except UndecodableEvent as error:
            what = f"version {version}: {error}"
            raise StoreError(f"{self.path} is corrupt: {what}") from None

    def first_version(self) -> int:
        with self._reading() as connection:
            return _first(connection)

    def size_bytes(self) -> int:
        """As Store says, with what is not yet folded into the file."""
        files = (self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-shm"))
        try:
            return sum(file.stat().st_size for file in files if file.exists())
        except OSError as error:
            raise StoreError(f"cannot look at {self.path}: {error.strerror}") from None

    def last_version(self) -> int:
        with self._reading() as connection:
            return int(connection.execute(_LAST).fetchone()[0])

    def version_at(self, time_ns: int) -> int:
        """As Store says. Cost: walks the events before."""
        query = "SELECT version FROM log WHERE time_ns >= ? ORDER BY version LIMIT 1"
        with self._reading() as connection:
            found = connection.execute(query, (time_ns,)).fetchone()
            return int(found[0] if found else connection.execute(_LAST).fetchone()[0] + 1)

    def save_snapshot(self, version: int, body: bytes) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", (version, body))

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """As Store says, on a connection of its own."""
        query = "SELECT version, body FROM snapshot WHERE version <= ? ORDER BY version DESC"
        with self._reading() as connection:
            last = connection.execute(_LAST).fetchone()[0] if to_version is None else to_version
            yield from connection.execute(query, (last,))

    def compact(self, to_version: int) -> int:
        """As Store says. The file keeps its size: later events fill the room."""
        with self._transaction() as connection:
            found = connection.execute("SELECT 1 FROM snapshot WHERE version = ?", (to_version,))
            if found.fetchone() is None:
                raise StoreError(f"{self.path} has no snapshot of version {to_version}")
            dropped = connection.execute("DELETE FROM log WHERE version <= ?", (to_version,))
            connection.execute("DELETE FROM snapshot WHERE version < ?", (to_version,))
            kept = "INSERT OR REPLACE INTO meta VALUES ('first_version', ?)"
            connection.execute(kept, (str(to_version + 1),))
            return dropped.rowcount

    def close(self) -> None:
        """Fold the WAL into the file and let another server have it."""
        self._folding.close()
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._refusals() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _refusals(self) -> Iterator[sqlite3.Connection]:
        """Each statement is a transaction. Raises: NotWritten, StoreError."""
        try:
            yield self._connection
        except sqlite3.Error as error:
            # Of these it is sure that they come before the commit, and roll back.
            is_sure = error.sqlite_errorcode & 0xFF in _ROLLED_BACK
            kind = NotWritten if is_sure and not self._connection.in_transaction else StoreError
            raise kind(f"cannot write to {self.path}: {error}") from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connect(self.path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} is corrupt: {error}") from error


class SqliteCopy(SqliteStore):
    """A store that is only read: a backup, or the store of a server that runs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        pass

    @contextmanager
    def _refusals(self) -> Iterator[sqlite3.Connection]:
        raise StoreError(f"{self.path} is open for reading only")
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is, whatever it is called; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def wal_of(path: Path) -> Path:
    """The file of changes that are not yet folded into the store."""
    return path.with_name(path.name + "-wal")


def look_at(url: str) -> SqliteCopy:
    """The store at `sqlite:///FILE`, to be read while a server may write to it.

    Raises: StoreError when it is not there, no store, or of a newer schema.
    """
    path = path_of(url)
    if not path.exists():
        raise StoreError(f"there is no store {path}")
    check_store(path)
    return SqliteCopy(path)


def check_store(path: Path) -> None:
    """Raises: StoreError when a file is no store, empty, or of a newer schema."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store")
    _check_names(path, os.stat(path))
    try:
        with closing(connect(path)) as connection:
            schema = schema_of(str(path), connection)
    except sqlite3.Error as error:
        raise _unusable(path, error) from None
    if schema == 0:
        raise StoreError(f"{path} is empty")


def open_sqlite(url: str) -> SqliteStore:
    """Open the log at `sqlite:///FILE`, or make it. Raises: StoreError."""
    path = path_of(url)
    lock = lock_on(path)
    try:
        connection = _checked(path)
    except BaseException:
        os.close(lock)
        raise
    return SqliteStore(path, connection, lock)


def path_of(url: str) -> Path:
    if not url.startswith(PREFIX) or len(url) == len(PREFIX):
        known = f"{PREFIX}FILE or postgresql://HOST/DATABASE"
        raise StoreError(f"store {url!r} is not supported; give {known}")
    try:
        path = Path(url.removeprefix(PREFIX)).expanduser()
    except RuntimeError as error:  # ~nobody
        raise StoreError(f"store {url!r}: {error}") from None
    if path.is_symlink():  # files beside it stand where it leads
        path = path.resolve()
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store")
    if not path.parent.is_dir():
        raise StoreError(f"cannot make {path}: there is no folder {path.parent}")
    return path


def lock_on(path: Path) -> int:
    """A lock on the file itself, which is made if it is not there, held until it is closed.

    SQLite's own locks are of another kind (fcntl), which close() of any descriptor of the file
    drops: close the lock after the connections.
    """
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_names(path, os.fstat(lock))
        except OSError:
            os.close(lock)
            raise StoreError(f"{path} is in use by another server") from None
        except StoreError:
            os.close(lock)
            raise
        held = os.fstat(lock)
        if (held.st_dev, held.st_ino) == _identity(path):
            return lock
        os.close(lock)  # a restore put another one there meanwhile


def _check_names(path: Path, found: os.stat_result) -> None:
    if found.st_nlink > 1:
        raise StoreError(
            f"{path} is the same file as another ({found.st_nlink} hard links), and the newest"
            " changes are kept under one name only: remove the other name, or copy the store with"
            " muster store backup"
        )


def _checked(path: Path) -> sqlite3.Connection:
    """A connection to a log that is whole and of this version."""
    try:
        connection = connect(path)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open {path}: {error}") from None
    try:
        is_new = not schema_of(str(path), connection)
        check_whole(path, connection)
        if is_new:
            create(connection)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={MOST_PAGES}")
        connection.execute(_LAST).fetchone()  # from the first read on there is a WAL
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _unusable(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """What the system refuses, a full disk say, is not laid to the file."""
    if isinstance(error, sqlite3.OperationalError):
        told = str(error)
        if path.exists() and not os.access(path.parent, os.W_OK):
            # Who reads a store says so beside it, for a server may be writing.
            told = f"{path.parent} cannot be written to: copy {path.name}* elsewhere first"
        return StoreError(f"cannot open {path}: {told}")
    return StoreError(f"{path} is not a muster store, or is corrupt: {error}")


def connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun by hand: the module would begin them too late.
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=10,
        cached_statements=_MOST_CACHED,
    )


def check_whole(path: Path, connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"{path} is corrupt: {verdict}")


def _first(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT value FROM meta WHERE key = 'first_version'").fetchone()
    return int(found)
