"""What older snapshots lack: the steps that lead from each format to the next.

A field that is new and right with its default needs no step. Only the snapshot with which
a log begins is upgraded; instead of a later one the log is read (recovery.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

Row = tuple[bytes, bytes, bytes]  # name of the field, key in a map, value as JSON
Step = Callable[[Iterator[Row]], Iterator[Row]]


def _seen(rows: Iterator[Row]) -> Iterator[Row]:
    """The state has the time of its newest event, which stood beside it."""
    names = set()
    last_ns = b"0"
    for row in rows:
        names.add(row[0])
        last_ns = row[2] if row[0] == b"last_ns" else last_ns
        yield row
    if b"seen_ns" not in names:
        yield b"seen_ns", b"", b'"%x"' % int(last_ns)


def _created(rows: Iterator[Row]) -> Iterator[Row]:
    """Windows have the time at which they were made; the nearest that is known is when they
    came into their state."""
    for name, key, value in rows:
        if name == b"windows":
            booking = json.loads(value)
            since_ns = booking["since_ns"]
            value = json.dumps({"create_ns": since_ns, "change_ns": since_ns} | booking).encode()
        yield name, key, value


UPGRADES: tuple[Step, ...] = (_seen, _created)
FORMAT = 1 + len(UPGRADES)


def upgraded(rows: Iterator[Row], since: int) -> Iterator[Row]:
    """The rows of a snapshot of format `since` as the newest format has them."""
    for step in UPGRADES[since - 1 :]:
        rows = step(rows)
    return rows
