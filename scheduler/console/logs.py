"""Logs that a timeline is made of: of a store, of a backup, or of a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from placement import BadInput
from scheduler.core import State
from scheduler.core.model.events import Event
from scheduler.eventlog.codec import UndecodableEvent, decode
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import StoreError, look_at
from scheduler.files.errors import InputError, Problem

EVENTS = "events.jsonl"  # of a replay's report


def read_log(source: str) -> tuple[State, list[Event]]:
    """Read the first state and the events of a log: of a store by its URL, a backup or store by its
    path, a replay by the folder of its report or the events.jsonl in it.

    Raises: InputError.
    """
    path = Path(source)
    if path.is_dir():
        path = path / EVENTS
    if path.suffix == ".jsonl":
        return State.empty(), list(_events(path))
    url = source if "://" in source else f"sqlite:///{source}"
    try:
        return stored(url, 0)
    except (StoreError, BadInput) as error:
        raise InputError(Problem("", str(error), source)) from None


def stored(url: str, from_ns: int) -> tuple[State, list[Event]]:
    """Read the events of a store since `from_ns`, with some events before, and the state before the
    first of them. Raises: StoreError, BadInput."""
    store = look_at(url)
    try:
        first = store.first_version() - 1
        version = max(first, store.version_at(from_ns) - 1 if from_ns else first)
        base = newest_snapshot(store, version)
        return base.state, [event for _, event in store.read(base.state.version)]
    finally:
        store.close()


def _events(path: Path) -> Iterator[Event]:
    """Raises: InputError with the line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    entry = json.loads(line)
                    yield decode(entry["type"], json.dumps(entry["event"]))
                except (ValueError, KeyError, TypeError, UndecodableEvent) as error:
                    reason = f"is not an event of this release: {error}"
                    raise InputError(Problem("", reason, str(path), number)) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise InputError(Problem("", reason, str(path))) from None
