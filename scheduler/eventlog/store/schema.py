"""The tables of a store, in SQLite or in PostgreSQL, and which databases are none."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from scheduler.eventlog.store.base import StoreError

FORMAT = "muster event log"
SCHEMA = 3

_TEXT: Final = ("TEXT", 'text COLLATE "C"')  # in the order of code points, as Python has it
_NUMBER: Final = ("INTEGER", "bigint")
_BLOB: Final = ("BLOB", "bytea")
TABLES: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "meta": {"key": _TEXT, "value": _TEXT},
    "log": {
        "version": _NUMBER,  # 1, 2, 3, ... without a gap
        "time_ns": _NUMBER,
        "type": _TEXT,
        "body": _TEXT,  # JSON
        "actor": _TEXT,  # who asked for it; empty: nobody, the scheduler did it
        "digest": _BLOB,  # of this row and of the one before (chain.py)
    },
    "snapshot": {"version": _NUMBER, "body": _BLOB, "digest": _BLOB},  # those of its last event
    "ended_job": {
        "number": _NUMBER,
        "version": _NUMBER,
        "time_ns": _NUMBER,
        "uid": _TEXT,
        "tenant": _TEXT,
        "name": _TEXT,
        "state": _TEXT,
        "sequence": _NUMBER,
        "create_ns": _NUMBER,
        "update_ns": _NUMBER,
        "priority": _NUMBER,
        "attempt": _NUMBER,
        "body": _BLOB,
        "digest": _BLOB,  # as in the log (ended_rows.py)
    },
}
"""The columns of each table with their types in SQLite and in PostgreSQL; the first is the key."""
_INDICES: Final = ("uid", "sequence", "tenant, name, number")  # of ended_job


def columns(table: str) -> str:
    return ", ".join(TABLES[table])


def insert(table: str) -> str:
    """Return the statement that adds a row to a table of SQLite."""
    return f"INSERT INTO {table} ({columns(table)}) VALUES ({', '.join('?' * len(TABLES[table]))})"


def rows_of(table: str) -> str:
    """Return the query for all rows of a table, in the order of their keys."""
    return f"SELECT {columns(table)} FROM {table} ORDER BY 1"


def unnested(table: str) -> str:
    """Return the arrays that `arrays_of` has for PostgreSQL, a column each."""
    return ", ".join(
        f"%({table}_{name})s::{kind.split()[0]}[]" for name, (_, kind) in TABLES[table].items()
    )


def arrays_of(table: str, rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of rows, column by column."""
    kept = list(rows)
    return {f"{table}_{name}": [row[at] for row in kept] for at, name in enumerate(TABLES[table])}


def create_tables(run: Callable[..., object], *, is_postgres: bool) -> None:
    """Make the tables, of a store with an id that tells it from all others. `run`: runs a statement
    with the values of its `?`."""
    for table, kinds in TABLES.items():
        kept = ", ".join(f"{name} {kind[is_postgres]} NOT NULL" for name, kind in kinds.items())
        strict = "" if is_postgres else " STRICT"
        run(f"CREATE TABLE {table} ({kept}, PRIMARY KEY ({next(iter(kinds))})){strict}")
    for at, index in enumerate(_INDICES, 1):
        run(f"CREATE INDEX ended_job_{at} ON ended_job ({index})")
    meta = {
        "format": FORMAT,
        "schema": str(SCHEMA),
        "first_version": "1",
        "store": uuid.uuid4().hex,
    }
    for row in meta.items():
        run(insert("meta"), row)


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file: all of them or none."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        create_tables(connection.execute, is_postgres=False)


def truncations(keep_from: int, keep_to: int) -> tuple[tuple[str, int | str], ...]:
    """Return statements, each with the value of its %s, that drop all but these versions, and the
    snapshots that go with them."""
    return (
        ("DELETE FROM log WHERE version < %s", keep_from),
        ("DELETE FROM log WHERE version > %s", keep_to),
        ("DELETE FROM snapshot WHERE version < %s", keep_from - 1),
        ("DELETE FROM snapshot WHERE version > %s", keep_to),
        ("DELETE FROM ended_job WHERE version > %s", keep_to),
        ("UPDATE meta SET value = %s WHERE key = 'first_version'", str(keep_from)),
    )


def table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def schema_of(name: str, connection: sqlite3.Connection) -> int:
    """Return the schema of the file, 0 for an empty file.

    Raises: StoreError when it is no muster store, or one of another schema.
    """
    tables = table_names(connection)
    meta = dict(connection.execute("SELECT * FROM meta")) if {"meta", "log"} <= tables else {}
    return schema_in(name, tables, meta)


def schema_in(name: str, tables: Collection[str], meta: Mapping[str, str]) -> int:
    """Return the schema of a database with these tables, 0 when there are none.

    Raises: StoreError when it is no muster store, or not of this program's schema.
    """
    if not tables:
        return 0
    if meta.get("format") != FORMAT or not meta.get("schema", "").isdecimal():
        raise StoreError(f"{name} is a database, but no muster store")
    schema = int(meta["schema"])
    if schema > SCHEMA:
        raise StoreError(
            f"{name} was written by a newer muster: schema {schema}, this one reads {SCHEMA}"
        )
    if schema < SCHEMA:
        raise StoreError(
            f"{name} was written by a muster before the first release: schema {schema}, this one"
            f" reads {SCHEMA}; begin a new store"
        )
    return schema
