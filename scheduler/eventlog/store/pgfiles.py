"""Backups of a PostgreSQL store, in the same files as those of a SQLite store.

So a backup of one kind of store can be put back as the other kind. Nothing but the
connection is needed: no pg_dump, and no right to read the server's files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

from psycopg import IsolationLevel

from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import StoreError
from scheduler.eventlog.store.files import check_target, written
from scheduler.eventlog.store.pglink import Connection, Connections
from scheduler.eventlog.store.pgschema import ALONE, LEAD, PUT_META, prepare, require_tables
from scheduler.eventlog.store.postgres import open_postgres
from scheduler.eventlog.store.schema import (
    TABLES,
    columns,
    create,
    insert,
    rows_of,
    truncations,
)
from scheduler.eventlog.store.sql_store import LAST
from scheduler.eventlog.store.sqlite import PREFIX, connect, look_at

_META = f"SELECT key, value FROM meta WHERE key IN ('first_version', 'store', '{ended_rows.BASE}')"
_COPIED = ("log", "snapshot", "ended_job")


def backup(url: str, target: Path, *, is_forced: bool = False) -> int:
    """Copy the store as it is at one moment, while servers write to it.

    The answer is the copy's last version. Raises: StoreError.
    """
    check_target(target, is_forced)
    links = Connections(url)
    connection = links.connect()
    # Of one snapshot of the database: the log, its snapshots and where it begins agree.
    connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
    with closing(connection), links.speaking(), connection.transaction():
        require_tables(links.name, connection)
        with written(target) as file:
            return _fill(file, connection)


def _fill(file: sqlite3.Connection, connection: Connection) -> int:
    """Copy row by row into an empty file; the last version."""
    create(file)
    with file, connection.cursor() as cursor:
        file.execute("BEGIN")
        file.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", cursor.execute(_META))
        for table in _COPIED:
            file.executemany(insert(table), cursor.stream(rows_of(table).encode()))
    return _last(file.execute)


def restore(source: Path, url: str, *, is_forced: bool = False) -> int:
    """Make `source`, a backup of any store, the store at `url`, which no server may have open.

    All of it or nothing. What was there is kept in tables NAME_replaced, in place of those of the
    restore before. The answer is the last version. Raises: StoreError.
    """
    look_at(f"{PREFIX}{source}")  # refuses what is no store of this version
    links = Connections(url)
    with closing(connect(source)) as file, _alone(links, init=True) as connection:
        if _last(connection.execute):
            if not is_forced:
                raise StoreError(f"{links.name} holds a store already; --force replaces it")
            for table in TABLES:
                connection.execute(f"DROP TABLE IF EXISTS {table}_replaced".encode())
            _keep(connection, "replaced")
        return _replace(connection, file)


def truncate(url: str, keep_from: int, keep_to: int, mark: Path | None = None) -> None:
    """Drop every version of the log but those to keep, and mark where the log ends now. No server
    may have the store open. What was there is kept in tables NAME_damaged, and what was kept so
    before stays. Raises: StoreError."""
    links = Connections(url)
    with _alone(links, init=False) as connection:
        _keep(connection, _unused(connection, "damaged"))
        for statement, value in truncations(keep_from, keep_to):
            connection.execute(statement.encode(), (value,))
        _depose_servers(connection)
    if mark is not None:
        mark.unlink(missing_ok=True)
        open_postgres(url, init=False, mark=mark).close()


@contextmanager
def _alone(links: Connections, *, init: bool) -> Iterator[Connection]:
    """A transaction while no server has the store open. Raises: StoreError."""
    with closing(links.connect()) as connection, links.speaking():
        prepare(links.name, connection, init=init)
        for lock, who in ((LEAD, "a server leads"), (ALONE, "servers follow")):
            if connection.execute(lock.encode()).fetchone() != (True,):
                raise StoreError(f"{links.name} is in use: {who} there; stop all of them first")
        with connection.transaction():
            yield connection
        # Closing frees them as well, but somewhat later: a server that starts now would be refused.
        connection.execute("SELECT pg_advisory_unlock_all()")


def _keep(connection: Connection, ending: str) -> None:
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table}_{ending} AS TABLE {table}".encode())


def _unused(connection: Connection, ending: str) -> str:
    """`ending`, or with a number behind it that no kept table has."""

    def is_used(text: str) -> bool:
        names = [f"{table}_{text}" for table in TABLES]
        query = "SELECT count(to_regclass(quote_ident(name))) FROM unnest(%s::text[]) AS name"
        row = connection.execute(query.encode(), (names,)).fetchone()
        return row != (0,)

    numbered = (f"{ending}_{number}" for number in count(2))
    return next(each for each in chain((ending,), numbered) if not is_used(each))


def _replace(connection: Connection, file: sqlite3.Connection) -> int:
    for table in _COPIED:
        connection.execute(f"DELETE FROM {table}".encode())
        rows, names = file.execute(rows_of(table)), columns(table)
        if table == "log":  # written by no leader
            _load(connection, f"log ({names}, term)", ((*row, 0) for row in rows))
        else:
            _load(connection, f"{table} ({names})", rows)
    connection.execute("DELETE FROM meta WHERE key = %s", (ended_rows.BASE,))
    for row in file.execute(_META):
        connection.execute(PUT_META, row)
    _depose_servers(connection)
    return _last(connection.execute)


def _depose_servers(connection: Connection) -> None:
    """Whoever led before and still runs is refused from now on, and so is who followed."""
    connection.execute(
        "INSERT INTO meta VALUES ('restored', '1') ON CONFLICT (key)"
        " DO UPDATE SET value = (meta.value::bigint + 1)::text"
    )
    connection.execute("UPDATE leader SET term = term + 1, address = ''")


def _load(connection: Connection, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {columns} FROM STDIN".encode()) as lines,
    ):
        for row in rows:
            lines.write_row(row)


def _last(execute: Any) -> int:
    return int(execute(LAST).fetchone()[0])
