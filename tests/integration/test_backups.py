"""Backups of a PostgreSQL store: of one moment, and good for either kind of store."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg
import pytest

from scheduler.core import replay
from scheduler.core.model.events import Event, FabricLoaded, HostSignalled
from scheduler.eventlog import snapshots
from scheduler.eventlog.store import (
    Deposed,
    StoreError,
    backup,
    look_at,
    open_store,
    restore,
)
from scheduler.eventlog.store.postgres import PostgresStore, open_postgres
from tests.build import fabric_spec
from tests.integration.test_store_commands import store
from tests.postgres import Cluster
from tests.serving import create, serving, url
from tests.waiting import wait_until

LEASE_S = 60.0  # the machine may be slow


def content(of: str) -> tuple[int, list[Any], list[Any], list[Any]]:
    """Everything that a store must not lose."""
    with closing(look_at(of)) as opened:
        first = opened.first_version()
        rows = list(opened.read(first - 1))
        return first, rows, list(opened.requests(first - 1)), list(opened.snapshots())


@pytest.fixture
def leading(database: str) -> Iterator[PostgresStore]:
    """A store in which something was dropped, led in term 1."""
    opened = open_postgres(database)
    opened.try_lead("a:1", LEASE_S)
    events: list[Event] = [FabricLoaded(0, fabric_spec())]
    events += [HostSignalled(n, f"h{n}", "link-flap") for n in range(1, 10)]
    opened.append(0, events, 1, ["ada", *[""] * 9])
    opened.save_snapshot(6, snapshots.encode(replay(events[:6]), 5))
    opened.compact(6)
    yield opened
    opened.close()


def test_a_backup_has_all_and_is_good_for_either_kind_of_store(
    database: str, postgres: Cluster, leading: PostgresStore, tmp_path: Path
) -> None:
    leading.append(10, [HostSignalled(10, "z0-r0-h0", "link-flap")], 1, ["ada"])
    copy, other = tmp_path / "copy.db", postgres.new_database()
    said = store("backup", copy, "--store", database).output
    assert said == f"{copy} holds the store up to version 11\n"
    store("verify", "--store", f"sqlite:///{copy}")
    store("restore", copy, "--store", url(tmp_path))
    store("restore", copy, "--store", other)
    expected = content(database)
    assert expected[0] == 7
    assert [content(at) for at in (f"sqlite:///{copy}", url(tmp_path), other)] == [expected] * 3
    postgres.drop_database(other)


def test_a_copy_is_of_one_moment_while_the_log_grows(
    database: str, leading: PostgresStore, tmp_path: Path
) -> None:
    """Snapshots come and events go meanwhile: a copy that mixed moments would have a gap."""
    done = Flag()

    def write() -> None:
        last = 10
        while not done.is_set():
            some: list[Event] = [HostSignalled(last + n, "h", "link-flap") for n in range(5)]
            last = leading.append(last, some, 1)
            leading.save_snapshot(last, b"a state")
            leading.compact(last)

    writing = Thread(target=write)
    writing.start()
    try:
        for number in range(6):
            copy = tmp_path / f"copy-{number}.db"
            last = backup(database, copy)
            first, rows, _, kept = content(f"sqlite:///{copy}")
            assert [version for version, _ in rows] == list(range(first, last + 1))
            versions = [version for version, _ in kept]
            assert (min(versions), max(versions) <= last) == (first - 1, True)
    finally:
        done.set()
        writing.join()


def test_a_store_in_use_or_full_is_not_replaced(
    database: str, leading: PostgresStore, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    backup(database, copy)
    said = store("restore", copy, "--store", database, "--force", code=2).output
    assert "is in use: a server leads there; stop all of them first" in said
    leading.append(10, [HostSignalled(10, "later", "link-flap")], 1)
    leading.resign()
    with closing(open_postgres(database)) as follower:  # nobody leads, but a server follows
        assert len(follower.poll(10, 0.0)) == 1
        said = store("restore", copy, "--store", database, "--force", code=2).output
        assert "is in use: servers follow there; stop all of them first" in said
    assert "--force replaces it" in store("restore", copy, "--store", database, code=2).output
    before = content(database)
    store("restore", copy, "--store", database, "--force")
    assert content(database) == content(f"sqlite:///{copy}") != before
    with psycopg.connect(database) as connection:
        kept = connection.execute("SELECT MAX(version) FROM log_replaced").fetchone()
    assert kept == (11,)
    store("restore", copy, "--store", database, "--force")  # what was kept gives way


def test_who_knows_the_log_before_a_restore_does_not_go_on(
    database: str, leading: PostgresStore, tmp_path: Path
) -> None:
    """A server that was cut off meanwhile: the same versions may say something else by now. Nor
    does a leader that was paused, and has lost its session."""
    copy = tmp_path / "copy.db"
    backup(database, copy)
    leading.resign()
    restore(copy, database, is_forced=True)
    with pytest.raises(StoreError, match=r"a backup was restored into .* start it again"):
        leading.poll(10, 0.0)
    leading.try_lead("a:1", LEASE_S)
    with pytest.raises(Deposed):
        leading.append(10, [HostSignalled(10, "h", "link-flap")], 1)
    with closing(open_postgres(database)) as again:
        assert again.poll(10, 0.0) == []


async def test_a_server_that_was_cut_off_ends_after_a_restore(
    database: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with suppress(StoreError):  # as the server ends
        async with serving(tmp_path, store=database) as served:
            await served.stub.CreateJob(create("a", 3))
            await asyncio.to_thread(backup, database, copy)
            await asyncio.to_thread(_restored_over, database, copy)
            with pytest.raises(StoreError, match="a backup was restored"):
                async with asyncio.timeout(60):
                    await served.task


def _restored_over(database: str, copy: Path) -> None:
    """End the sessions of the server until a restore comes between."""
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    ends += " WHERE application_name = 'muster'"

    def is_restored() -> bool:
        with psycopg.connect(database) as connection:
            connection.execute(ends.encode())
        with suppress(StoreError):
            restore(copy, database, is_forced=True)
            return True
        return False

    wait_until(is_restored)


def test_what_is_no_backup_is_refused_and_leaves_what_was_there(
    database: str, leading: PostgresStore, tmp_path: Path
) -> None:
    leading.resign()
    before = content(database)
    junk, missing = tmp_path / "junk.db", tmp_path / "missing.db"
    junk.write_bytes(b"no database")
    for source, said in ((junk, "is not a muster store"), (missing, "there is no store")):
        found = store("restore", source, "--store", database, "--force", code=2).output
        assert said in found
    assert content(database) == before
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    said = store("backup", missing, "--store", database, code=2).output
    assert "it has no muster store" in said
    assert not missing.exists()


def test_a_store_says_what_it_holds(database: str, leading: PostgresStore) -> None:
    found = json.loads(store("info", "--store", database, "--format", "json").output)
    assert (found["first_version"], found["last_version"], found["snapshots"]) == (7, 10, [6])
    assert found["bytes"] > 0
    assert store("compact", "--keep-days", "0", "--store", database).output.startswith("dropped")
    open_store(database).close()
