"""The log in PostgreSQL, for several servers of which one leads.

Theory of operation. One session with the database stands for this server. It listens,
polls for the lead with an advisory lock, and, once it has it, carries the appends: with
the session goes the lock, and with the lock's session every append that was under way.
PostgreSQL itself ends a session that says nothing for the length of the lease, so a
leader that is paused or cut off loses the lead without anybody comparing clocks.

The lock says who should lead; the term makes sure of it. Taking the lead raises the term
in the only row of `leader`; every append takes a share lock on that row, finds its own
term there, and inserts, in one statement. So an append of an older term has committed
before the term was raised, and is seen by whoever raised it, or never commits.
Source: term and fencing as in Ongaro and Ousterhout, "In Search of an Understandable
Consensus Algorithm" (2014), section 5.1; here the database stands for the majority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import psycopg
from psycopg import IsolationLevel

from muster.structs import replace
from scheduler.core.model.events import Event
from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import (
    POLL_EVENTS,
    Compacted,
    Deposed,
    EndedJob,
    EndedQuery,
    Leader,
    LoggedRequest,
    StoreError,
    Unreachable,
    VersionMismatch,
)
from scheduler.eventlog.store.chain import LogRow, checked, linked, origin
from scheduler.eventlog.store.ended_rows import ChainEnd, EndedTable, StatementResult
from scheduler.eventlog.store.mark import HighWaterMark, LogPosition, check_end, read_mark
from scheduler.eventlog.store.pglink import Connection, Connections
from scheduler.eventlog.store.pgschema import (
    ATTEND,
    LEAD,
    prepare,
    restores,
    schema_of,
    store_id,
)

_CHANNEL = "muster_log"

_LAST = """
    GREATEST(
        (SELECT COALESCE(MAX(version), 0) FROM log),
        (SELECT COALESCE(MAX(version), 0) FROM snapshot)
    )
"""

_APPEND = f"""
    WITH held AS (SELECT term FROM leader WHERE term = %(term)s FOR SHARE),
    added AS (
        INSERT INTO log (version, time_ns, type, body, actor, digest, term)
        SELECT %(after)s + fact.number, time_ns, type, body, actor, digest, held.term
        FROM held, unnest(
            %(times)s::bigint[], %(types)s::text[], %(bodies)s::text[], %(actors)s::text[],
            %(digests)s::bytea[]
        ) WITH ORDINALITY AS fact (time_ns, type, body, actor, digest, number)
        WHERE %(after)s = {_LAST}
        RETURNING version
    ),
    ended AS ({ended_rows.insert_ended_sql()})
    SELECT pg_notify('{_CHANNEL}', MAX(version)::text) FROM added HAVING COUNT(*) > 0
"""

_ROWS = """
    SELECT version, time_ns, type, body, actor, digest FROM log
    WHERE version > %s ORDER BY version
"""
_DIGEST = """
    SELECT digest FROM log WHERE version = %(version)s
    UNION ALL SELECT digest FROM snapshot WHERE version = %(version)s
"""
_OTHER_SNAPSHOT = """
    SELECT version FROM snapshot JOIN log USING (version) WHERE snapshot.digest <> log.digest
