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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import psycopg

from scheduler.core.model.events import Event
from scheduler.eventlog.codec import UndecodableEvent, decode, encode
from scheduler.eventlog.store.base import (
    Asked,
    Compacted,
    Deposed,
    Leader,
    StoreError,
    Unreachable,
    VersionMismatch,
)
from scheduler.eventlog.store.pglink import Connection, Connections
from scheduler.eventlog.store.pgschema import ATTEND, LEAD, prepare, restores, schema_of

PAGE = 500  # events of one poll at most: a few tens of milliseconds to apply
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
        INSERT INTO log (version, time_ns, type, body, actor, term)
        SELECT %(after)s + fact.number, time_ns, type, body, actor, held.term
        FROM held, unnest(
            %(times)s::bigint[], %(types)s::text[], %(bodies)s::text[], %(actors)s::text[]
        ) WITH ORDINALITY AS fact (time_ns, type, body, actor, number)
        WHERE %(after)s = {_LAST}
        RETURNING version
    )
    SELECT pg_notify('{_CHANNEL}', MAX(version)::text) FROM added HAVING COUNT(*) > 0
"""

_EVENTS = "SELECT version, type, body FROM log WHERE version > %s ORDER BY version"
_ASKED = """
    SELECT version, type, body, actor FROM log
    WHERE version > %s AND actor <> '' ORDER BY version
