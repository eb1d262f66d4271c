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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path

from scheduler.core.model.events import Event
from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import EndedJob, NotWritten, StoreError, VersionMismatch
from scheduler.eventlog.store.chain import LogRow, linked
from scheduler.eventlog.store.ended_rows import ChainEnd
from scheduler.eventlog.store.folding import MOST_PAGES, Folding
from scheduler.eventlog.store.mark import HighWaterMark, LogPosition, mark_of, read_mark
from scheduler.eventlog.store.schema import create, insert, schema_of
from scheduler.eventlog.store.sql_store import LAST, Answer, LogTables, Store

PREFIX = "sqlite:///"

_ROLLED_BACK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)

log = logging.getLogger("muster.store")

_MOST_CACHED = 32  # statements: each keeps what was last bound to it, a row for each event
_MOST_ROWS = 1_000  # of one statement: SQLite takes 32,766 values


@cache
def _insert(rows: int) -> str:
    """Adds so many rows, unless the log ends elsewhere than said."""
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)
    return f"INSERT INTO log SELECT * FROM (VALUES {values}) WHERE ? = ({LAST})"


class SqliteStore(Store):
    """An open log; see Store."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: int,
        end: LogPosition,
        mark_path: Path,
    ) -> None:
        self.path, self.name = path, str(path)
        self.mark_path = mark_path
        self._mark = HighWaterMark(mark_path, end)
        self._end_version, self._end_digest = end.version, end.digest
        self._ended_end = tables_of(path, connection).ended.end()
        self._connection = connection
        self._lock = lock
        self._identities = self._present()
        self._folding = Folding(lambda: connect(path))

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
                connection.executemany(insert("ended_job"), [row.values for row in over])
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
            (last,) = connection.execute(LAST).fetchone()
            raise self._ends_elsewhere(last, before)

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
    def _writing(self) -> Iterator[LogTables]:
        with self._transaction() as connection:
            yield tables_of(self.path, connection)

    @contextmanager
    def _reading(self) -> Iterator[LogTables]:
        try:
            with closing(connect(self.path)) as connection:
                connection.execute("BEGIN")  # all that is read is of one moment
                yield tables_of(self.path, connection)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} is corrupt: {error}") from error

    def _ask(
        self, question: Callable[[LogTables], Answer], *, of_one_moment: bool = False
    ) -> Answer:
        with self._reading() as tables:
            return question(tables)


class SqliteCopy(SqliteStore):
    """A store that is only read: a backup, or the store of a server that runs."""

    def __init__(self, path: Path, mark_path: Path, fault: str) -> None:
        self.path, self.name = path, str(path)
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
            end = tables_of(path, connection).checked_end(remembered)
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


def tables_of(path: Path, connection: sqlite3.Connection) -> LogTables:
    """Return the tables of the store at `path` over a connection to it."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
    execute = connection.execute
    return LogTables(str(path), str(row[0]) if row else "", "?", execute, execute)


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
