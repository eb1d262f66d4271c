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
import logging
import os
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path

from muster.structs import replace
from scheduler.core.model.events import Event
from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import (
    Compacted,
    EndedJob,
    EndedQuery,
    LoggedRequest,
    NotWritten,
    StoreError,
    VersionMismatch,
)
from scheduler.eventlog.store.chain import LogRow, checked, linked, origin
from scheduler.eventlog.store.ended_rows import ChainEnd, EndedTable
from scheduler.eventlog.store.folding import MOST_PAGES, Folding
from scheduler.eventlog.store.mark import (
    HighWaterMark,
    LogPosition,
    check_end,
    mark_of,
    read_mark,
)
from scheduler.eventlog.store.schema import create, schema_of

PREFIX = "sqlite:///"

_ROLLED_BACK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)

_LAST = """
    SELECT MAX(
        (SELECT COALESCE(MAX(version), 0) FROM log),
        (SELECT COALESCE(MAX(version), 0) FROM snapshot)
    )
"""


_ROWS = """
    SELECT version, time_ns, type, body, actor, digest FROM log
    WHERE version > ? ORDER BY version
"""
_DIGEST = """
    SELECT digest FROM log WHERE version = ?1
    UNION ALL SELECT digest FROM snapshot WHERE version = ?1
"""
_OTHER_SNAPSHOT = """
    SELECT version FROM snapshot JOIN log USING (version) WHERE snapshot.digest <> log.digest
"""

_INSERT_ENDED = ended_rows.insert("?")

log = logging.getLogger("muster.store")

_MOST_CACHED = 32  # statements: each keeps what was last bound to it, a row for each event
_MOST_ROWS = 1_000  # of one statement: SQLite takes 32,766 values


@cache
def _insert(rows: int) -> str:
    """Adds so many rows, unless the log ends elsewhere than said."""
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)
    return f"INSERT INTO log SELECT * FROM (VALUES {values}) WHERE ? = ({_LAST})"


