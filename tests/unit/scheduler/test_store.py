"""The log on disk: all or nothing, in order, and plain words for a file that will not do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scheduler.core.events import Event, HostSignalled
from scheduler.store import Store, StoreError, VersionMismatch, open_store


def note(n: int) -> Event:
    return HostSignalled(n, f"h{n}", "link-flap")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{path}")
    yield store
    store.close()


def written(path: Path, count: int) -> None:
    store = open_store(f"sqlite:///{path}")
    store.append(0, [note(n) for n in range(1, count + 1)])
    store.close()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(f"sqlite:///{path}")
    return str(caught.value)


def test_events_come_back_with_their_versions(store: Store) -> None:
    assert store.append(0, [note(1), note(2)]) == 2
    assert store.append(2, [note(3)]) == 3
    assert list(store.read()) == [(n, note(n)) for n in (1, 2, 3)]
    assert list(store.read(2)) == [(3, note(3))]


def test_an_append_on_a_stale_version_writes_nothing(store: Store) -> None:
    store.append(0, [note(1)])
    with pytest.raises(VersionMismatch, match="ends at version 1, expected 0"):
        store.append(0, [note(2), note(3)])
    assert [version for version, _ in store.read()] == [1]
    assert store.append(1, [note(2)]) == 2


def test_a_commit_reaches_the_disk_before_append_returns(store: Store) -> None:
    connection = store._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_reader_sees_what_is_committed_while_the_writer_goes_on(store: Store) -> None:
    store.append(0, [note(1), note(2)])
    reading = store.read()
    assert next(reading) == (1, note(1))
    store.append(2, [note(3)])
    assert next(reading) == (2, note(2))


def test_the_log_outlives_the_process(path: Path) -> None:
    written(path, 3)
    store = open_store(f"sqlite:///{path}")
    assert [version for version, _ in store.read()] == [1, 2, 3]
    store.close()


def test_one_server_at_a_time(path: Path, store: Store) -> None:
    assert refusal(path) == f"{path} is in use by another server"


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    written(path, 1)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("name: roce-24k\n" * 100)
    assert "is no muster store" in refusal(path)
    assert path.read_text().startswith("name: roce-24k")


def test_anothers_database_is_refused_and_left_alone(path: Path) -> None:
    change(path, "CREATE TABLE users (name TEXT)")
    assert refusal(path) == f"{path} is a database, but no muster store"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("users",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_newer_store_is_refused(path: Path) -> None:
    written(path, 1)
    change(path, "UPDATE meta SET value = '2' WHERE key = 'schema'")
    assert refusal(path) == f"{path} was written by a newer muster: schema 2, this one reads 1"


def test_a_damaged_page_is_refused(path: Path) -> None:
    written(path, 2_000)
    content = bytearray(path.read_bytes())
    content[8_192:40_960] = b"\xff" * 32_768
    path.write_bytes(content)
    assert "corrupt" in refusal(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM log WHERE version = 2", "version 2 is missing"),
        ("UPDATE log SET body = '{}' WHERE version = 2", "version 2: HostSignalled.time_ns"),
        ("UPDATE log SET type = 'Party' WHERE version = 2", "version 2: unknown event type"),
    ],
)
def test_a_damaged_record_is_named(path: Path, damage: str, message: str) -> None:
    written(path, 3)
    change(path, damage)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreError, match=message):
        list(store.read())
    store.close()


@pytest.mark.parametrize("url", ["postgresql://db/muster", "log.db", "sqlite:///", "sqlite://x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="give sqlite:///FILE"):
        open_store(url)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'no'}" in refusal(tmp_path / "no" / "log.db")
    assert "is a folder" in refusal(tmp_path)
