"""The log in a real PostgreSQL: as durable as the file, and for one leader at a time."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from scheduler.core.model.events import Event, FabricLoaded, HostSignalled
from scheduler.eventlog.repair import repair, repair_plan
from scheduler.eventlog.store import (
    Compacted,
    Deposed,
    EndedQuery,
    NotWritten,
    StoreError,
    Unreachable,
    backup,
    look_at,
    open_store,
    restore,
)
from scheduler.eventlog.store.postgres import PostgresStore, open_postgres
from tests.build import fabric_spec
from tests.ports import free_port
from tests.postgres import Cluster
from tests.waiting import wait_until

LEASE_S = 60.0


def note(n: int) -> Event:
    return HostSignalled(n, f"h{n}", "link-flap")


Opener = Callable[[], PostgresStore]


@pytest.fixture
def opened(database: str) -> Iterator[Opener]:
    """Opens the store once more, as another server would."""
    stores = []

    def once_more() -> PostgresStore:
        stores.append(open_postgres(database))
        return stores[-1]

    yield once_more
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opener) -> PostgresStore:
    """A store that leads in term 1."""
    store = opened()
    assert store.try_lead("a:1", LEASE_S) == 1
    return store


def change(database: str, statement: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(statement.encode())


def last_versions(database: str, *tables: str) -> list[int]:
    """The last version in each of these tables, which are kept copies of the log, or the log."""
    with psycopg.connect(database) as connection:
        queries = (f"SELECT max(version) FROM {table}".encode() for table in tables)
        return [connection.execute(query).fetchone()[0] for query in queries]  # type: ignore[index]


def refusal(database: str) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(database)
    return str(caught.value)


def test_a_database_that_takes_no_writes_leaves_no_trace(store: PostgresStore) -> None:
    assert store._session is not None
    store._session.execute("SET default_transaction_read_only = on")
    with pytest.raises(NotWritten, match="cannot write to"):
        store.append(0, [note(1)], 1)
    store._session.execute("SET default_transaction_read_only = off")
    assert store.append(0, [note(1)], 1) == 1


def test_commits_are_durable_even_where_the_database_says_otherwise(
    database: str, opened: Opener
) -> None:
    change(database, f"ALTER DATABASE {database.rsplit('/', 1)[1]} SET synchronous_commit = off")
    store = opened()
    with store._listening() as session:
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_one_leads_and_the_others_wait(database: str, store: PostgresStore, opened: Opener) -> None:
    other = opened()
    assert other.try_lead("b:1", LEASE_S) is None
    assert other.leader().address == "a:1"
    store.resign()
    assert other.try_lead("b:1", LEASE_S) == 2
    assert (store.leader().term, store.leader().address) == (2, "b:1")
    change(database, "CREATE SCHEMA east")  # which has a leader of its own
    with closing(open_postgres(f"{database}?options=-csearch_path%3Deast")) as east:
        assert east.try_lead("a:1", LEASE_S) == 1


def test_an_old_leader_writes_nothing_though_it_has_the_lock(
    database: str, store: PostgresStore
) -> None:
    """As when the database forgot the lock, or a proxy mixed up the sessions."""
    store.append(0, [note(1)], 1)
    change(database, "UPDATE leader SET term = term + 1")
    with pytest.raises(Deposed, match="at term 2, this server led in term 1"):
        store.append(1, [note(2)], 1)
    with pytest.raises(Deposed):
        store.keep_lead(1)
    assert store.last_version() == 1


def test_an_append_that_waits_while_the_term_is_raised_is_refused(
    database: str, store: PostgresStore
) -> None:
    with psycopg.connect(database) as successor, ThreadPoolExecutor(1) as pool:
        successor.execute("UPDATE leader SET term = term + 1")
        late = pool.submit(store.append, 0, [note(1)], 1)
        time.sleep(0.1)
        assert not late.done()  # it waits for the row that says who leads
        successor.commit()
        with pytest.raises(Deposed):
            late.result(10)
    assert store.last_version() == 0


def test_a_silent_leader_is_replaced_after_its_lease(opened: Opener) -> None:
    store, other, lease_s = opened(), opened(), 1.0
    assert store.try_lead("a:1", lease_s) == 1
    for _ in range(6):  # as long as it is heard of it stays
        time.sleep(lease_s / 5)
        store.keep_lead(1)
        assert other.try_lead("b:1", lease_s) is None
    began = time.monotonic()
    wait_until(lambda: other.try_lead("b:1", lease_s))
    assert time.monotonic() - began > 0.5 * lease_s
    with pytest.raises(StoreError):
        store.append(0, [note(1)], 1)
    assert other.append(0, [note(2)], 2) == 1


def test_a_follower_hears_of_an_append_at_once(store: PostgresStore, opened: Opener) -> None:
    other = opened()
    assert other.poll(0, 0.0) == []
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(other.poll, 0, 10.0)
        time.sleep(0.1)
        began = time.monotonic()
        store.append(0, [note(1)], 1)
        assert polling.result() == [(1, note(1))]
    assert time.monotonic() - began < 8  # a poll takes 10 s where nothing comes


def test_a_cut_ends_what_hangs(store: PostgresStore, opened: Opener) -> None:
    other = opened()
    other.poll(0, 0.0)
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(other.poll, 0, 60.0)
        time.sleep(0.1)
        other.cut()
        with pytest.raises(Unreachable):
            polling.result(5)
    assert other.poll(0, 0.0) == []  # on a new session


def test_a_killed_backend_ends_the_lead_and_no_read(
    postgres: Cluster, database: str, store: PostgresStore, opened: Opener
) -> None:
    store.append(0, [note(1)], 1)
    postgres.terminate_backends(database)
    assert store.last_version() == 1
    postgres.terminate_backends(database)
    assert store.ended_counts() == (0, 0)
    assert store.ended_jobs(EndedQuery(to_version=1, most=5)) == []
    with pytest.raises(Unreachable):
        store.append(1, [note(2)], 1)
    with pytest.raises(Unreachable, match="the session with"):
        store.append(1, [note(2)], 1)
    other = opened()
    assert other.try_lead("b:1", LEASE_S) == 2
    assert other.append(1, [note(3)], 2) == 2


def test_a_changed_record_is_found(database: str, store: PostgresStore, opened: Opener) -> None:
    store.append(0, [note(1), note(2), note(3)], 1)
    follower = opened()
    assert len(follower.poll(0, 0.0)) == 3
    store.append(3, [note(4)], 1)
    change(database, "UPDATE log SET actor = 'eve' WHERE version = 2")
    assert follower.poll(3, 0.0) == [(4, note(4))]
    change(database, "UPDATE log SET body = replace(body, 'h4', 'h5') WHERE version = 4")
    with pytest.raises(StoreError, match="version 4 is not what was written"):
        follower.poll(3, 0.0)
    change(database, "DELETE FROM log WHERE version > 1")
    with pytest.raises(StoreError, match="ends at version 1, but this server has read it up to"):
        follower.poll(4, 0.0)


def test_a_chain_goes_on_with_the_next_leader(
    database: str, store: PostgresStore, opened: Opener
) -> None:
    store.append(0, [note(1), note(2)], 1)
    store.save_snapshot(2, b"two")
    store.compact(2)
    store.resign()
    other = opened()
    assert other.try_lead("b:1", LEASE_S) == 2
    other.append(2, [note(3)], 2)
    with closing(look_at(database)) as copy:  # beside the server that writes
        copy.check()
    assert other.poll(2, 0.0) == [(3, note(3))]
    with pytest.raises(Compacted):
        other.poll(0, 0.0)


def test_a_mark_outside_knows_how_far_the_log_had_come(database: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with closing(open_postgres(database, mark=mark)) as store:
        store.try_lead("a:1", LEASE_S)
        store.append(0, [FabricLoaded(1, fabric_spec()), note(2), note(3)], 1)
    open_postgres(database, mark=mark).close()
    change(database, "DELETE FROM log WHERE version > 1")
    with pytest.raises(StoreError, match="2 acknowledged changes are missing"):
        open_postgres(database, mark=mark)
    plan = repair_plan(database, mark)
    assert (plan.keep_to, plan.lost_count) == (1, 2)
    repair(database, plan, mark)
    copy = tmp_path / "copy.db"
    backup(database, copy)
    with closing(open_postgres(database, mark=mark)) as store:
        assert store.last_version() == 1
        store.try_lead("a:1", LEASE_S)
        assert store.append(1, [note(4)], 3) == 2
    restore(copy, database, is_forced=True)  # is not taken for a loss
    open_postgres(database, mark=mark).close()


def test_a_repair_keeps_what_was_there_and_waits_for_every_server(
    database: str, store: PostgresStore, opened: Opener
) -> None:
    store.append(0, [FabricLoaded(1, fabric_spec()), note(2), note(3), note(4)], 1)
    change(database, "UPDATE log SET actor = 'eve' WHERE version = 3")
    plan = repair_plan(database, None)
    assert (plan.keep_to, plan.lost_count) == (2, 2)
    follower = opened()
    assert follower.try_lead("b:1", LEASE_S) is None
    for who, server in (("a server leads", store), ("servers follow", follower)):
        with pytest.raises(StoreError, match=f"is in use: {who} there"):
            repair(database, plan, None)
        server.close()
    repair(database, plan, None)
    assert last_versions(database, "log", "log_damaged") == [2, 4]
    open_store(database).close()


def test_a_second_repair_keeps_what_was_there_beside_what_the_first_kept(
    database: str, store: PostgresStore, tmp_path: Path
) -> None:
    """The first copy may be all that is left of most of the log, as where it gave up too much."""
    store.append(0, [FabricLoaded(1, fabric_spec()), *map(note, range(2, 7))], 1)
    copy = tmp_path / "copy.db"
    backup(database, copy)
    store.close()
    for damaged in (5, 3):
        change(database, f"UPDATE log SET actor = 'eve' WHERE version = {damaged}")
        repair(database, repair_plan(database, None), None)
    restore(copy, database, is_forced=True)  # which keeps what it replaces elsewhere
    kept = ("log_damaged", "log_damaged_2", "log_replaced", "log")
    assert last_versions(database, *kept) == [6, 4, 2, 6]
    change(database, "SELECT key FROM meta_damaged_2")


def test_an_emptied_database_is_not_taken_for_a_new_one(database: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(StoreError, match="muster store init makes one, or --init"):
        open_postgres(database, init=False)
    with closing(open_postgres(database, mark=mark)) as store:
        store.try_lead("a:1", LEASE_S)
        store.append(0, [note(1)], 1)
    change(database, "DROP TABLE log, meta, snapshot, leader, ended_job")
    with pytest.raises(StoreError, match="muster store init makes one, or --init"):
        open_postgres(database, mark=mark)


def test_two_that_start_at_once_make_the_tables_once(database: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_postgres(database), range(4)))
    for store in stores:
        assert store.leader().term == 0
        store.close()


def test_what_is_no_store_is_refused_and_left_alone(database: str, postgres: Cluster) -> None:
    for _ in range(2):  # a look makes none
        with pytest.raises(StoreError, match="it has no muster store"):
            look_at(database)
    change(database, "CREATE TABLE users (name text)")
    assert refusal(database).endswith("is a database, but no muster store")
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchall() == [("users",)]
    change(database, "DROP TABLE users")
    assert "no such schema" in refusal(f"{database}?options=-csearch_path%3Dnowhere")
    with suppress(psycopg.errors.DuplicateObject):
        change(database, "CREATE ROLE guest LOGIN")
    change(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    name = database.rsplit("/", 1)[1]
    assert "permission denied" in refusal(postgres.url_of(name, user="guest"))
    open_postgres(database).close()
    change(database, "UPDATE meta SET value = '99' WHERE key = 'schema'")
    assert "was written by a newer muster: schema 99, this one reads" in refusal(database)
    assert 'database "nowhere" does not exist' in refusal(postgres.url_of("nowhere"))


def test_a_url_that_leads_nowhere_is_named_without_the_password() -> None:
    address = f"127.0.0.1:{free_port()}"
    said = refusal(f"postgresql://me:secret@{address}/db")
    assert said.startswith(f"cannot connect to postgresql://{address}/db: ")
    assert "secret" not in said
    assert "URL cannot be read" in refusal("postgresql://host/db?nonsense=1")