class SqliteStore:
    """An open log; see Store."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: int,
        end: LogPosition,
        mark_path: Path,
    ) -> None:
        self.path = path
        self.mark_path = mark_path
        self._mark = HighWaterMark(mark_path, end)
        self._end_version, self._end_digest = end.version, end.digest
        self._ended_end = self._ended(connection).end()
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
        ended: Sequence[EndedJob] = (),
    ) -> int:
        """Implement Store.append. One server has the file, so there are no terms to compare.

        One statement, which is a transaction by itself, unless jobs end or there are very many:
        every further one would let go of Python's lock, and wait for it among threads that compute.
        """
        if self._present() != self._identities:
            raise StoreError(self._missing_file_text())
        if expected_version != self._end_version:
            raise self._ends_elsewhere(self._end_version, expected_version)
        rows = linked(self._end_digest, expected_version, events, actors)
        parts = [rows[at : at + _MOST_ROWS] for at in range(0, len(rows), _MOST_ROWS)]
        over = ended_rows.linked(self._ended_end, ended)
        is_one = len(parts) <= 1 and not over
        with self._refusals() if is_one else self._transaction() as connection:
            for part in parts:
                self._add(connection, part)
            if over:
                connection.executemany(_INSERT_ENDED, [row.values for row in over])
        if over:
            self._ended_end = ChainEnd(over[-1].number, over[-1].digest)
        if rows:
            end = rows[-1]
            self._end_version, self._end_digest = end.version, end.digest
            self._mark.advance(end.version, end.digest, end.time_ns)
        self._folding.count_append(len(rows))
        return self._end_version

    def _present(self) -> tuple[tuple[int, int] | None, ...]:
        """Return the identities of the files at the paths of the store and of its WAL."""
        return _identity(self.path), _identity(wal_of(self.path))

    def _missing_file_text(self) -> str:
        """SQLite would go on writing to files that no start will find."""
        missing = self.path if _identity(self.path) != self._identities[0] else wal_of(self.path)
        return f"{missing} was moved, replaced or removed while it was in use"

    def _ends_elsewhere(self, last: int, expected: int) -> VersionMismatch:
        return VersionMismatch(f"{self.path} ends at version {last}, expected {expected}")

    def _add(self, connection: sqlite3.Connection, rows: Sequence[LogRow]) -> None:
        """Raises: VersionMismatch."""
        before = rows[0].version - 1
        added = connection.execute(_insert(len(rows)), (*chain.from_iterable(rows), before))
        if added.rowcount != len(rows):
            (last,) = connection.execute(_LAST).fetchone()
            raise self._ends_elsewhere(last, before)

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """Implement Store.read, on a connection of its own."""
        with self._reading() as connection:
            if (first := _first(connection)) > after_version + 1:
                raise Compacted(first)
            for row in self._rows(connection, after_version):
                yield row.version, row.event(self.name)

    def requests(self, after_version: int = 0) -> Iterator[LoggedRequest]:
        """Implement Store.requests, on a connection of its own."""
        with self._reading() as connection:
            for row in self._rows(connection, max(after_version, _first(connection) - 1)):
                if row.actor:
                    yield LoggedRequest(row.version, row.event(self.name), row.actor)

    def check(self) -> None:
        """Implement Store.check. Cost: some 3 us an event."""
        mark = read_mark(self.mark_path)  # before the log, which a server may be writing
        with self._reading() as connection:
            deque(self._rows(connection, _first(connection) - 1), maxlen=0)
            for (version,) in connection.execute(_OTHER_SNAPSHOT):
                raise StoreError(
                    f"{self.path} is corrupt: the snapshot of version {version} is of another log"
                )
            _check_mark(self.path, connection, mark)

    def _rows(self, connection: sqlite3.Connection, after_version: int) -> Iterator[LogRow]:
        before = _digest_at(connection, after_version)
        rows = connection.execute(_ROWS, (after_version,))
        return checked(self.name, rows, after_version, before, self._missing)

    def _missing(self, version: int) -> StoreError:
        return StoreError(f"{self.path} is corrupt: version {version} is missing")

    def first_version(self) -> int:
        with self._reading() as connection:
            return _first(connection)

    def size_bytes(self) -> int:
        """Implement Store.size_bytes, with what is not yet folded into the file."""
        files = (self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-shm"))
        try:
            return sum(file.stat().st_size for file in files if file.exists())
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from None

    def disk_used(self) -> float:
        """Return the share of its disk that is in use, of what is not kept for root. Raises:
        OSError."""
        room = os.statvfs(self.path.parent)
        used = room.f_blocks - room.f_bfree
        return used / max(1, used + room.f_bavail)

    def last_version(self) -> int:
        with self._reading() as connection:
            return int(connection.execute(_LAST).fetchone()[0])

    def version_at(self, time_ns: int) -> int:
        """Implement Store.version_at. Cost: walks the events before."""
        query = "SELECT version FROM log WHERE time_ns >= ? ORDER BY version LIMIT 1"
        with self._reading() as connection:
            row = connection.execute(query, (time_ns,)).fetchone()
            return int(row[0] if row else connection.execute(_LAST).fetchone()[0] + 1)

    def save_snapshot(self, version: int, body: bytes) -> None:
        with self._transaction() as connection:
            digest = _digest_at(connection, version)
            if digest is None:
                raise self._missing(version)
            row = (version, body, digest)
            connection.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?)", row)

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Implement Store.snapshots, on a connection of its own."""
        query = "SELECT version, body FROM snapshot WHERE version <= ? ORDER BY version DESC"
        with self._reading() as connection:
            last = connection.execute(_LAST).fetchone()[0] if to_version is None else to_version
            yield from connection.execute(query, (last,))

    def compact(self, to_version: int) -> int:
        """Implement Store.compact. The file keeps its size: later events fill the room."""
        with self._transaction() as connection:
            row = connection.execute("SELECT 1 FROM snapshot WHERE version = ?", (to_version,))
            if row.fetchone() is None:
                raise StoreError(f"{self.path} has no snapshot of version {to_version}")
            dropped = connection.execute("DELETE FROM log WHERE version <= ?", (to_version,))
            connection.execute("DELETE FROM snapshot WHERE version < ?", (to_version,))
            kept = "INSERT OR REPLACE INTO meta VALUES ('first_version', ?)"
            connection.execute(kept, (str(to_version + 1),))
            return dropped.rowcount

    def ended_jobs(self, query: EndedQuery) -> list[EndedJob]:
        """Implement Store.ended_jobs, on a connection of its own."""
        with self._reading() as connection:
            return self._ended(connection).jobs(query)

    def ended_log(self) -> Iterator[EndedJob]:
        """Implement Store.ended_log, on a connection of its own."""
        with self._reading() as connection:
            yield from self._ended(connection).log()

    def ended_counts(self) -> tuple[int, int]:
        with self._reading() as connection:
            return self._ended(connection).counts()

    def drop_ended(self, before_ns: int) -> int:
        """Implement Store.drop_ended. The file keeps its size: later rows fill the room."""
        with self._transaction() as connection:
            return self._ended(connection).drop(before_ns)

    def _ended(self, connection: sqlite3.Connection) -> EndedTable:
        return EndedTable(self.name, _store_id(connection), "?", connection.execute)

    def close(self) -> None:
        """Fold the WAL into the file and release it for another server. Its header says that it
        needs no WAL, so that without one, and without a mark, it is whole."""
        self._folding.close()
        for last in ("busy_timeout = 0", "wal_checkpoint(TRUNCATE)", "journal_mode = DELETE"):
            with suppress(sqlite3.Error):  # somebody reads it
                self._connection.execute(f"PRAGMA {last}")
        self._connection.close()
        self._mark.close()
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
                connection.execute("BEGIN")  # all that is read is of one moment
                yield connection
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} is corrupt: {error}") from error


