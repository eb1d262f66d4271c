"""Backups of a SQLite store, taken and put back.

Whatever is written is written beside its place, synced, and then moved there, so that
a crash in the middle leaves what was there before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path

from scheduler.eventlog.store.base import StoreError
from scheduler.eventlog.store.mark import HighWaterMark, mark_of
from scheduler.eventlog.store.schema import truncations
from scheduler.eventlog.store.sqlite import (
    check_store,
    check_whole,
    connect,
    is_there,
    lock_on,
    path_of,
    tables_of,
)
from scheduler.files.atomic_file import sync_folder


def backup(url: str, target: Path, *, is_forced: bool = False) -> int:
    """Copy the store to `target` as it is at one moment, while a server may write to it.

    The answer is the copy's last version. Raises: StoreError.
    """
    source = path_of(url)
    if not source.exists():
        raise StoreError(f"there is no store {source}")
    check_target(target, is_forced)
    return _copy(source, target)


def restore(source: Path, url: str, *, is_forced: bool = False, mark: Path | None = None) -> int:
    """Make `source`, a backup, the store at `url`, which no server may have open, and mark where
    it ends, in the file `mark` if not beside it.

    What was there is kept beside it as FILE.replaced. The answer is the last version.
    Raises: StoreError.
    """
    target = path_of(url)
    if not source.exists():
        raise StoreError(f"there is no backup {source}")
    check_target(target, is_forced)
    is_new = not is_there(target)
    lock = lock_on(target)
    try:
        keep = None if is_new else target.with_name(f"{target.name}.replaced")
        (mark or mark_of(target)).unlink(missing_ok=True)  # of what was there
        last = _copy(source, target, keep)
        with closing(connect(target)) as restored:
            end = tables_of(target, restored).end()
            HighWaterMark(mark or mark_of(target), end).close()
        return last
    except BaseException:
        if is_new:  # locking it made an empty one
            target.unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


def truncate(url: str, keep_from: int, keep_to: int, mark: Path | None = None) -> None:
    """Drop every version of the log but those to keep, and mark where the log ends now. No server
    may have the store open. What was there is kept beside it as FILE.damaged, and what was kept so
    before, as by a call that was killed halfway, stays. Raises: StoreError."""
    path = path_of(url)
    if not is_there(path):
        raise StoreError(f"there is no store {path}")
    lock = lock_on(path)
    try:
        with closing(connect(path)) as store:
            check_whole(path, store)
            with written(_unused(path.with_name(f"{path.name}.damaged"))) as copy:
                store.backup(copy)
            store.execute("BEGIN IMMEDIATE")
            with store:
                for statement, value in truncations(keep_from, keep_to):
                    store.execute(statement.replace("%s", "?"), (value,))
            end = tables_of(path, store).end()
            store.execute("PRAGMA journal_mode=DELETE")
        (mark or mark_of(path)).unlink(missing_ok=True)
        HighWaterMark(mark or mark_of(path), end).close()
    except sqlite3.Error as error:
        raise StoreError(f"cannot change {path}: {error}") from None
    finally:
        os.close(lock)


def _unused(path: Path) -> Path:
    """`path`, or with a number behind it that no file has."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(each for each in chain((path,), numbered) if not each.exists())


def shrink(url: str) -> None:
    """Give back the room of dropped events. No server may have the store open."""
    path = path_of(url)
    lock = lock_on(path)
    try:
        with closing(connect(path)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StoreError(f"cannot shrink {path}: {error}") from None
    finally:
        os.close(lock)


def check_target(target: Path, is_forced: bool) -> None:
    """Refuse a file that cannot, or must not, be written. Raises: StoreError."""
    if not target.parent.is_dir():
        raise StoreError(f"cannot make {target}: there is no folder {target.parent}")
    if target.exists() and not is_forced:
        raise StoreError(f"{target} already exists; --force replaces it")


def _copy(source: Path, target: Path, keep: Path | None = None) -> int:
    check_store(source)
    with closing(connect(source)) as old, written(target, keep) as new:
        old.backup(new)
        return tables_of(target, new).last_version()


@contextmanager
def written(target: Path, keep: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Return a context with an empty file that becomes `target` once the block has ended well and
    the file is whole.

    `keep`: where what was there goes. Raises: StoreError.
    """
    part_file = target.with_name(f"{target.name}.part")
    part_file.unlink(missing_ok=True)
    try:
        with closing(connect(part_file)) as new:
            yield new
            new.execute("PRAGMA journal_mode=DELETE")  # so that one file is all of it
            check_whole(part_file, new)
        _move(part_file, target, keep)
    except sqlite3.Error as error:
        raise StoreError(f"cannot copy the store to {target}: {error}") from None
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from None
    finally:
        part_file.unlink(missing_ok=True)


def _move(part_file: Path, target: Path, keep: Path | None) -> None:
    with part_file.open("rb") as file:
        os.fsync(file.fileno())
    if keep is not None and target.exists():
        with closing(connect(target)) as old:  # what its WAL holds belongs to it
            old.execute("PRAGMA journal_mode=DELETE")
        os.replace(target, keep)
    os.replace(part_file, target)
    sync_folder(target.parent)