"""
_FIRST = "SELECT value::bigint FROM meta WHERE key = 'first_version'"


class PostgresStore:
    """An open log; see SharedStore."""

    def __init__(self, links: Connections, restored: int = 0) -> None:
        self.name = links.name
        self._restored = restored
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
    ) -> int:
        """As Store says: one statement, one round trip, one transaction.

        Raises: Deposed when `term` is not the newest; VersionMismatch, Unreachable.
        """
        encoded = [encode(event) for event in events]
        rows = {
            "term": term,
            "after": expected_version,
            "times": [event.time_ns for event in events],
            "types": [type_name for type_name, _ in encoded],
            "bodies": [body for _, body in encoded],
            "actors": list(actors) or [""] * len(events),
        }
        with self._leading() as session:
            try:
                written = session.execute(_APPEND, rows).fetchone()
            except psycopg.errors.UniqueViolation:
                written = None
            if written is None and events:
                raise self._why_not(session, expected_version, term)
        return expected_version + len(events)

    def save_snapshot(self, version: int, body: bytes) -> None:
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO snapshot VALUES (%s, %s)"
                " ON CONFLICT (version) DO UPDATE SET body = excluded.body",
                (version, body),
            )

    def compact(self, to_version: int) -> int:
        """As Store says. Autovacuum gives the room back to later events."""
        with self._writing() as connection, connection.transaction():
            there = "SELECT COUNT(*) FROM snapshot WHERE version = %s"
            if not _number(connection, there, (to_version,)):
                raise StoreError(f"{self.name} has no snapshot of version {to_version}")
            kept = "UPDATE meta SET value = %s WHERE key = 'first_version'"
            connection.execute(kept, (str(to_version + 1),))
            connection.execute("DELETE FROM snapshot WHERE version < %s", (to_version,))
            gone = connection.execute("DELETE FROM log WHERE version <= %s", (to_version,))
            return gone.rowcount

    # Reading, from any thread

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """As Store says, row by row on a connection of its own."""
        with self._own() as connection:
            self._check_kept(connection, after_version)
            with connection.cursor() as cursor:
                yield from self._decoded(cursor.stream(_EVENTS, (after_version,)), after_version)

    def asked(self, after_version: int = 0) -> Iterator[Asked]:
        """As Store says, row by row on a connection of its own."""
        with self._own() as connection, connection.cursor() as cursor:
            for version, type_name, body, actor in cursor.stream(_ASKED, (after_version,)):
                yield Asked(version, self._event(version, type_name, body), actor)

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """As Store says, one at a time on a connection of its own."""
        query = (
            "SELECT version, body FROM snapshot WHERE %s::bigint IS NULL OR version <= %s"
            " ORDER BY version DESC"
        )
        with self._own() as connection, connection.cursor() as cursor:
            for version, body in cursor.stream(query, (to_version, to_version)):
                yield int(version), bytes(body)

    def first_version(self) -> int:
        with self._asked() as connection:
            return _number(connection, _FIRST)

    def last_version(self) -> int:
        with self._asked() as connection:
            return _number(connection, f"SELECT {_LAST}")

    def version_at(self, time_ns: int) -> int:
        """As Store says. Cost: walks the events before."""
        query = "SELECT MIN(version) FROM log WHERE time_ns >= %s"
        with self._asked() as connection:
            return _number(connection, f"SELECT COALESCE(({query}), {_LAST} + 1)", (time_ns,))

    def size_bytes(self) -> int:
        tables = "pg_total_relation_size('log') + pg_total_relation_size('snapshot')"
        with self._asked() as connection:
            return _number(connection, f"SELECT {tables}")

    def leader(self) -> Leader:
        with self._asked() as connection:
            row = connection.execute("SELECT term, address FROM leader").fetchone()
            assert row is not None
            return Leader(*row)

    # Following and leading, from one thread

    def poll(self, after_version: int, wait_s: float) -> list[tuple[int, Event]]:
        """As SharedStore says."""
        with self._listening() as session:
            for _ in session.notifies(timeout=wait_s, stop_after=1):
                pass
            self._check_kept(session, after_version)
            found = session.execute(f"{_EVENTS} LIMIT {PAGE}", (after_version,))
            return list(self._decoded(found, after_version))

    def try_lead(self, address: str, lease_s: float) -> int | None:
        """As SharedStore says. The lock belongs to the log's table, not to the database,
        so that each schema can have its own."""
        with self._listening() as session:
            if session.execute(LEAD.encode()).fetchone() != (True,):
                return None
            session.execute(f"UNLISTEN {_CHANNEL}")
            session.execute(f"SET idle_session_timeout = {round(lease_s * 1000)}".encode())
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

    @contextmanager
    def _asked(self) -> Iterator[Connection]:
        """The connection for short questions."""
        with self._ask_lock:
            if self._asking is None or self._asking.closed:
                self._asking = self._links.connect()
            with self._links.speaking():
                yield self._asking

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

    def _decoded(
        self, rows: Iterator[tuple[Any, ...]] | psycopg.Cursor[tuple[Any, ...]], after_version: int
    ) -> Iterator[tuple[int, Event]]:
        for expected, (version, type_name, body) in enumerate(rows, after_version + 1):
            if version != expected:
                raise self._missing(expected)
            yield version, self._event(version, type_name, body)

    def _event(self, version: int, type_name: str, body: str) -> Event:
        try:
            return decode(type_name, body)
        except UndecodableEvent as error:
            raise StoreError(f"{self.name} is corrupt: version {version}: {error}") from None

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


def open_postgres(url: str) -> PostgresStore:
    """Open the log in the database at `url`, or make it. Raises: StoreError."""
    links = Connections(url)
    connection = links.connect()
    with links.speaking():
        try:
            prepare(links.name, connection)
            restored = restores(connection)
        finally:
            connection.close()
    return PostgresStore(links, restored)


def look_at_postgres(url: str) -> PostgresStore:
    """The log in the database at `url`, to be read beside its servers.

    Raises: StoreError, also when there is none.
    """
    links = Connections(url)
    connection = links.connect()
    with links.speaking():
        try:
            if not schema_of(links.name, connection):
                raise StoreError(f"{links.name} is empty: it has no muster store")
            restored = restores(connection)
        finally:
            connection.close()
    return PostgresStore(links, restored)


def _number(connection: Connection, query: str, values: Sequence[Any] = ()) -> int:
    row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return int(row[0])
