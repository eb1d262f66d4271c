"""The tables of a PostgreSQL store: those of SQLite, and who leads.

Servers may start at the same time on an empty database, so all of it happens under a
lock; DDL is transactional here, so all tables are made or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scheduler.eventlog.store.base import StoreError
from scheduler.eventlog.store.pglink import Connection
from scheduler.eventlog.store.schema import create_tables, schema_in

LOCK = 0x6D757374  # "must": first half of every advisory lock here
_CREATION = 0  # second half, while tables are made; the locks of a log have its own number

# Held by the one session that leads, and shared by every session that stands for a server.
LEAD = f"SELECT pg_try_advisory_lock({LOCK}, 'log'::regclass::oid::bigint::int)"
_SERVERS = f"({LOCK + 1}, 'log'::regclass::oid::bigint::int)"
ATTEND = f"SELECT pg_try_advisory_lock_shared{_SERVERS}"
ALONE = f"SELECT pg_try_advisory_lock{_SERVERS}"

_OF_LEADERS = """
    ALTER TABLE log ADD COLUMN term bigint NOT NULL;  -- of the leader that wrote it
    CREATE TABLE leader (
        is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        term    bigint NOT NULL,     -- how often the lead was taken
        address text NOT NULL,
        since   timestamptz NOT NULL DEFAULT now()
    );
    INSERT INTO leader (term, address) VALUES (0, '');
"""
PUT_META = "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def prepare(name: str, connection: Connection, *, init: bool) -> None:
    """Make the tables where there are none, if `init` allows it.

    Raises: StoreError when the database is not ours, or empty and `init` does not allow it.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCK, _CREATION))
        if schema_of(name, connection):
            return
        if not init:
            raise StoreError(f"{name} has no muster store: muster store init makes one, or --init")

        def run(statement: str, values: Sequence[str] = ()) -> object:
            return connection.execute(statement.replace("?", "%s").encode(), values)

        create_tables(run, is_postgres=True)
        run(_OF_LEADERS)


def store_id(connection: Connection) -> str:
    """Return the id that tells this log from all others, "" without one."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
    return str(row[0]) if row else ""


def restores(execute: Callable[..., Any]) -> int:
    """Return how often a backup was restored here; a server that has seen the log before a restore
    must not go on from that."""
    row = execute("SELECT value::bigint FROM meta WHERE key = 'restored'", ()).fetchone()
    return int(row[0]) if row else 0


def require_tables(name: str, connection: Connection) -> None:
    """Refuse an empty database. Raises: StoreError, as `schema_of`."""
    if not schema_of(name, connection):
        raise StoreError(f"{name} is empty: it has no muster store")


def schema_of(name: str, connection: Connection) -> int:
    """Return the schema of the tables that exist, 0 for an empty database.

    Raises: StoreError when it is no muster store, or a newer one.
    """
    where = connection.execute("SELECT current_schema()").fetchone()
    if where is None or where[0] is None:
        raise StoreError(f"{name} has no such schema as its search_path names")
    row = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind IN ('r', 'p', 'v', 'm')"
    )
    tables = {str(relname) for (relname,) in row}
    meta = {}
    if {"meta", "log", "leader"} <= tables:
        meta = {str(k): str(v) for k, v in connection.execute("SELECT key, value FROM meta")}
    return schema_in(name, tables, meta)
