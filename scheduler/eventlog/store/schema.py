"""The tables of a SQLite store, and which databases are none."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection, Mapping

from scheduler.eventlog.store import ended_rows
from scheduler.eventlog.store.base import StoreError

FORMAT = "muster event log"
SCHEMA = 3


def new_store_id() -> str:
    """Make an id that tells a store from all others."""
    return uuid.uuid4().hex


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file: all of them or none."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
        connection.execute(
            """CREATE TABLE log (
                version INTEGER PRIMARY KEY,  -- 1, 2, 3, ... without a gap
                time_ns INTEGER NOT NULL,
                type    TEXT NOT NULL,
                body    TEXT NOT NULL,        -- JSON
                actor   TEXT NOT NULL,        -- who asked for it; empty: the scheduler itself
                digest  BLOB NOT NULL         -- of this row and of the one before (chain.py)
            ) STRICT"""
        )
        connection.execute(
            """CREATE TABLE snapshot (
                version INTEGER PRIMARY KEY,  -- of the last event in it
                body    BLOB NOT NULL,
                digest  BLOB NOT NULL         -- of that event
            ) STRICT"""
        )
        for statement in ended_rows.tables(is_postgres=False):
            connection.execute(statement)
        rows = (
            ("format", FORMAT),
            ("schema", str(SCHEMA)),
            ("first_version", "1"),
            ("store", new_store_id()),
        )
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)


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
