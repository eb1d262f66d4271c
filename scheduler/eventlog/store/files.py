"""Backups of a SQLite store, taken and put back.

Whatever is written is written beside its place, synced, and then moved there, so that
a crash in the middle leaves what was there before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scheduler.eventlog.store.base import StoreError
from scheduler.eventlog.store.sqlite import check_store, check_whole, connect, lock_on, path_of


def backup(url: str, target: Path, *, is_forced: bool = False) -> int:
    """Copy the store to `target` as it is at one moment, while a server may write to it.

    The answer is the copy's last version. Raises: StoreError.
    """
    source = path_of(url)
    if not source.exists():
        raise StoreError(f"there is no store {source}")
    check_target(target, is_forced)
    return _copy(source, target)


def restore(source: Path, url: str, *, is_forced: bool = False) -> int:
    """Make `source`, a backup, the store at `url`, which no server may have open.

    What was there is kept beside it as FILE.replaced. The answer is the last version.
    Raises: StoreError.
    """
    target = path_of(url)
    if not source.exists():
        raise StoreError(f"there is no backup {source}")
    check_target(target, is_forced)
    is_new = not target.exists()
    lock = lock_on(target)
    try:
        keep = None if is_new else target.with_name(f"{target.name}.replaced")
        return _copy(source, target, keep)
    except BaseException:
        if is_new:  # locking it made an empty one
            target.unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


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
    """Raises: StoreError when nothing can, or may, be written there."""
    if not target.parent.is_dir():
        raise StoreError(f"cannot make {target}: there is no folder {target.parent}")
    if target.exists() and not is_forced:
        raise StoreError(f"{target} is there already; --force replaces it")


def _copy(source: Path, target: Path, keep: Path | None = None) -> int:
    check_store(source)
    with closing(connect(source)) as old, written(target, keep) as new:
        old.backup(new)
        (last,) = new.execute("SELECT COALESCE(MAX(version), 0) FROM log").fetchone()
    return int(last)


@contextmanager
def written(target: Path, keep: Path | None = None) -> Iterator[sqlite3.Connection]:
    """An empty file that is `target` once the block has ended well and the file is whole.

    `keep`: where what was there goes. Raises: StoreError.
    """
    beside = target.with_name(f"{target.name}.part")
    beside.unlink(missing_ok=True)
    try:
        with closing(connect(beside)) as new:
            yield new
            new.execute("PRAGMA journal_mode=DELETE")  # so that one file is all of it
            check_whole(beside, new)
        _move(beside, target, keep)
    except sqlite3.Error as error:
        raise StoreError(f"cannot copy the store to {target}: {error}") from None
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)


def _move(beside: Path, target: Path, keep: Path | None) -> None:
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    if keep is not None and target.exists():
        with closing(connect(target)) as old:  # what its WAL holds belongs to it
            old.execute("PRAGMA journal_mode=DELETE")
        os.replace(target, keep)
    os.replace(beside, target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
