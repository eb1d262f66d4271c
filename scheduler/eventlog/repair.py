"""What can be kept of a log that is damaged or has lost its end.

Events after the last sound one are given up, unless a sound snapshot comes after the damage: then
the log goes on from there, and only history is lost, up to the next damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.structs import struct
from scheduler.core.model.events import Event
from scheduler.eventlog import snapshots
from scheduler.eventlog.store import Store, StoreError, look_at, truncate
from scheduler.eventlog.store.mark import LogPosition, read_mark

NOTHING: Final = -1


@struct(frozen=True, slots=True)
class RepairPlan:
    """Plan of a repair: the part of a damaged store that is kept, and the part that is lost.
    `problem`: what is wrong, "" when nothing is. Kept are the versions from `keep_from` to
    `keep_to`. `lost`: events that are given up, as far as they can still be read; `lost_count`: how
    many changes of the state are lost, those included. `mark`: how far the log had come."""

    problem: str
    keep_from: int
    keep_to: int
    lost: tuple[tuple[int, Event], ...]
    lost_count: int
    mark: LogPosition | None


def repair_plan(url: str, mark: Path | None) -> RepairPlan:
    """Return what `repair` would keep and lose. Raises: StoreError when nothing can be kept."""
    store = look_at(url, mark)
    try:
        return _plan(store)
    finally:
        store.close()


def repair(url: str, plan: RepairPlan, mark: Path | None) -> None:
    """Drop the events and snapshots that cannot be kept; a copy of the old store stays beside it.
    No server may have the store open.

    Raises: StoreError.
    """
    truncate(url, plan.keep_from, plan.keep_to, mark)


def _plan(store: Store) -> RepairPlan:
    problem = ""
    try:
        store.check()
    except StoreError as error:
        problem = str(error)
    known = _mark_if_readable(store)
    first, last = store.first_version(), store.last_version()
    keep_from, keep_to = first, _sound_to(store, first - 1)
    has_base = keep_to >= first if first == 1 else _has_snapshot(store, first - 1)
    if not has_base:
        keep_to = NOTHING
    if keep_to < last:
        after = (v for v, body in store.snapshots() if v > keep_to and _is_sound(v, body))
        ends = ((_sound_to(store, version), -version) for version in after)
        if (end := max(ends, default=None)) is not None:  # the latest, with the most history
            keep_to, keep_from = end[0], 1 - end[1]
    if keep_to == NOTHING:
        raise StoreError(f"nothing of {store.name} can be kept: restore a backup ({problem})")
    lost = tuple(_readable(store, keep_to, last))
    had = max(last, known.version if known else 0)
    return RepairPlan(problem, keep_from, keep_to, lost, had - keep_to, known)


def _mark_if_readable(store: Store) -> LogPosition | None:
    try:
        return read_mark(store.mark_path)
    except StoreError:
        return None


def _sound_to(store: Store, after_version: int) -> int:
    """The last version up to which everything after `after_version` is as it was written."""
    version = after_version
    try:
        for version, _ in store.read(after_version):  # noqa: B007
            pass
    except StoreError:
        pass
    return version


def _is_sound(version: int, body: bytes) -> bool:
    """Whether a snapshot is of this version, and as it was written."""
    try:
        state, _ = snapshots.decode(body)
    except snapshots.BadSnapshot:
        return False
    return state.version == version


def _has_snapshot(store: Store, version: int) -> bool:
    """One that can be read."""
    return any(kept == version and _is_sound(kept, body) for kept, body in store.snapshots())


def _readable(store: Store, after_version: int, last: int) -> Iterator[tuple[int, Event]]:
    """Yield the events after `after_version` that can be read, with gaps."""
    while after_version < last:
        try:
            for version, event in store.read(after_version):
                yield version, event
                after_version = version
            return
        except StoreError:
            after_version += 1
