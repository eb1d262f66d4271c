"""The tables of a SQLite store, made by the steps that led to them.

A new store takes all steps; an older one those it lacks, in one transaction and after
a copy of it was put aside. So a migrated store and a new one cannot differ.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping

from scheduler.eventlog.store.base import StoreError

FORMAT = "muster event log"


def _log(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
    connection.execute(
        """CREATE TABLE log (
            version INTEGER PRIMARY KEY,  -- 1, 2, 3, ... without a gap
            time_ns INTEGER NOT NULL,
            type    TEXT NOT NULL,
            body    TEXT NOT NULL         -- JSON
        ) STRICT"""
    )
    connection.execute("INSERT INTO meta VALUES ('format', ?)", (FORMAT,))


def _snapshots(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE snapshot (
            version INTEGER PRIMARY KEY,  -- of the last event in it
            body    BLOB NOT NULL
        ) STRICT"""
    )
    connection.execute("INSERT INTO meta VALUES ('first_version', '1')")


def _actors(connection: sqlite3.Connection) -> None:
    """Who asked for each event; empty: the scheduler did it by itself."""
    connection.execute("ALTER TABLE log ADD COLUMN actor TEXT NOT NULL DEFAULT ''")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_log, _snapshots, _actors)
SCHEMA = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, schema: int) -> None:
    """Take the steps after `schema`, 0 for a new store: all of them or none."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        for step in MIGRATIONS[schema:]:
            step(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(SCHEMA),))


def table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def schema_of(name: str, connection: sqlite3.Connection) -> int:
    """The schema of what is there, 0 for an empty file.

    Raises: StoreError when it is no muster store, or a newer one.
    """
    tables = table_names(connection)
    meta = dict(connection.execute("SELECT * FROM meta")) if {"meta", "log"} <= tables else {}
    return schema_in(name, tables, meta, SCHEMA)


def schema_in(name: str, tables: Collection[str], meta: Mapping[str, str], newest: int) -> int:
    """The schema of a database with these tables, 0 when there are none.

    Raises: StoreError when it is no muster store, or newer than `newest`.
    """
    if not tables:
        return 0
    if meta.get("format") != FORMAT or not meta.get("schema", "").isdigit():
        raise StoreError(f"{name} is a database, but no muster store")
    schema = int(meta["schema"])
    if schema > newest:
        raise StoreError(
            f"{name} was written by a newer muster: schema {schema}, this one reads {newest}"
        )
    return schema
