"""Write the samples of this folder anew: `python -m tests.stored.write`.

They stand for what servers have on disk. Once a release is out, run this only for a new
event or format, and keep what the release before wrote beside it.
"""

from __future__ import annotations

import sqlite3
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from scheduler.core import replay
from scheduler.core.model.events import Event
from scheduler.eventlog import codec, snapshots
from scheduler.eventlog.ended_jobs import ended_by
from scheduler.eventlog.store import EndedJob
from scheduler.eventlog.store.sqlite import open_sqlite
from tests.unit.scheduler.test_codec import EVENTS
from tests.unit.scheduler.test_snapshot import LIFE, a_life

STORED = Path(__file__).parent


def main() -> None:
    rows = ("\t".join(codec.encode(event)) for event in EVENTS)
    (STORED / "events.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    body = snapshots.encode(a_life(), LIFE[-1].time_ns)
    (STORED / "snapshot.txt").write_bytes(zlib.decompress(body))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "muster.db"
        with closing(open_sqlite(f"sqlite:///{path}")) as store:
            store.append(0, LIFE[:7], actors=["ada"] * 7, ended=ended(LIFE[:7]))
            snapshot = snapshots.encode(replay(LIFE[:5]), LIFE[4].time_ns)
            store.save_snapshot(5, snapshot)
        with closing(sqlite3.connect(path)) as connection:
            dump = "\n".join(connection.iterdump())
    (STORED / "store.sql").write_text(dump + "\n", encoding="utf-8")


def ended(events: Sequence[Event]) -> list[EndedJob]:
    """The jobs that these events end."""
    states = [replay(events[:count]) for count in range(len(events) + 1)]
    found = (ended_by(*step) for step in zip(states, events, states[1:], strict=False))
    return [job for job in found if job is not None]


if __name__ == "__main__":
    main()
