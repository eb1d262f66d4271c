"""What the stores in both databases do alike, in SQL that SQLite and PostgreSQL understand."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from muster.structs import replace
from scheduler.core.model.events import Event
from scheduler.eventlog.store.base import (
    Compacted,
    EndedJob,
    EndedQuery,
    Leader,
    LoggedRequest,
    StoreError,
)
from scheduler.eventlog.store.chain import LogRow, checked, origin
from scheduler.eventlog.store.ended_rows import EndedTable, StatementResult
from scheduler.eventlog.store.mark import LogPosition, check_end, read_mark

LAST = """
    SELECT COALESCE(MAX(version), 0) FROM (
        SELECT MAX(version) AS version FROM log
        UNION ALL SELECT MAX(version) FROM snapshot
    ) AS kept
"""
ROWS = """
    SELECT version, time_ns, type, body, actor, digest FROM log
    WHERE version > ? ORDER BY version
"""
_DIGEST = """
    SELECT digest FROM log WHERE version = ?
    UNION ALL SELECT digest FROM snapshot WHERE version = ?
"""
_OTHER_SNAPSHOT = """
    SELECT version FROM snapshot JOIN log USING (version) WHERE snapshot.digest <> log.digest
"""
_PUT_SNAPSHOT = """
    INSERT INTO snapshot VALUES (?, ?, ?)
    ON CONFLICT (version) DO UPDATE SET body = excluded.body, digest = excluded.digest
