"""A store that lost its end, a bit or itself is refused, in words that say how to go on."""

import random
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from scheduler.core import replay
from scheduler.core.model.events import Event, FabricLoaded, HostSignalled
from scheduler.eventlog import snapshots
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.repair import RepairPlan, repair, repair_plan
from scheduler.eventlog.store import Store, StoreError, look_at, open_store
from scheduler.eventlog.store.mark import HighWaterMark, LogPosition, mark_of, read_mark
from tests.build import fabric_spec
from tests.serving import change


def note(n: int) -> Event:
    return HostSignalled(n, f"z0-r0-h{n % 2}", "link-flap")


EVENTS: list[Event] = [FabricLoaded(1, fabric_spec()), *(note(n) for n in range(2, 41))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def crashed(path: Path, tmp_path: Path) -> Path:
    """The store of a server that was killed: 40 events, all of them in the WAL."""
    store = opened(path)
    store.append(0, EVENTS)
    copy = tmp_path / "crashed"
    copy.mkdir()
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, copy)
    store.close()
    return copy / "log.db"


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def opened(path: Path, init: bool | None = None) -> Store:
    return open_store(url(path), init=init)


def written(path: Path, count: int = 40) -> None:
    with closing(opened(path)) as store:
        store.append(0, EVENTS[:count])


def saved(store: Store, *versions: int) -> None:
    """Save a snapshot of each version."""
    for version in versions:
        store.save_snapshot(version, snapshots.encode(replay(EVENTS[:version]), version))


def damaged(path: Path, *versions: int) -> None:
    for version in versions:
        change(path, f"UPDATE log SET actor = 'eve' WHERE version = {version}")


def marked(path: Path) -> int:
    """The version that the mark of a store says."""
    mark = read_mark(mark_of(path))
    assert mark is not None
    return mark.version


def kept(plan: RepairPlan) -> tuple[int, int, int]:
    """From which version to which, and how many are lost."""
    return plan.keep_from, plan.keep_to, plan.lost_count


def refusal(path: Path, init: bool | None = None) -> str:
    with pytest.raises(StoreError) as caught:
        opened(path, init)
    return str(caught.value)


def checked(path: Path) -> str:
    """What a start says of the store, "" when it is whole."""
    try:
        with closing(opened(path)) as store:
            store.check()
    except StoreError as error:
        return str(error)
    return ""


# The store itself


def test_a_deleted_or_emptied_store_is_not_replaced_by_an_empty_one(path: Path) -> None:
    assert "muster store init makes one" in refusal(path, init=False)
    assert not path.exists()
    opened(path).close()
    path.unlink()  # without events it may be deleted
    written(path)
    with closing(opened(path, init=True)) as store:
        assert store.last_version() == 40
    path.write_bytes(b"")
    assert "knows one that came to version 40" in refusal(path)
    path.unlink()
    said = refusal(path)
    assert f"there is no store {path}, but log.db.mark knows one that came to version 40" in said
    assert said.endswith("put it back, restore a backup, or begin an empty one with --init")
    assert not path.exists()


def test_what_a_crash_left_of_a_deleted_store_is_seen_without_a_mark(crashed: Path) -> None:
    mark_of(crashed).unlink()
    crashed.unlink()
    assert "but log.db-wal is left of one" in refusal(crashed)


def test_an_operator_can_begin_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(path)
    path.unlink()
    with closing(opened(path, init=True)) as store:
        assert store.last_version() == 0
    assert "log.db.mark is left of an earlier store: it is now log.db.mark.replaced" in caplog.text
    assert read_mark(path.with_name("log.db.mark.replaced")) is not None


def test_another_store_in_its_place_is_refused(path: Path, tmp_path: Path) -> None:
    written(path, 30)
    other = tmp_path / "other.db"
    written(other, 40)
    other.replace(path)
    assert "is not the store that was here before, which came to version 30" in refusal(path)


# Its end


def test_a_wal_that_a_crash_left_and_somebody_removed_is_missed(crashed: Path) -> None:
    wal(crashed).unlink()
    said = refusal(crashed)
    assert "ends at version 0, but had come to version 40" in said
    assert "40 acknowledged changes are missing" in said
    assert "muster store recover" in said


def test_a_file_without_wal_and_mark_is_refused_unless_it_was_closed(crashed: Path) -> None:
    """As behind a bind mount of the file alone, or in a copy of it."""
    wal(crashed).unlink()
    mark_of(crashed).unlink()
    assert "log.db-wal with its newest changes is missing" in refusal(crashed)


