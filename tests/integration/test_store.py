"""The log: all or nothing, in order, and plain words for a store that will not do."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from scheduler.core.model.events import Event, HostSignalled
from scheduler.eventlog import store as stores
from scheduler.eventlog.store import Compacted, StoreError, VersionMismatch, folding, sqlite
from scheduler.eventlog.store.postgres import open_postgres
from scheduler.eventlog.store.schema import SCHEMA
from scheduler.eventlog.store.sqlite import SqliteStore as Store
from scheduler.eventlog.store.sqlite import connect
from scheduler.eventlog.store.sqlite import open_sqlite as open_store
from tests.serving import change


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


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(f"sqlite:///{path}")
    return str(caught.value)


# Stores of both kinds


Damage = Callable[[str], None]
Stored = tuple[stores.Store, Damage]


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Iterator[Stored]:
    """An open store of each kind, which leads in term 1, and how its tables are changed behind its
    back."""
    if request.param == "sqlite":
        store: Store = request.getfixturevalue("store")
        yield store, lambda statement: change(store.path, statement)
        return
    database: str = request.getfixturevalue("database")

    def damage(statement: str) -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(statement.encode())

    with closing(open_postgres(database)) as opened:
        assert opened.try_lead("a:1", 60) == 1
        yield opened, damage


def test_events_come_back_with_their_versions_and_who_asked(stored: Stored) -> None:
    store, _ = stored
    assert store.append(0, [note(10), note(20)], 1, ["ada", ""]) == 2
    assert store.append(2, [note(20), note(30)], 1) == 4
    events = [note(10), note(20), note(20), note(30)]
    assert list(store.read()) == list(enumerate(events, 1))
    assert list(store.read(2)) == [(3, note(20)), (4, note(30))]
    assert [(each.version, each.actor) for each in store.requests()] == [(1, "ada")]
    assert store.last_version() == 4
    assert [store.version_at(time_ns) for time_ns in (0, 11, 20, 30, 31)] == [1, 2, 2, 4, 5]


def test_an_append_on_a_stale_version_writes_nothing(stored: Stored) -> None:
    store, _ = stored
    store.append(0, [note(1)], 1)
    with pytest.raises(VersionMismatch, match="ends at version 1, expected 0"):
        store.append(0, [note(2), note(3)], 1)
    assert [version for version, _ in store.read()] == [1]
    assert store.append(1, [note(2)], 1) == 2


def test_a_snapshot_stands_for_what_is_dropped(stored: Stored) -> None:
    store, _ = stored
    store.append(0, [note(n) for n in range(1, 11)], 1)
    for version in (4, 10, 8):
        store.save_snapshot(version, b"%d" % version)
    assert list(store.snapshots()) == [(10, b"10"), (8, b"8"), (4, b"4")]
    assert list(store.snapshots(9)) == [(8, b"8"), (4, b"4")]
    with pytest.raises(StoreError, match="no snapshot of version 5"):
        store.compact(5)
    assert len(list(store.read())) == 10
    assert store.compact(4) == 4
    assert (store.first_version(), store.last_version()) == (5, 10)
    assert [version for version, _ in store.read(4)] == [5, 6, 7, 8, 9, 10]
    with pytest.raises(Compacted, match="kept from version 5 on"):
        next(store.read(3))
    assert store.compact(10) == 6
    assert [version for version, _ in store.snapshots()] == [10]
    assert store.append(10, [note(11)], 1) == 11  # all is dropped, and it goes on counting
    store.check()
    assert list(store.read(10)) == [(11, note(11))]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM log WHERE version = 2", "is corrupt: version 2 is missing"),
        ("UPDATE log SET body = '{}' WHERE version = 2", "version 2: HostSignalled: Object"),
        ("UPDATE log SET type = 'Party' WHERE version = 2", "version 2: unknown event type"),
        ("UPDATE log SET actor = 'eve' WHERE version = 2", "version 2 is not what was written"),
    ],
)
def test_a_damaged_record_is_named_by_whoever_reads(
    stored: Stored, damage: str, message: str
) -> None:
    store, change_tables = stored
    store.append(0, [note(1), note(2), note(3)], 1)
    change_tables(damage)
    for read in (store.check, lambda: list(store.read()), lambda: list(store.requests(1))):
        with pytest.raises(StoreError, match=message):
            read()


# A store in a file


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_file_that_is_taken_away_is_not_written_to(
    path: Path, store: Store, is_moved: bool
) -> None:
    store.append(0, [note(1)])
    if is_moved:
        path.rename(path.with_name("elsewhere"))
    else:
        path.unlink()
        path.touch()
    with pytest.raises(StoreError, match="was moved, replaced or removed while it was in use"):
        store.append(1, [note(2)])


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def test_events_move_from_the_wal_into_the_file_while_appends_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds: list[str] = []

    def opened() -> sqlite3.Connection:
        folds.append(threading.current_thread().name)
        return connect(path)

    monkeypatch.setattr(folding, "_PAGES", 100)
    with closing(open_store(f"sqlite:///{path}")) as store:
        store._folding = folding.Folding(opened)
        for n in range(400):
            store.append(n, [note(n + 1)])
        store._folding.close()
        assert path.stat().st_size > 5 * 4096
        assert wal(path).stat().st_size < (folding.MOST_PAGES + 100) * 4_200
        assert [version for version, _ in store.read()] == list(range(1, 401))
    assert folds
    assert all(name.startswith("muster-fold") for name in folds)


def test_the_wal_is_bounded_without_folding(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding.Folding, "count_append", lambda *_: None)
    monkeypatch.setattr(sqlite, "MOST_PAGES", 50)
    with closing(open_store(f"sqlite:///{path}")) as store:
        for n in range(200):
            store.append(n, [note(n + 1)])
        assert wal(path).stat().st_size < 100 * 4_200


def test_a_wal_that_cannot_be_folded_costs_no_append(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(folding, "_PAGES", 1)
    with closing(open_store(f"sqlite:///{path}")) as store:
        store._folding = folding.Folding(fails)
        store.append(0, [note(1)])
        store._folding.close()
        assert list(store.read()) == [(1, note(1))]
    assert "the WAL is not folded into the file: disk I/O error" in caplog.text


def test_very_many_events_are_written_all_or_none(store: Store, path: Path) -> None:
    events = [note(n) for n in range(1, 2_501)]
    change(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON log WHEN new.version = 2400"
        " BEGIN SELECT RAISE(ABORT, 'full'); END",
    )
    with pytest.raises(StoreError, match="full"):
        store.append(0, events)
    assert store.last_version() == 0
    change(path, "DROP TRIGGER full")
    assert store.append(0, events) == 2_500
    assert [event for _, event in store.read()] == events


def test_what_is_committed_is_on_disk_and_read_while_the_writer_goes_on(store: Store) -> None:
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    store.append(0, [note(1), note(2)])
    reading = store.read()
    assert next(reading) == (1, note(1))
    store.append(2, [note(3)])
    assert next(reading) == (2, note(2))


def test_the_lock_holds_by_every_path_to_the_file(path: Path, store: Store) -> None:
    assert refusal(path) == f"{path} is in use by another server"
    link = path.with_name("link.db")
    link.symlink_to(path)
    assert "is in use by another server" in refusal(link)
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
    assert "is in use by another server" in refusal(path)


def test_a_store_behind_a_symlink_is_the_store_it_leads_to(path: Path) -> None:
    path.touch()  # an empty file becomes a store
    written(path, 2)
    link = path.with_name("link.db")
    link.symlink_to(path)
    with closing(open_store(f"sqlite:///{link}")) as store:
        store.append(2, [note(3)])
        assert wal(path).exists()
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.last_version() == 3


def test_a_file_with_a_second_name_is_refused(path: Path) -> None:
    written(path, 2)
    second = path.with_name("second.db")
    second.hardlink_to(path)
    for name in (path, second):
        assert "2 hard links" in refusal(name)
        with pytest.raises(StoreError, match="2 hard links"):
            stores.look_at(f"sqlite:///{name}")
    second.unlink()
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.last_version() == 2


def test_a_wal_that_is_taken_away_is_noticed_and_nothing_lost(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    store.append(0, [note(n) for n in range(1, 41)])
    wal(path).unlink()
    with pytest.raises(StoreError, match=r"log\.db-wal was moved, replaced or removed"):
        store.append(40, [note(41)])
    store.close()
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.last_version() == 40


def test_what_is_no_store_is_refused_and_left_alone(path: Path, tmp_path: Path) -> None:
    for url in ("mysql://db/muster", "log.db", "sqlite:///", "sqlite://x"):
        with pytest.raises(StoreError, match="give sqlite:///FILE"):
            stores.open_store(url)
    assert f"there is no folder {tmp_path / 'no'}" in refusal(tmp_path / "no" / "log.db")
    assert "is a folder" in refusal(tmp_path)
    path.write_text("name: roce-24k\n" * 100)
    assert "is not a muster store" in refusal(path)
    assert path.read_text().startswith("name: roce-24k")
    path.unlink()
    change(path, "CREATE TABLE users (name TEXT)")
    assert refusal(path) == f"{path} is a database, but no muster store"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("users",)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_newer_store_and_one_with_a_damaged_page_are_refused(path: Path) -> None:
    written(path, 2_000)
    change(path, "UPDATE meta SET value = '99' WHERE key = 'schema'")
    newer = f"{path} was written by a newer muster: schema 99, this one reads {SCHEMA}"
    assert refusal(path) == newer
    change(path, f"UPDATE meta SET value = '{SCHEMA}' WHERE key = 'schema'")
    content = bytearray(path.read_bytes())
    content[8_192:40_960] = b"\xff" * 32_768
    path.write_bytes(content)
    assert "corrupt" in refusal(path)
