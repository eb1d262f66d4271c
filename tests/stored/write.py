"""Write the samples of this folder anew: `python -m tests.stored.write`.

They stand for what servers have on disk. A new kind of event needs a part in `story.STORY` that
makes it, of which events.tsv gets the first. Once a release is out, its store stays: the next
version writes one of its own name beside it.
"""

import gzip
import sqlite3
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from scheduler.core import replay
from scheduler.core.model.events import Event
from scheduler.eventlog import codec, snapshots
from scheduler.eventlog.ended_jobs import ended_by
from scheduler.eventlog.store import EndedJob
from scheduler.eventlog.store.sqlite import open_sqlite
from tests.stored.story import story_events
from tests.unit.scheduler.test_stored import LIFE, ROWS, STORED, a_life


def main() -> None:
    rows = ["\t".join(codec.encode(codec.decode(*row.split("\t")))) for row in ROWS]
    kinds = {row.split("\t")[0] for row in rows}
    for event in story_events():
        kind, body = codec.encode(event)
        if kind not in kinds:
            kinds.add(kind)
            rows.append(f"{kind}\t{body}")
    (STORED / "events.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    body = snapshots.encode(a_life(), LIFE[-1].time_ns)
    (STORED / "snapshot.txt").write_bytes(zlib.decompress(body))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "muster.db"
        with closing(open_sqlite(f"sqlite:///{path}")) as store:
            events = story_events()
            store.append(0, events, actors=["ada"] * len(events), ended=ended(events))
            half = len(events) // 2
            snapshot = snapshots.encode(replay(events[:half]), events[half - 1].time_ns)
            store.save_snapshot(half, snapshot)
        with closing(sqlite3.connect(path)) as connection:
            dump = "\n".join(connection.iterdump()) + "\n"
    target = STORED / f"store-{version('muster-scheduler')}.sql.gz"
    target.write_bytes(gzip.compress(dump.encode(), mtime=0))


def ended(events: Sequence[Event]) -> list[EndedJob]:
    """The jobs that these events end."""
    states = [replay(events[:count]) for count in range(len(events) + 1)]
    found = (ended_by(*step) for step in zip(states, events, states[1:], strict=False))
    return [job for job in found if job is not None]


if __name__ == "__main__":
    main()
