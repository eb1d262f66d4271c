"""What a release wrote is read for ever: rows, snapshots and stores, kept as they were.

Once 0.1.0 is out nothing in tests/stored is changed; a new event, format or schema adds its
own sample (`python -m tests.stored.write` makes them).
"""

import gzip
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from scheduler.core import JobState, replay
from scheduler.core.model.events import Event
from scheduler.core.model.job import Attempt, HostNames
from scheduler.core.model.lifecycle import HostState, WindowState
from scheduler.eventlog import codec, snapshots
from scheduler.eventlog.ended_jobs import job_of
from scheduler.eventlog.store import open_store
from scheduler.eventlog.store.verify import verify
from tests.cases import case
from tests.stored.story import story_events

STORED = Path(__file__).parents[2] / "stored"
STORES = sorted(STORED.glob("store-*.sql.gz"))
WRITE = "`python -m tests.stored.write` writes it"
EVENT_BY_NAME = {kind.__name__: kind for kind in get_args(Event)}
ROWS = (STORED / "events.tsv").read_text(encoding="utf-8").splitlines()


def test_an_event_that_was_written_once_is_read() -> None:
    for row in ROWS:
        with case(row=row):
            kind, body = row.split("\t")
            event = codec.decode(kind, body)
            again = codec.decode(*codec.encode(event))
            assert again == event


def test_every_event_has_a_row() -> None:
    missing = set(get_args(Event)) - {EVENT_BY_NAME[row.split("\t")[0]] for row in ROWS}
    assert not missing, f"EVENTS in test_codec.py lacks them, then {WRITE}"


def test_every_event_is_in_the_store_that_this_version_writes(tmp_path: Path) -> None:
    missing = set(get_args(Event)) - {type(event) for event in story_events()}
    assert not missing, f"STORY in tests/stored/story.py does not make them, then {WRITE}"
    kinds = {type(event) for event in _read(tmp_path, STORES[-1])}
    assert kinds == set(get_args(Event)), WRITE


def test_a_snapshot_is_read() -> None:
    text = (STORED / "snapshot.txt").read_bytes()
    state, last_ns = snapshots.decode(zlib.compress(text))
    assert (state.version, state.seen_ns, last_ns) == (20, 9, 9)
    assert {name: job.state for name, job in state.jobs.items()} == {
        "runs": JobState.INTERRUPTED,
        "wäits\t": JobState.QUEUED,
        "later": JobState.QUEUED,
        "part": JobState.RUNNING,
        "s-0": JobState.QUEUED,
        "s-1": JobState.QUEUED,
    }
    assert list(state.index.deferred) == ["later", "s-1"]
    assert [job.name for job in state.ended.values()] == ["gone"]
    assert state.host(1).state is HostState.FAILED
    assert [(b.window.name, b.state, b.create_ns) for b in state.windows.values()] == [
        ("w", WindowState.OPEN, 9),
        ("v", WindowState.PENDING, 9),
    ]
    assert snapshots.decode(snapshots.encode(state, last_ns)) == (state, last_ns)


@pytest.mark.parametrize("stored", STORES, ids=lambda path: path.name)
def test_a_store_is_opened_and_sound(tmp_path: Path, stored: Path) -> None:
    assert len(_read(tmp_path, stored)) > 50


def test_the_store_of_0_1_0_leads_to_the_state_that_it_had(tmp_path: Path) -> None:
    state = replay(_read(tmp_path, STORED / "store-0.1.0.sql.gz"))
    assert {name: job.state for name, job in state.jobs.items()} == {
        "a": JobState.RUNNING,
        "c": JobState.RUNNING,
        "later": JobState.QUEUED,
    }
    assert (state.jobs["a"].hosts, state.loaded_fabric.host_count) == ((9, 10), 12)


def _read(tmp_path: Path, stored: Path) -> list[Event]:
    """Return the events of a stored store, which is opened as a server does it and sound."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(gzip.decompress(stored.read_bytes()).decode())
    with closing(open_store(f"sqlite:///{path}")) as opened:
        found, events = verify(opened), [event for _, event in opened.read()]
    assert (found.problems, found.last_version) == ((), len(events))
    assert found.state == replay(events)
    return events


def test_a_field_that_must_be_there_is_missed() -> None:
    """The net has no hole: what a row lacks without a default is an error."""
    kind, body = next(row for row in ROWS if row.startswith("JobRequeued")).split("\t")
    with pytest.raises(codec.UndecodableEvent, match="missing required field `name`"):
        codec.decode(kind, body.replace('"name"', '"called"'))


def test_an_ended_job_that_was_written_before_attempts_has_its_hosts() -> None:
    job = job_of(zlib.compress((STORED / "ended_job.json").read_bytes()))
    assert job.gang == Attempt(
        start_ns=5,
        hosts=(0, 1),
        spares=(2,),
        start_dp=2,
        lower_bound=7,
        notes=("a\nnote",),
        placed=HostNames(("z0-r0-h0", "z0-r0-h1"), ("z0-r1-h0",)),
    )