class SqliteCopy(SqliteStore):
    """A store that is only read: a backup, or the store of a server that runs."""

    def __init__(self, path: Path, mark_path: Path, fault: str) -> None:
        self.path = path
        self.mark_path = mark_path
        self._fault = fault

    def check(self) -> None:
        """Implement Store.check."""
        if self._fault:
            raise StoreError(self._fault)
        super().check()

    def close(self) -> None:
        pass

    @contextmanager
    def _refusals(self) -> Iterator[sqlite3.Connection]:
        raise StoreError(f"{self.path} is open for reading only")
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file, whatever its name; None: there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def wal_of(path: Path) -> Path:
    """Return the file with changes that are not yet folded into the store."""
    return path.with_name(path.name + "-wal")


def look_at(url: str, mark: Path | None = None) -> SqliteCopy:
    """Open the store at `sqlite:///FILE` to read it while a server may write to it. `mark`: where
    its mark is, if not beside it.

    Raises: StoreError when it is not there, no store, or of another schema.
    """
    path = path_of(url)
    if not path.exists():
        raise StoreError(f"there is no store {path}")
    mark = mark or mark_of(path)
    fault = _missing_wal(path, mark)
    check_store(path)
    return SqliteCopy(path, mark, fault)


def check_store(path: Path) -> None:
    """Refuse a file that is no store, is empty, or has a newer schema. Raises: StoreError."""
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


def open_sqlite(url: str, *, init: bool | None = None, mark: Path | None = None) -> SqliteStore:
    """Open the log at `sqlite:///FILE`. One that is not there is made with `init`; with None
    only where nothing is left of an earlier one. `mark`: where its mark is, if not beside it.

    Raises: StoreError.
    """
    path = path_of(url)
    mark_path = mark or mark_of(path)
    if not is_there(path):
        _make_way(path, mark_path, init)
    lock = lock_on(path)
    try:
        if fault := _missing_wal(path, mark_path):
            raise StoreError(fault)
        connection = connect(path)
        try:
            _prepare(path, connection)
            remembered = read_mark(mark_path)
            end = _check_mark(path, connection, remembered)
            if remembered is None and end.version:
                log.warning(
                    "%s has no mark beside it (%s), so whether its end is missing cannot be known;"
                    " from here on it has one",
                    path,
                    mark_path.name,
                )
            return SqliteStore(path, connection, lock, end, mark_path)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _unusable(path, error) from None
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        os.close(lock)
        raise StoreError(f"cannot open {path}: {error}") from None
    except BaseException:
        os.close(lock)
        raise


