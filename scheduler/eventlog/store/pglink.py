"""Connections to PostgreSQL that notice when nobody answers.

A network that swallows packets leaves a connection waiting for ever. The kernel gives
up after a few seconds here; where it cannot know (a proxy that accepts and forwards
nothing) `cut` ends every wait at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict

from scheduler.eventlog.store.base import NotWritten, StoreError, Unreachable

Connection = psycopg.Connection[tuple[Any, ...]]

# What the URL leaves open. Seconds, but for the one that counts milliseconds.
_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "application_name": "muster",
    "target_session_attrs": "read-write",
}
_OLDEST = 140_000  # idle_session_timeout is younger than 13


class Connections:
    """Opens connections to one database and keeps track of them."""

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise StoreError(f"the store's URL cannot be read: {_one_line(error)}") from None
        self._settings: dict[str, Any] = {**_DEFAULTS, **given}
        self.name = _name(given)
        self._open: WeakSet[Connection] = WeakSet()

    def connect(self) -> Connection:
        """Open a connection that commits each statement durably. Raises: StoreError."""
        try:
            connection = psycopg.connect(**self._settings, autocommit=True)
        except psycopg.Error as error:
            raise Unreachable(f"cannot connect to {self.name}: {_one_line(error)}") from None
        self._open.add(connection)
        try:
            with self.speaking():
                _set_up(self.name, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Return a context that turns the errors of psycopg into StoreError."""
        try:
            yield
        except (psycopg.errors.DiskFull, psycopg.errors.ReadOnlySqlTransaction) as error:
            raise NotWritten(f"cannot write to {self.name}: {_one_line(error)}") from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise Unreachable(f"{self.name} fails: {_one_line(error)}") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.name} refuses: {_one_line(error)}") from error

    def cut(self) -> None:
        """Shut every socket, so that whoever waits on one gets an error. From any thread."""
        for connection in list(self._open):
            _shut(connection)


def _set_up(name: str, connection: Connection) -> None:
    """Raises: StoreError when what is written there would not last."""
    if connection.info.server_version < _OLDEST:
        raise StoreError(f"{name} is older than PostgreSQL 14")
    row = connection.execute(
        "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
    ).fetchone()
    assert row is not None
    fsync, commit = row
    if fsync != "on":
        raise StoreError(f"{name} runs with fsync = off: what it acknowledges may be lost")
    if commit != "remote_apply":  # the only setting that promises more
        connection.execute("SET synchronous_commit = on")
    # An idle session is closed by those who mean it (a lease), not by a default.
    connection.execute("SET idle_session_timeout = 0")


def _shut(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _name(given: dict[str, Any]) -> str:
    """The database without its password."""
    host, port = given.get("host", "localhost"), given.get("port", "5432")
    return f"postgresql://{host}:{port}/{given.get('dbname') or given.get('user') or ''}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
