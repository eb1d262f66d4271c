"""A store that lost its end, a bit or itself is refused, in words that say how to go on."""

import random
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from scheduler.core import replay
from scheduler.core.model.events import Event, FabricLoaded, HostSignalled
from scheduler.eventlog import snapshots
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.repair import repair, repair_plan
from scheduler.eventlog.store import Store, StoreError, open_store
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


@pytest.mark.parametrize(
    ("removed", "words"),
    [
        pytest.param(("", ".mark"), "but log.db-wal is left of one", id="the store"),
        pytest.param(("-wal",), "ends at version 0, but had come to version 40", id="its WAL"),
        # As behind a bind mount of the file alone, or in a copy of it.
        pytest.param(("-wal", ".mark"), "log.db-wal with its newest changes is missing", id="both"),
    ],
)
def test_what_somebody_removed_after_a_crash_is_missed(
    crashed: Path, removed: tuple[str, ...], words: str
) -> None:
    for end in removed:
        crashed.with_name(crashed.name + end).unlink()
    assert words in refusal(crashed)


def test_a_copy_of_a_closed_store_goes_on_without_a_mark(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(path)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    assert checked(copy) == ""
    assert "has no mark beside it" in caplog.text
    assert marked(copy) == 40


def test_an_older_copy_and_a_log_with_another_past_are_refused(path: Path) -> None:
    written(path, 10)
    old, mark = path.read_bytes(), mark_of(path)
    with closing(opened(path)) as store:
        store.append(10, EVENTS[10:20])
    newest = mark.read_bytes()
    mark.unlink()
    path.write_bytes(old)
    with closing(opened(path)) as store:
        store.append(10, [note(n) for n in range(50, 70)])
    mark.write_bytes(newest)
    assert "has other events up to version 20 than it had" in refusal(path)
    path.write_bytes(old)
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


def test_a_compacted_log_goes_on_from_its_snapshot_and_needs_it(path: Path) -> None:
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
    change(path, "UPDATE snapshot SET body = x'00'")
    with pytest.raises(StoreError, match="can be kept: restore a backup"):
        repair_plan(url(path), None)


# The way out


NO_30 = "UPDATE snapshot SET body = x'00' WHERE version = 30"
CUT, RENUMBERED = "DELETE FROM log WHERE version > 38", "UPDATE snapshot SET version = 21"


@pytest.mark.parametrize(
    ("versions", "compacted", "damages", "kept", "lost"),
    [
        pytest.param((), 0, (CUT,), (1, 38, 2), (), id="the end is missing"),
        pytest.param((), 0, (37,), (1, 36, 4), (38, 39, 40), id="after a changed event"),
        pytest.param((5, 20, 30), 0, (NO_30, 7), (21, 40, 0), (), id="a sound snapshot after it"),
        pytest.param(
            (5, 10, 20), 0, (7, 35, 39), (11, 34, 6), (36, 37, 38, 40), id="between two damages"
        ),
        pytest.param((5, 38), 0, (7, 39), (39, 38, 2), (40,), id="nothing behind a snapshot"),
        pytest.param((20, 30), 20, (25,), (31, 40, 0), (), id="compacted"),
        pytest.param(
            (20, 30),
            20,
            (25, NO_30),
            (21, 24, 16),
            (*range(26, 41),),
            id="its first snapshot alone",
        ),
        pytest.param(
            (20,), 0, (RENUMBERED, 7), (1, 6, 34), (*range(8, 41),), id="of another version"
        ),
    ],
)
def test_most_of_a_damaged_log_is_kept_and_goes_on(
    path: Path,
    versions: tuple[int, ...],
    compacted: int,
    damages: tuple[int | str, ...],
    kept: tuple[int, int, int],
    lost: tuple[int, ...],
) -> None:
    """`versions`: of snapshots. `damages`: changed events, or statements. `kept`: from which
    version to which, and how many are lost; `lost`: those of them that can still be read."""
    written(path)
    with closing(opened(path)) as store:
        saved(store, *versions)
        if compacted:
            store.compact(compacted)
    for damage in damages:
        if isinstance(damage, int):
            damaged(path, damage)
        else:
            change(path, damage)
    assert checked(path)
    plan = repair_plan(url(path), None)
    assert (plan.keep_from, plan.keep_to, plan.lost_count) == kept
    assert plan.lost == tuple((version, EVENTS[version - 1]) for version in lost)
    assert checked(path)  # a plan changes nothing
    repair(url(path), plan, None)
    assert checked(path) == ""
    first, last, _ = kept
    with closing(opened(path)) as store:
        assert (store.first_version(), store.last_version()) == (first, last)
        assert [event for _, event in store.read(first - 1)] == EVENTS[first - 1 : last]
        assert all(first - 1 <= version <= last for version, _ in store.snapshots())
        assert recover(store, None, 0).state == replay(EVENTS[:last])
        assert store.append(last, [note(last + 1)]) == last + 1
    assert checked(path) == ""
    assert path.with_name("log.db.damaged").exists()


def test_a_repair_that_is_killed_halfway_is_done_again_and_loses_no_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path)
    damaged(path, 37)
    plan = repair_plan(url(path), None)
    interrupted = Mock(side_effect=KeyboardInterrupt)
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