def is_there(path: Path) -> bool:
    """Return whether a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0


def _make_way(path: Path, mark_path: Path, init: bool | None) -> None:
    """For a new store. What an earlier one left is moved aside if `init` says so.

    Raises: StoreError.
    """
    mark = read_mark(mark_path) if not init else None
    wal = wal_of(path)
    left = [file for file in (mark_path, wal, path.with_name(f"{path.name}-shm")) if file.exists()]
    if init:
        for file in left:
            log.warning("%s is left of an earlier store: it is now %s.replaced", file, file.name)
            file.replace(file.with_name(f"{file.name}.replaced"))
    elif mark is not None and mark.version:
        raise StoreError(
            f"there is no store {path}, but {mark_path.name} knows one that came to {mark}: put it"
            " back, restore a backup, or begin an empty one with --init"
        )
    elif wal.exists():
        raise StoreError(
            f"there is no store {path}, but {wal.name} is left of one: put it back, restore a"
            " backup, or begin an empty one with --init"
        )
    elif init is False:
        raise StoreError(f"there is no store {path}: muster store init makes one, or --init")


def _missing_wal(path: Path, mark_path: Path) -> str:
    """Name the fault of a store that was not closed and has neither WAL nor mark: it lacks changes
    without a trace. Ask before SQLite makes an empty WAL. "" without that fault."""
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:  # who opens it says so
        return ""
    is_closed = header[18:19] != b"\2"  # as SQLite calls the journal mode WAL
    if is_closed or wal_of(path).exists() or mark_path.exists():
        return ""
    return (
        f"{path} was not closed, and {wal_of(path).name} with its newest changes is missing:"
        " put it back, restore a backup, or see with muster store recover what is there"
    )


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Check that it is a store of this version and whole, make one of an empty file, and set it
    up for writing."""
    is_new = not schema_of(str(path), connection)
    check_whole(path, connection)
    if is_new:
        create(connection)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={MOST_PAGES}")


def _check_mark(
    path: Path, connection: sqlite3.Connection, mark: LogPosition | None
) -> LogPosition:
    """The end of the log. Raises: StoreError when it is not as the mark says."""
    end = end_of(connection)
    if mark is None:
        return end
    check_end(str(path), mark, end, _digest_at(connection, mark.version))
    return replace(end, time_ns=mark.time_ns) if end.version == mark.version else end


def end_of(connection: sqlite3.Connection) -> LogPosition:
    """Return the end of the log."""
    (version,) = connection.execute(_LAST).fetchone()
    time = connection.execute("SELECT time_ns FROM log WHERE version = ?", (version,)).fetchone()
    digest = _digest_at(connection, version) or b""
    return LogPosition(_store_id(connection), version, digest, time[0] if time else 0)


def _digest_at(connection: sqlite3.Connection, version: int) -> bytes | None:
    """Return the digest of the chain at `version`; None where no event is kept."""
    if version == 0:
        return origin(_store_id(connection))
    row = connection.execute(_DIGEST, (version,)).fetchone()
    return row and bytes(row[0])


def _store_id(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
    return str(row[0]) if row else ""


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
    """Lock the file itself, which is made if it does not exist, until the lock is closed.

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


def _check_names(path: Path, status: os.stat_result) -> None:
    if status.st_nlink > 1:
        raise StoreError(
            f"{path} is the same file as another ({status.st_nlink} hard links), and the newest"
            " changes are kept under one name only: remove the other name, or copy the store with"
            " muster store backup"
        )


def _unusable(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error to raise; a full disk and the like do not condemn the file."""
    if isinstance(error, sqlite3.OperationalError):
        message = str(error)
        if path.exists() and not os.access(path.parent, os.W_OK):
            # Who reads a store says so beside it, for a server may be writing.
            message = f"{path.parent} cannot be written to: copy {path.name}* elsewhere first"
        return StoreError(f"cannot open {path}: {message}")
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
    (first,) = connection.execute("SELECT value FROM meta WHERE key = 'first_version'").fetchone()
    return int(first)