def test_a_copy_of_a_closed_store_goes_on_without_a_mark(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(path)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    assert checked(copy) == ""
    assert "has no mark beside it" in caplog.text
    assert marked(copy) == 40


def test_an_older_copy_and_a_log_with_another_past_are_refused(path: Path, tmp_path: Path) -> None:
    written(path, 10)
    old = tmp_path / "old.db"
    shutil.copy(path, old)
    with closing(opened(path)) as store:
        store.append(10, EVENTS[10:20])
    for file in (mark_of(path), path):
        file.replace(file.with_name(f"{file.name}.kept"))
    shutil.copy(old, path)
    with closing(opened(path)) as store:
        store.append(10, [note(n) for n in range(50, 70)])
    mark_of(path).with_name("log.db.mark.kept").replace(mark_of(path))
    assert "has other events up to version 20 than it had" in refusal(path)
    shutil.copy(old, path)
    assert "10 acknowledged changes are missing" in refusal(path)


def test_a_mark_is_never_ahead_of_the_log(path: Path) -> None:
    store = opened(path)
    for version in range(20):
        store.append(version, EVENTS[version : version + 1])
        assert marked(path) == version + 1
    with pytest.raises(StoreError):
        store.append(5, EVENTS[5:])
    assert marked(path) == 20
    store.close()


def test_a_mark_whose_last_write_was_torn_says_what_stood_before(path: Path) -> None:
    mark = HighWaterMark(path, LogPosition("a", 1, b"1", 1))
    mark.advance(2, b"2", 2)
    mark.advance(3, b"3", 3)
    mark.close()
    content = path.read_bytes()
    for newer in (content.index(b"a 3 "), content.index(b"a 2 ")):
        path.write_bytes(content[:newer] + b"a 9" + content[newer + 3 :])
        found = read_mark(path)
        assert found is not None
        assert found.version in (2, 3)
    path.write_bytes(content.replace(b"a ", b"b "))
    with pytest.raises(StoreError, match="is damaged"):
        read_mark(path)


# Its content


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE log SET body = replace(body, 'link-flap', 'link-flaq') WHERE version = 7",
        "UPDATE log SET time_ns = time_ns + 1 WHERE version = 7",
        "UPDATE log SET actor = 'eve' WHERE version = 7",
        "UPDATE log SET digest = x'00' WHERE version = 7",
        "UPDATE log SET body = (SELECT body FROM log WHERE version = 9) WHERE version = 7",
    ],
)
def test_a_changed_row_is_found_at_the_start(path: Path, damage: str) -> None:
    written(path)
    change(path, damage)
    assert "is corrupt: version 7 is not what was written" in checked(path)


def test_whoever_reads_meets_a_changed_row(path: Path) -> None:
    written(path)
    damaged(path, 7)
    with closing(look_at(url(path))) as store:
        assert len(list(store.read(7))) == 33  # what follows is sound
        for read in (store.read, store.requests):
            with pytest.raises(StoreError, match="version 7 is not what was written"):
                list(read(3))


def test_no_flipped_bit_is_served(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 20)
        expected = list(store.read()), list(store.snapshots())
    whole, rng = path.read_bytes(), random.Random(1)
    found = 0
    for _ in range(60):
        flipped = bytearray(whole)
        flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        try:
            with closing(opened(path)) as store:
                store.check()
                served = list(store.read()), list(store.snapshots())
        except StoreError:
            found += 1
            continue
        snapshot = served[1][0][1]
        assert served[0] == expected[0]
        if snapshot != expected[1][0][1]:
            with pytest.raises(snapshots.BadSnapshot):
                snapshots.decode(snapshot)
            found += 1
    assert found > 8


def test_a_compacted_log_goes_on_from_its_snapshot(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 20)
        store.compact(20)
        store.append(40, [note(41)])
        store.save_snapshot(41, snapshots.encode(replay([*EVENTS, note(41)]), 41))
        store.compact(41)
        store.append(41, [note(42)])
    assert checked(path) == ""
    change(path, "UPDATE snapshot SET digest = x'00'")
    assert "version 42 is not what was written, or does not follow from version 41" in checked(path)


# The way out


def test_a_log_without_its_end_is_taken_as_it_is(path: Path) -> None:
    written(path)
    change(path, "DELETE FROM log WHERE version > 38")
    plan = repair_plan(url(path), None)
    assert "ends at version 38, but had come to version 40" in refusal(path)
    assert "2 acknowledged changes are missing" in plan.problem
    assert (plan.keep_from, plan.keep_to, plan.lost_count, plan.lost) == (1, 38, 2, ())
    assert refusal(path)  # a plan changes nothing
    repair(url(path), plan, None)
    with closing(opened(path)) as store:
        assert store.append(38, [note(39)]) == 39
    assert checked(path) == ""
    assert path.with_name("log.db.damaged").exists()


def test_events_after_a_changed_one_are_given_up_and_named(path: Path) -> None:
    written(path)
    damaged(path, 37)
    plan = repair_plan(url(path), None)
    assert kept(plan) == (1, 36, 4)
    assert plan.lost == tuple((n, note(n)) for n in (38, 39, 40))
    repair(url(path), plan, None)
    assert checked(path) == ""
    with closing(opened(path)) as store:
        assert [event for _, event in store.read()] == EVENTS[:36]