"""
_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_FIRST = "SELECT value::bigint FROM meta WHERE key = 'first_version'"

Answer = TypeVar("Answer")


class PostgresStore:
    """An open log; see SharedStore."""

    def __init__(
        self, links: Connections, store_id: str, restored: int = 0, mark_path: Path | None = None
    ) -> None:
        self.name = links.name
        self._restored = restored
        self._store_id = store_id
        self.mark_path = mark_path
        self._mark: HighWaterMark | None = None
        self._end_version, self._end_digest = 0, origin(store_id)  # as far as it is known
        self._ended_end: ChainEnd | None = None  # while it leads, once it is known
        self._links = links
        self._session: Connection | None = None
        self._asking: Connection | None = None
        self._ask_lock = Lock()

    # Writing, by the session that leads

    def append(
        self,
        expected_version: int,
        events: Sequence[Event],
        term: int = 0,
        actors: Sequence[str] = (),
        ended: Sequence[EndedJob] = (),
    ) -> int:
        """Implement Store.append: one statement, one round trip, one transaction.

        Raises: Deposed when `term` is not the newest; VersionMismatch, Unreachable.
        """
        with self._leading() as session:
            if expected_version != self._end_version:
                digest = self._digest_at(session, expected_version)
                if digest is None:
                    raise self._why_not(session, expected_version, term)
                self._end_version, self._end_digest = expected_version, digest
            rows = linked(self._end_digest, expected_version, events, actors)
            ended_end = self._ended_end or self._ended(session).end()
            over = ended_rows.linked(ended_end, ended)
            self._ended_end = None  # unless all goes well
            values = {
                **ended_rows.columns_of(over),
                "term": term,
                "after": expected_version,
                "times": [row.time_ns for row in rows],
                "types": [row.type_name for row in rows],
                "bodies": [row.body for row in rows],
                "actors": [row.actor for row in rows],
                "digests": [row.digest for row in rows],
            }
            try:
                written = session.execute(_APPEND, values).fetchone()
            except psycopg.errors.UniqueViolation:
                written = None
            if written is None and events:
                raise self._why_not(session, expected_version, term)
        self._ended_end = ChainEnd(over[-1].number, over[-1].digest) if over else ended_end
        if rows:
            self._came_to(rows[-1])
        return expected_version + len(events)

    def _ended(self, connection: Connection) -> EndedTable:
        def execute(statement: str, values: Sequence[Any]) -> StatementResult:
            return connection.execute(statement.encode(), values)

        return EndedTable(self.name, self._store_id, "%s", execute)

    def _came_to(self, row: LogRow) -> None:
        """Remember the end of the log, as far as this server knows it."""
        self._end_version, self._end_digest = row.version, row.digest
        if self._mark is not None:
            self._mark.advance(row.version, row.digest, row.time_ns)

    def save_snapshot(self, version: int, body: bytes) -> None:
        with self._writing() as connection:
            digest = self._digest_at(connection, version)
            if digest is None:
                raise self._missing(version)
            connection.execute(
                "INSERT INTO snapshot VALUES (%s, %s, %s) ON CONFLICT (version)"
                " DO UPDATE SET body = excluded.body, digest = excluded.digest",
                (version, body, digest),
            )

    def compact(self, to_version: int) -> int:
        """Implement Store.compact. Autovacuum gives the room back to later events."""
        with self._writing() as connection, connection.transaction():
            there = "SELECT COUNT(*) FROM snapshot WHERE version = %s"
            if not _number(connection, there, (to_version,)):
                raise StoreError(f"{self.name} has no snapshot of version {to_version}")
            kept = "UPDATE meta SET value = %s WHERE key = 'first_version'"
            connection.execute(kept, (str(to_version + 1),))
            connection.execute("DELETE FROM snapshot WHERE version < %s", (to_version,))
            deleted = connection.execute("DELETE FROM log WHERE version <= %s", (to_version,))
            return deleted.rowcount

    def drop_ended(self, before_ns: int) -> int:
        """Implement Store.drop_ended."""
        with self._writing() as connection, connection.transaction():
            return self._ended(connection).drop(before_ns)

    # Reading, from any thread

    def ended_jobs(self, query: EndedQuery) -> list[EndedJob]:
        """Implement Store.ended_jobs, by the connection for short questions."""

        def jobs(connection: Connection) -> list[EndedJob]:
            with connection.transaction():
                connection.execute(_ONE_MOMENT)  # rows may be let go meanwhile
                return self._ended(connection).jobs(query)

        return self._ask(jobs)

    def ended_log(self) -> Iterator[EndedJob]:
        """Implement Store.ended_log, page by page on a connection of its own."""
        with self._own() as connection, connection.transaction():
            connection.execute(_ONE_MOMENT)
            yield from self._ended(connection).log()

    def ended_counts(self) -> tuple[int, int]:
        def counts(connection: Connection) -> tuple[int, int]:
            return self._ended(connection).counts()

        return self._ask(counts)

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """Implement Store.read, row by row on a connection of its own."""
        with self._own() as connection:
            self._check_kept(connection, after_version)
            for row in self._rows(connection, after_version):
                yield row.version, row.event(self.name)

    def requests(self, after_version: int = 0) -> Iterator[LoggedRequest]:
        """Implement Store.requests, row by row on a connection of its own."""
        with self._own() as connection:
            first = _number(connection, _FIRST)
            for row in self._rows(connection, max(after_version, first - 1)):
                if row.actor:
                    yield LoggedRequest(row.version, row.event(self.name), row.actor)

    def check(self) -> None:
        """Verify the digests of all kept events, as Store.check. Cost: some 4 us an event."""
        mark = read_mark(self.mark_path)  # before the log, which servers may be writing
        with self._own() as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                self._check(connection, mark)

    def _check(self, connection: Connection, mark: LogPosition | None) -> None:
        deque(self._rows(connection, _number(connection, _FIRST) - 1), maxlen=0)
        other = connection.execute(_OTHER_SNAPSHOT).fetchone()
        if other is not None:
            raise StoreError(
                f"{self.name} is corrupt: the snapshot of version {other[0]} is of another log"
            )
        self._check_mark(connection, mark)

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Implement Store.snapshots, one at a time on a connection of its own."""
        query = (
            "SELECT version, body FROM snapshot WHERE %s::bigint IS NULL OR version <= %s"
            " ORDER BY version DESC"
        )
        with self._own() as connection, connection.cursor() as cursor:
            for version, body in cursor.stream(query, (to_version, to_version)):
                yield int(version), bytes(body)

    def first_version(self) -> int:
        return self._ask(lambda connection: _number(connection, _FIRST))

    def last_version(self) -> int:
        return self._ask(lambda connection: _number(connection, f"SELECT {_LAST}"))

    def version_at(self, time_ns: int) -> int:
        """Implement Store.version_at. Cost: walks the events before."""
        first = "SELECT MIN(version) FROM log WHERE time_ns >= %s"
        query = f"SELECT COALESCE(({first}), {_LAST} + 1)"
        return self._ask(lambda connection: _number(connection, query, (time_ns,)))

    def size_bytes(self) -> int:
        tables = " + ".join(
            f"pg_total_relation_size('{table}')" for table in ("log", "snapshot", "ended_job")
        )
        return self._ask(lambda connection: _number(connection, f"SELECT {tables}"))

    def leader(self) -> Leader:
        def leader(connection: Connection) -> Leader:
            row = connection.execute("SELECT term, address FROM leader").fetchone()
            assert row is not None
            return Leader(*row)

        return self._ask(leader)

    # Following and leading, from one thread

    def poll(self, after_version: int, wait_s: float) -> list[tuple[int, Event]]:
        """Implement SharedStore.poll."""
        with self._listening() as session:
            for _ in session.notifies(timeout=wait_s, stop_after=1):
                pass
            self._check_kept(session, after_version)
            if after_version != self._end_version:
                self._end_version = after_version
                self._end_digest = self._digest_at(session, after_version) or b""
            fetched = session.execute(f"{_ROWS} LIMIT {POLL_EVENTS}", (after_version,)).fetchall()
            if not fetched and (last := _number(session, f"SELECT {_LAST}")) < after_version:
                raise StoreError(
                    f"{self.name} ends at version {last:,}, but this server has read it up to"
                    f" version {after_version:,}: restore a backup, and start it again"
                )
            rows = list(
                checked(self.name, fetched, after_version, self._end_digest or None, self._missing)
            )
            events = [(row.version, row.event(self.name)) for row in rows]
            if rows:
                self._came_to(rows[-1])
            return events

    def try_lead(self, address: str, lease_s: float) -> int | None:
        """Implement SharedStore.try_lead. The lock belongs to the log's table, not to the database,
        so that each schema can have its own."""
        with self._listening() as session:
            if session.execute(LEAD.encode()).fetchone() != (True,):
                return None
            session.execute(f"UNLISTEN {_CHANNEL}")
            session.execute(f"SET idle_session_timeout = {round(lease_s * 1000)}".encode())
            self._ended_end = None  # others may have led meanwhile
            raised = "UPDATE leader SET term = term + 1, address = %s, since = now() RETURNING term"
            term = _number(session, raised, (address,))
            session.execute(f"NOTIFY {_CHANNEL}")
            return term

    def keep_lead(self, term: int) -> None:
        with self._leading() as session:
            if _number(session, "SELECT term FROM leader") != term:
                raise Deposed(f"another server leads on {self.name}")

    def resign(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        with suppress(psycopg.Error):  # closing frees it as well, but somewhat later
            session.execute("SELECT pg_advisory_unlock_all()")
        session.close()

    def cut(self) -> None:
        self._links.cut()

    def close(self) -> None:
        self.resign()
        if self._mark is not None:
            self._mark.close()
        if self._asking is not None:
            self._asking.close()

    # Connections

    @contextmanager
    def _listening(self) -> Iterator[Connection]:
        """The session, opened anew when there is none."""
        if self._session is None or self._session.closed:
            self._session = self._attending()
        with self._links.speaking():
            yield self._session

    def _attending(self) -> Connection:
        """A session that stands for this server: a restore waits until there is none."""
        session = self._links.connect()
        with self._links.speaking():
            if session.execute(ATTEND.encode()).fetchone() != (True,):
                session.close()
                raise Unreachable(f"{self.name} is being restored")
            session.execute(f"LISTEN {_CHANNEL}")
        return session

    @contextmanager
    def _leading(self) -> Iterator[Connection]:
        """The session that took the lead: a new one would not have it."""
        session = self._session
        if session is None or session.closed:
            raise Unreachable(f"the session with {self.name} has ended")
        with self._links.speaking():
            yield session

    @contextmanager
    def _own(self) -> Iterator[Connection]:
        """A connection for as long as this lasts."""
        connection = self._links.connect()
        try:
            with self._links.speaking():
                yield connection
        finally:
            connection.close()

    _writing = _own

    def _ask(self, question: Callable[[Connection], Answer]) -> Answer:
        """Put a short question by the connection that is kept for them. Where that one has died
        since the last question, as when the database was restarted, ask once more by a new one."""
        with self._ask_lock:
            was_kept = self._asking is not None and not self._asking.closed
            try:
                return self._ask_once(question)
            except Unreachable:
                if not was_kept or self._asking is None or not self._asking.closed:
                    raise
                return self._ask_once(question)

    def _ask_once(self, question: Callable[[Connection], Answer]) -> Answer:
        if self._asking is None or self._asking.closed:
            self._asking = self._links.connect()
        with self._links.speaking():
            return question(self._asking)

    # Rows

    def _check_kept(self, connection: Connection, after_version: int) -> None:
        if restores(connection) != self._restored:
            raise StoreError(
                f"a backup was restored into {self.name}: this server has the log of before; start"
                " it again"
            )
        first = _number(connection, _FIRST)
        if first > after_version + 1:
            raise Compacted(first)

    def _rows(self, connection: Connection, after_version: int) -> Iterator[LogRow]:
        """Row by row; `connection` is good for nothing else meanwhile."""
        before = self._digest_at(connection, after_version)
        with connection.cursor() as cursor:
            stream = cast(
                "Generator[Sequence[Any], None, None]", cursor.stream(_ROWS, (after_version,))
            )
            with closing(stream) as rows:  # left open, it would keep the connection
                yield from checked(self.name, rows, after_version, before, self._missing)

    def _digest_at(self, connection: Connection, version: int) -> bytes | None:
        """Return the digest of the chain at `version`; None where no event is kept."""
        if version == 0:
            return origin(self._store_id)
        row = connection.execute(_DIGEST, {"version": version}).fetchone()
        return None if row is None else bytes(row[0])

    def mark_end(self) -> None:
        """Let the mark say how far the log has come. Raises: StoreError when it does not agree with
        the mark so far."""
        if self.mark_path is None:
            return
        mark = read_mark(self.mark_path)
        with self._own() as connection:
            self._mark = HighWaterMark(self.mark_path, self._check_mark(connection, mark))

    def _check_mark(self, connection: Connection, mark: LogPosition | None) -> LogPosition:
        """The end of the log. Raises: StoreError when it is not as the mark says."""
        end = self._end(connection)
        if mark is None:
            return end
        check_end(self.name, mark, end, self._digest_at(connection, mark.version))
        return replace(end, time_ns=mark.time_ns) if end.version == mark.version else end

    def _end(self, connection: Connection) -> LogPosition:
        version = _number(connection, f"SELECT {_LAST}")
        row = connection.execute(
            "SELECT time_ns FROM log WHERE version = %s", (version,)
        ).fetchone()
        digest = self._digest_at(connection, version) or b""
        return LogPosition(self._store_id, version, digest, row[0] if row else 0, self._restored)

    def _missing(self, version: int) -> StoreError:
        """Dropped since this read began, or lost."""
        first = self.first_version()
        if first > version:
            return Compacted(first)
        return StoreError(f"{self.name} is corrupt: version {version} is missing")

    def _why_not(self, session: Connection, expected: int, term: int) -> StoreError:
        """Why an append wrote nothing."""
        newest = _number(session, "SELECT term FROM leader")
        if newest != term:
            return Deposed(f"{self.name} is at term {newest}, this server led in term {term}")
        last = _number(session, f"SELECT {_LAST}")
        return VersionMismatch(f"{self.name} ends at version {last}, expected {expected}")


def open_postgres(url: str, *, init: bool | None = None, mark: Path | None = None) -> PostgresStore:
    """Open the log in the database at `url`. Tables that are not there are made with `init`; with
    None only where `mark` knows of no earlier ones. `mark`: a file that says how far the log has
    come, None: there is none.

    Raises: StoreError.
    """
    links = Connections(url)
    connection = links.connect()
    may_make = read_mark(mark) is None if init is None else init
    with links.speaking():
        try:
            prepare(links.name, connection, init=may_make)
            identity, restored = store_id(connection), restores(connection)
        finally:
            connection.close()
    store = PostgresStore(links, identity, restored, mark)
    store.mark_end()
    return store


def look_at_postgres(url: str, mark: Path | None = None) -> PostgresStore:
    """The log in the database at `url`, to be read beside its servers.

    Raises: StoreError, also when there is none.
    """
    links = Connections(url)
    connection = links.connect()
    with links.speaking():
        try:
            if not schema_of(links.name, connection):
                raise StoreError(f"{links.name} is empty: it has no muster store")
            identity, restored = store_id(connection), restores(connection)
        finally:
            connection.close()
    return PostgresStore(links, identity, restored, mark)


def _number(connection: Connection, query: str, values: Sequence[Any] = ()) -> int:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return int(row[0])
