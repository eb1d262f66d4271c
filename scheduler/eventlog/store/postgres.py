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

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import psycopg

from scheduler.core.model.events import Event
from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import (
    POLL_EVENTS,
    Compacted,
    Deposed,
    EndedJob,
    Leader,
    StoreError,
    Unreachable,
    VersionMismatch,
)
from scheduler.eventlog.store.chain import LogRow, checked, linked, origin
from scheduler.eventlog.store.ended_rows import ChainEnd, StatementResult
from scheduler.eventlog.store.mark import HighWaterMark, read_mark
from scheduler.eventlog.store.pglink import Connection, Connections
from scheduler.eventlog.store.pgschema import (
    ATTEND,
    LEAD,
    prepare,
    require_tables,
    restores,
    store_id,
)
from scheduler.eventlog.store.schema import arrays_of, columns, unnested
from scheduler.eventlog.store.sql_store import LAST, ROWS, Answer, LogTables, SharedStore

_CHANNEL = "muster_log"

_APPEND = f"""
    WITH held AS (SELECT term FROM leader WHERE term = %(term)s FOR SHARE),
    added AS (
        INSERT INTO log ({columns("log")}, term)
        SELECT fact.*, held.term FROM held, unnest({unnested("log")}) AS fact
        WHERE %(after)s = ({LAST})
        RETURNING version
    ),
    ended AS (
        INSERT INTO ended_job ({columns("ended_job")})
        SELECT over.* FROM unnest({unnested("ended_job")}) AS over
        WHERE EXISTS (SELECT 1 FROM added)
    )
    SELECT pg_notify('{_CHANNEL}', MAX(version)::text) FROM added HAVING COUNT(*) > 0
"""