"""
_SNAPSHOTS = "SELECT version, body FROM snapshot WHERE version <= ? ORDER BY version DESC"
_MOST_VERSION = 2**63 - 1
_PIECE = 100  # events between two pauses

Answer = TypeVar("Answer")


class LogTables(NamedTuple):
    """The tables of a log over one connection. `store`, `store_id`: the store's name in messages,
    and its id. `mark`: stands for a value in statements. `execute`: runs one with its values;
    `stream`: returns its rows one by one, to be closed. `restores`: as in LogPosition."""

    store: str
    store_id: str
    mark: str
    execute: Callable[[str, Sequence[Any]], StatementResult]
    stream: Callable[[str, Sequence[Any]], Any]
    restores: int = 0

    @property
    def ended(self) -> EndedTable:
        return EndedTable(self.store, self.store_id, self.run)

    def run(self, statement: str, *values: Any) -> StatementResult:
        """Run a statement in which `?` stands for a value."""
        return self.execute(statement.replace("?", self.mark), values)

    def rows_of(self, statement: str, *values: Any) -> AbstractContextManager[Any]:
        """Return a context with the rows of a statement, one by one."""
        return closing(self.stream(statement.replace("?", self.mark), values))

    def first_version(self) -> int:
        return int(self.run("SELECT value FROM meta WHERE key = 'first_version'").fetchone()[0])

    def last_version(self) -> int:
        return int(self.run(LAST).fetchone()[0])

    def version_at(self, time_ns: int) -> int:
        query = "SELECT version FROM log WHERE time_ns >= ? ORDER BY version LIMIT 1"
        row = self.run(query, time_ns).fetchone()
        return int(row[0]) if row else self.last_version() + 1

    def digest_at(self, version: int) -> bytes | None:
        """Return the digest of the chain at `version`; None where no event is kept."""
        if version == 0:
            return origin(self.store_id)
        row = self.run(_DIGEST, version, version).fetchone()
        return row and bytes(row[0])

    def end(self) -> LogPosition:
        """Return the end of the log."""
        version = self.last_version()
        row = self.run("SELECT time_ns FROM log WHERE version = ?", version).fetchone()
        digest = self.digest_at(version) or b""
        return LogPosition(self.store_id, version, digest, row[0] if row else 0, self.restores)

    def checked_end(self, mark: LogPosition | None) -> LogPosition:
        """Return the end of the log. Raises: StoreError when it is not as the mark says."""
        end = self.end()
        if mark is None:
            return end
        check_end(self.store, mark, end, self.digest_at(mark.version))
        return replace(end, time_ns=mark.time_ns) if end.version == mark.version else end


class Store(ABC):
    """An open log with snapshots. Use what writes from one thread; what reads from any.

    Versions are 1, 2, 3, ... without a gap. Snapshots are what codec writes of a state;
    a store keeps bytes and knows nothing of them. `name`: that of the store in messages.
    `mark_path`: the file that says how far the log has come, if there is to be one.
    """

    name: str
    mark_path: Path | None

    @abstractmethod
    def append(
        self,
        expected_version: int,
        events: Sequence[Event],
        term: int = 0,
        actors: Sequence[str] = (),
        ended: Sequence[EndedJob] = (),
    ) -> int:
        """Write `events` after `expected_version`, all or none, and return the new last version.

        `actors`: who asked for each; none given: the scheduler did it by itself. `ended`: the jobs
        that these events end, in order. `term`: of the leader that writes; a store that several
        servers share refuses an older one. When this returns the events are durable.

        Raises: VersionMismatch when the log ends elsewhere, NotWritten when certainly nothing was
        written, StoreError when that is unknown.
        """

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the bytes that the store takes on the disk."""

    @abstractmethod
    def close(self) -> None:
        """Close the store, so that another server may open it."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[LogTables]:
        """Return a context with the tables as they are at one moment."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[LogTables]:
        """Return a context that is a transaction."""

    @abstractmethod
    def _ask(
        self, question: Callable[[LogTables], Answer], *, of_one_moment: bool = False
    ) -> Answer:
        """Answer a short question. `of_one_moment`: it takes several statements."""

    def read(self, after_version: int = 0, pause_s: float = 0.0) -> Iterator[tuple[int, Event]]:
        """Yield (version, event) in order, of everything that is durable when this is called.
        `pause_s`: after so many events as take a few milliseconds to apply, for Python runs one
        thing at a time, and calls wait.

        Raises: Compacted, StoreError on a record that cannot be read, or a missing one.
        """
        with self._reading() as tables:
            self._check_kept(tables, after_version)
            for row in self._rows(tables, after_version):
                yield row.version, row.event(self.name)
                if pause_s and row.version % _PIECE == 0:
                    time.sleep(pause_s)

    def requests(self, after_version: int = 0) -> Iterator[LoggedRequest]:
        """Yield the events that somebody asked for, in order, as far as they are kept.

        Raises: StoreError on a record that cannot be read, or a missing one.
        """
        with self._reading() as tables:
            for row in self._rows(tables, max(after_version, tables.first_version() - 1)):
                if row.actor:
                    yield LoggedRequest(row.version, row.event(self.name), row.actor)

    def check(self) -> None:
        """Read all that is kept along the chain of digests, and compare its end with the mark.

        Raises: StoreError when an event is not the one that was written, or the end is missing.
        Cost: some 4 us an event.
        """
        mark = read_mark(self.mark_path)  # before the log, which servers may be writing
        with self._reading() as tables:
            deque(self._rows(tables, tables.first_version() - 1), maxlen=0)
            if other := tables.run(_OTHER_SNAPSHOT).fetchone():
                raise StoreError(
                    f"{self.name} is corrupt: the snapshot of version {other[0]} is of another log"
                )
            tables.checked_end(mark)

    def first_version(self) -> int:
        """Return the oldest version that can be read; 1 as long as nothing is dropped."""
        return self._ask(LogTables.first_version)

    def last_version(self) -> int:
        """Return the newest durable version; 0 when the log is empty."""
        return self._ask(LogTables.last_version)

    def version_at(self, time_ns: int) -> int:
        """Return the first kept version that is not before `time_ns`; else one after the last.
        Cost: walks the events before."""
        return self._ask(lambda tables: tables.version_at(time_ns))

    def save_snapshot(self, version: int, body: bytes) -> None:
        """Keep the state at `version`. Raises: StoreError."""
        with self._writing() as tables:
            digest = tables.digest_at(version)
            if digest is None:
                raise self._missing(version)
            tables.run(_PUT_SNAPSHOT, version, body, digest)

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (version, body) of snapshots, newest first, none after `to_version`. Raises:
        StoreError."""
        last = _MOST_VERSION if to_version is None else to_version
        with self._reading() as tables, tables.rows_of(_SNAPSHOTS, last) as rows:
            for version, body in rows:
                yield int(version), bytes(body)

    def compact(self, to_version: int) -> int:
        """Drop the events up to `to_version`, and the snapshots before that one, and return how
        many events were dropped. The snapshot at `to_version` now stands for them.

        Raises: StoreError, also when there is no such snapshot.
        """
        with self._writing() as tables:
            there = tables.run("SELECT 1 FROM snapshot WHERE version = ?", to_version)
            if there.fetchone() is None:
                raise StoreError(f"{self.name} has no snapshot of version {to_version}")
            kept = "UPDATE meta SET value = ? WHERE key = 'first_version'"
            tables.run(kept, str(to_version + 1))
            tables.run("DELETE FROM snapshot WHERE version < ?", to_version)
            return tables.run("DELETE FROM log WHERE version <= ?", to_version).rowcount

    def ended_jobs(self, query: EndedQuery) -> list[EndedJob]:
        """Return the ended jobs that are asked for, in the order that is asked for.

        Raises: StoreError, also when one of them is not what was written.
        """
        return self._ask(lambda tables: tables.ended.jobs(query), of_one_moment=True)

    def ended_log(self) -> Iterator[EndedJob]:
        """Yield the ended jobs that are kept, in the order of their ends. Raises: StoreError."""
        with self._reading() as tables:
            yield from tables.ended.log()

    def ended_counts(self) -> tuple[int, int]:
        """Return how many ended jobs are kept, and how many were dropped."""
        return self._ask(lambda tables: tables.ended.counts())

    def drop_ended(self, before_ns: int) -> int:
        """Drop the jobs that had ended before this time, and return how many. Raises:
        StoreError."""
        with self._writing() as tables:
            return tables.ended.drop(before_ns)

    def _check_kept(self, tables: LogTables, after_version: int) -> None:
        """Raises: Compacted."""
        if (first := tables.first_version()) > after_version + 1:
            raise Compacted(first)

    def _rows(self, tables: LogTables, after_version: int) -> Iterator[LogRow]:
        before = tables.digest_at(after_version)
        with tables.rows_of(ROWS, after_version) as rows:
            yield from checked(self.name, rows, after_version, before, self._missing)

    def _missing(self, version: int) -> StoreError:
        return StoreError(f"{self.name} is corrupt: version {version} is missing")


class SharedStore(Store):
    """A store that several servers have open; one of them leads, and appends.

    A session with the database stands for the server: who leads loses the lead with it,
    at the latest `lease_s` after it was last heard of. That frees the lead; what keeps an
    old leader from writing is the term, which every append compares.

    Raises, all of them: Unreachable.
    """

    @abstractmethod
    def try_lead(self, address: str, lease_s: float) -> int | None:
        """Take the lead if no server leads, and return the term; from then on no older term can
        append."""

    @abstractmethod
    def keep_lead(self, term: int) -> None:
        """Renew the lead. Raises: Deposed."""

    @abstractmethod
    def resign(self) -> None:
        """Free the lead at once, if it is held. Raises nothing."""

    @abstractmethod
    def leader(self) -> Leader:
        """Return the last leader."""

    @abstractmethod
    def poll(self, after_version: int, wait_s: float) -> list[tuple[int, Event]]:
        """Return the next events, in order, after waiting for one for up to `wait_s`. Fewer than
        POLL_EVENTS mean that these are all that the log had when this call began, or more. Raises:
        Compacted."""

    @abstractmethod
    def cut(self) -> None:
        """Drop every connection, so that calls that hang end with Unreachable. From any thread."""