def test_a_repair_that_is_killed_halfway_is_done_again_and_loses_no_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path)
    damaged(path, 37)
    plan = repair_plan(url(path), None)
    with monkeypatch.context() as killed:
        killed.setattr("scheduler.eventlog.store.files.HighWaterMark", interrupted)
        with pytest.raises(KeyboardInterrupt):
            repair(url(path), plan, None)
    assert checked(path) == ""  # without a mark it is taken as it is
    damaged(path, 30)
    repair(url(path), repair_plan(url(path), None), None)
    assert checked(path) == ""
    copies = [path.with_name(f"log.db.damaged{number}") for number in ("", "-2")]
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(sqlite3.connect(copy))) for copy in copies]
        last = [store.execute("SELECT max(version) FROM log").fetchone()[0] for store in stores]
    assert last == [40, 36]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_snapshot_after_the_damage_saves_all_but_history(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 5, 20, 30)
    change(path, "UPDATE snapshot SET body = x'00' WHERE version = 30")
    damaged(path, 7)
    plan = repair_plan(url(path), None)
    assert kept(plan) == (21, 40, 0)
    repair(url(path), plan, None)
    assert checked(path) == ""
    with closing(opened(path)) as store:
        assert [event for _, event in store.read(20)] == EVENTS[20:]
        assert [version for version, _ in store.snapshots()] == [30, 20]


def test_between_two_damages_all_that_follows_a_snapshot_is_kept(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 5, 10, 20, 38)
    damaged(path, 7, 35, 39)
    plan = repair_plan(url(path), None)
    assert kept(plan) == (39, 38, 2)
    change(path, "DELETE FROM snapshot WHERE version = 38")
    plan = repair_plan(url(path), None)
    assert kept(plan) == (11, 34, 6)
    assert [version for version, _ in plan.lost] == [36, 37, 38, 40]
    repair(url(path), plan, None)
    assert checked(path) == ""
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT min(version), max(version) FROM log").fetchone() == (11, 34)
    with closing(opened(path)) as store:
        assert (store.first_version(), [v for v, _ in store.snapshots()]) == (11, [20, 10])
        assert [event for _, event in store.read(10)] == EVENTS[10:34]
        assert store.append(34, [note(35)]) == 35


def test_a_snapshot_with_nothing_sound_behind_it_is_kept_alone(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 38)
    damaged(path, 7, 39)
    plan = repair_plan(url(path), None)
    assert kept(plan) == (39, 38, 2)
    repair(url(path), plan, None)
    assert checked(path) == ""
    with closing(opened(path)) as store:
        assert (store.first_version(), store.last_version()) == (39, 38)
        assert recover(store, None, 0).state == replay(EVENTS[:38])
        assert store.append(38, [note(39)]) == 39
    assert checked(path) == ""


def test_a_compacted_log_needs_the_snapshot_that_it_begins_with(path: Path) -> None:
    """Else what is kept could not be served."""
    written(path)
    with closing(opened(path)) as store:
        saved(store, 20, 30)
        store.compact(20)
    damaged(path, 25)
    plan = repair_plan(url(path), None)
    assert (plan.keep_from, plan.keep_to) == (31, 40)
    change(path, "UPDATE snapshot SET body = x'00' WHERE version = 30")
    plan = repair_plan(url(path), None)
    assert kept(plan) == (21, 24, 16)
    change(path, "UPDATE snapshot SET body = x'00' WHERE version = 20")
    with pytest.raises(StoreError, match="can be kept: restore a backup"):
        repair_plan(url(path), None)


def test_a_snapshot_of_another_version_saves_nothing(path: Path) -> None:
    written(path)
    with closing(opened(path)) as store:
        saved(store, 20)
    change(path, "UPDATE snapshot SET version = 21")
    damaged(path, 7)
    plan = repair_plan(url(path), None)
    assert kept(plan) == (1, 6, 34)
    repair(url(path), plan, None)
    with closing(opened(path)) as store:
        assert list(store.snapshots()) == []  # of what is lost: other events get its version


def test_a_mark_that_nobody_can_read_is_replaced(path: Path) -> None:
    written(path)
    damaged(path, 37)
    mark_of(path).write_bytes(b"?" * mark_of(path).stat().st_size)
    plan = repair_plan(url(path), None)
    assert (plan.keep_to, plan.lost_count, plan.mark) == (36, 4, None)
    repair(url(path), plan, None)
    assert checked(path) == ""
    assert marked(path) == 36


def test_a_store_in_use_is_not_repaired(path: Path) -> None:
    written(path)
    assert repair_plan(url(path), None).problem == ""
    damaged(path, 37)
    plan = repair_plan(url(path), None)
    with closing(opened(path)), pytest.raises(StoreError, match="in use"):
        repair(url(path), plan, None)
    assert repair_plan(url(path), None) == plan
    damaged(path, 1)
    with pytest.raises(StoreError, match="can be kept: restore a backup"):
        repair_plan(url(path), None)


def test_a_file_that_lost_its_wal_without_a_trace_is_taken_as_it_is(
    path: Path, tmp_path: Path
) -> None:
    store = opened(path)
    store.append(0, EVENTS[:30])
    change(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    store.append(30, EVENTS[30:])
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    store.close()
    plan = repair_plan(url(copy), None)
    assert "with its newest changes is missing" in plan.problem
    assert (plan.keep_to, plan.lost_count) == (30, 0)  # that can be known
    repair(url(copy), plan, None)
    assert checked(copy) == ""