class PostgresStore(SharedStore):
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
                digest = self._tables(session).digest_at(expected_version)
                if digest is None:
                    raise self._why_not(session, expected_version, term)
                self._end_version, self._end_digest = expected_version, digest
            rows = linked(self._end_digest, expected_version, events, actors)
            ended_end = self._ended_end or self._tables(session).ended.end()
            over = ended_rows.linked(ended_end, ended)
            self._ended_end = None  # unless all goes well
            values = {
                **arrays_of("log", rows),
                **arrays_of("ended_job", (row.values for row in over)),
                "term": term,
                "after": expected_version,
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

    def _came_to(self, row: LogRow) -> None:
        """Remember the end of the log, as far as this server knows it."""
        self._end_version, self._end_digest = row.version, row.digest
        if self._mark is not None:
            self._mark.advance(row.version, row.digest, row.time_ns)

    # Reading, from any thread

    def size_bytes(self) -> int:
        sizes = " + ".join(
            f"pg_total_relation_size('{table}')" for table in ("log", "snapshot", "ended_job")
        )
        return self._ask(lambda tables: int(tables.run(f"SELECT {sizes}").fetchone()[0]))

    def leader(self) -> Leader:
        query = "SELECT term, address FROM leader"
        return self._ask(lambda tables: Leader(*tables.run(query).fetchone()))

    # Following and leading, from one thread

    def poll(self, after_version: int, wait_s: float) -> list[tuple[int, Event]]:
        """Implement SharedStore.poll."""
        with self._listening() as session:
            for _ in session.notifies(timeout=wait_s, stop_after=1):
                pass
            tables = self._tables(session)
            self._check_kept(tables, after_version)
            if after_version != self._end_version:
                self._end_version = after_version
                self._end_digest = tables.digest_at(after_version) or b""
            fetched = tables.run(f"{ROWS} LIMIT {POLL_EVENTS}", after_version).fetchall()
            if not fetched and (last := tables.last_version()) < after_version:
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
        with closing(self._links.connect()) as connection, self._links.speaking():
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[LogTables]:
        with self._own() as connection, _one_moment(connection):
            yield self._tables(connection)

    @contextmanager
    def _writing(self) -> Iterator[LogTables]:
        with self._own() as connection, connection.transaction():
            yield self._tables(connection)

    def _ask(
        self, question: Callable[[LogTables], Answer], *, of_one_moment: bool = False
    ) -> Answer:
        """Put a short question by the connection that is kept for them. Where that one has died
        since the last question, as when the database was restarted, ask once more by a new one."""
        with self._ask_lock:
            was_kept = self._asking is not None and not self._asking.closed
            try:
                return self._ask_once(question, of_one_moment)
            except Unreachable:
                if not was_kept or self._asking is None or not self._asking.closed:
                    raise
                return self._ask_once(question, of_one_moment)

    def _ask_once(self, question: Callable[[LogTables], Answer], of_one_moment: bool) -> Answer:
        if self._asking is None or self._asking.closed:
            self._asking = self._links.connect()
        moment = _one_moment(self._asking) if of_one_moment else nullcontext()
        with self._links.speaking(), moment:
            return question(self._tables(self._asking))

    # Rows

    def _tables(self, connection: Connection) -> LogTables:
        def execute(statement: str, values: Sequence[Any]) -> StatementResult:
            return connection.execute(statement.encode(), values)

        def stream(statement: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
            """Row by row; `connection` is good for nothing else meanwhile."""
            with connection.cursor() as cursor:
                yield from cursor.stream(statement.encode(), values)

        return LogTables(self.name, self._store_id, "%s", execute, stream, self._restored)

    def _check_kept(self, tables: LogTables, after_version: int) -> None:
        """Raises: StoreError after a restore, too."""
        if restores(tables.execute) != self._restored:
            raise StoreError(
                f"a backup was restored into {self.name}: this server has the log of before; start"
                " it again"
            )
        super()._check_kept(tables, after_version)

    def mark_end(self) -> None:
        """Let the mark say how far the log has come. Raises: StoreError when it does not agree with
        the mark so far."""
        if self.mark_path is None:
            return
        mark = read_mark(self.mark_path)
        with self._own() as connection:
            self._mark = HighWaterMark(self.mark_path, self._tables(connection).checked_end(mark))

    def _missing(self, version: int) -> StoreError:
        """Dropped since this read began, or lost."""
        first = self.first_version()
        if first > version:
            return Compacted(first)
        return super()._missing(version)

    def _why_not(self, session: Connection, expected: int, term: int) -> StoreError:
        """Why an append wrote nothing."""
        newest = _number(session, "SELECT term FROM leader")
        if newest != term:
            return Deposed(f"{self.name} is at term {newest}, this server led in term {term}")
        last = self._tables(session).last_version()
        return VersionMismatch(f"{self.name} ends at version {last}, expected {expected}")


def open_postgres(url: str, *, init: bool | None = None, mark: Path | None = None) -> PostgresStore:
    """Open the log in the database at `url`. Tables that are not there are made with `init`; with
    None only where `mark` knows of no earlier ones. `mark`: a file that says how far the log has
    come, None: there is none.

    Raises: StoreError.
    """
    may_make = read_mark(mark) is None if init is None else init
    store = _connected(url, mark, partial(prepare, init=may_make))
    store.mark_end()
    return store


def look_at_postgres(url: str, mark: Path | None = None) -> PostgresStore:
    """The log in the database at `url`, to be read beside its servers.

    Raises: StoreError, also when there is none.
    """
    return _connected(url, mark, require_tables)


def _connected(
    url: str, mark: Path | None, check: Callable[[str, Connection], None]
) -> PostgresStore:
    links = Connections(url)
    with closing(links.connect()) as connection, links.speaking():
        check(links.name, connection)
        return PostgresStore(links, store_id(connection), restores(connection.execute), mark)


@contextmanager
def _one_moment(connection: Connection) -> Iterator[None]:
    """Return a context in which all that is read is of one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _number(connection: Connection, query: str, values: Sequence[Any] = ()) -> int:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return int(row[0])
