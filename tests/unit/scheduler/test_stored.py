"""What is written reads back: events, snapshots and stores, those of releases for ever."""

import gzip
import inspect
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import pytest

from scheduler.core import JobState, State, replay
from scheduler.core.model.commands import RequestCommand
from scheduler.core.model.dependency import Dependency, DependencyKind, DependencyTerm
from scheduler.core.model.events import (
    CheckpointSaved,
    Event,
    FabricLoaded,
    HostMoved,
    JobEnded,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    LinkReported,
    RequestEvent,
    TenantsLoaded,
    WindowOpened,
    WindowSet,
)
from scheduler.core.model.index import Index
from scheduler.core.model.job import Attempt, HostNames
from scheduler.core.model.job_array import JobArray
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.model.requests import ACTIONS
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.eventlog import codec, snapshots
from scheduler.eventlog.ended_jobs import job_of
from scheduler.eventlog.snapshots import BadSnapshot, decode, encode
from scheduler.eventlog.store import open_store
from scheduler.eventlog.store.verify import verify
from tests.build import fabric_spec, spec
from tests.cases import case
from tests.older import older
from tests.stored.story import story_events
from tests.windows import window

STORED = Path(__file__).parents[2] / "stored"
STORES = sorted(STORED.glob("store-*.sql.gz"))
WRITE = "`python -m tests.stored.write` writes it"
EVENT_BY_NAME = {kind.__name__: kind for kind in get_args(Event)}
ROWS = (STORED / "events.tsv").read_text(encoding="utf-8").splitlines()


def test_every_event_that_was_written_once_is_read() -> None:
    for row in ROWS:
        with case(row=row):
            event = codec.decode(*row.split("\t"))
            assert codec.decode(*codec.encode(event)) == event
    missing = set(get_args(Event)) - {EVENT_BY_NAME[row.split("\t")[0]] for row in ROWS}
    assert not missing, WRITE


def test_every_event_is_in_the_story_and_reads_back_as_itself() -> None:
    events = story_events()
    missing = set(get_args(Event)) - {type(event) for event in events}
    assert not missing, f"STORY in tests/stored/story.py does not make them, then {WRITE}"
    for event in events:
        with case(event=event):
            assert codec.decode(*codec.encode(event)) == event


def test_every_event_with_the_id_of_a_request_is_remembered_under_it() -> None:
    with_id = {
        kind for kind in get_args(Event) if "request_id" in inspect.signature(kind).parameters
    }
    assert set(get_args(RequestEvent)) == with_id
    assert set(ACTIONS) == {*get_args(RequestEvent), *get_args(RequestCommand)}


def test_a_record_that_is_no_event_is_refused() -> None:
    for type_name, body, message in [
        ("JobEnded", "{", "JobEnded: Input data was truncated"),
        (
            "JobEnded",
            '{"time_ns": 1, "name": "a"}',
            "JobEnded: Object missing required field `outcome`",
        ),
        (
            "JobRequeued",
            '{"time_ns": "1", "name": "a", "reason": ""}',
            r"JobRequeued: Expected `int`, got `str` - at `\$.time_ns`",
        ),
    ]:
        with case(body=body), pytest.raises(codec.UndecodableEvent, match=message):
            codec.decode(type_name, body)


def test_the_codec_is_light_enough_for_the_simulator() -> None:
    heavy = {"grpc", "sqlite3", "asyncio"}
    script = f"import sys, scheduler.eventlog.codec; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stdout + found.stderr


# --- snapshots -------------------------------------------------------------------


TWO_HOSTS = ("z0-r0-h0", "z0-r0-h1")
LIFE: list[Event] = [
    FabricLoaded(1, fabric_spec()),
    TenantsLoaded(2, "", Tenants((Tenant("default"), Tenant("nlp")))),
    JobSubmitted(2, "u1", spec("runs", 2), "r1"),
    JobSubmitted(3, "u2", spec("wäits\t", 8, priority=3, limit_s=9), "r2"),
    JobSubmitted(4, "u3", spec("gone"), "r3"),
    JobStarted(5, "runs", 1, TWO_HOSTS, ("z0-r1-h0",), (), 7, ("a\nnote",)),
    JobEnded(6, "gone", JobState.CANCELLED, "typo"),
    JobSubmitted(6, "u0", spec("part", gpus=2)),
    JobStarted(6, "part", 1, ("z1-r1-h1",), (), (), 0, gpus=(0, 1)),
    CheckpointSaved(6, "part", 1, 5, "/c/5"),
    HostMoved(7, "z0-r0-h1", HostMove.FAIL, "gpu-lost", "", Mover.SIGNAL, "gpu-lost"),
    JobsReserved(8, (("wäits\t", 2**59),)),
    JobsReserved(8, (("wäits\t", 2**60),), (("wäits\t", (("z0-r1-h0", 2),)),)),
    WindowSet(9, replace(window("w", "z0-r1"), hosts=("z0-r1-h0", "z0-r1-h1")), "r4"),
    WindowOpened(9, "w"),
    WindowSet(9, replace(window("v", "z1", jobs=("a-*",)), hosts=("z1-r0-h0",))),
    LinkReported(9, "z1", 0.875, "2 of 16 cables are down"),
    JobSubmitted(
        9,
        "u4",
        replace(spec("later"), dependencies=(DependencyTerm(DependencyKind.AFTEROK, "runs"),)),
        dependencies=(Dependency(DependencyKind.AFTEROK, "runs", "u1"),),
    ),
    *(
        JobSubmitted(
            9, f"u{5 + task}", replace(spec(f"s-{task}"), array=JobArray("0-1", 1, "s", "u", task))
        )
        for task in (0, 1)
    ),
]


def a_life() -> State:
    """Something in every field that events fill."""
    return replay(LIFE)


def same(a: State, b: State) -> bool:
    """Equal, and every map in the same order."""
    maps = [f.name for f in fields(State) if hasattr(getattr(a, f.name), "keys")]
    return a == b and all(list(getattr(a, m)) == list(getattr(b, m)) for m in maps)


@pytest.mark.parametrize("state", [State.empty(), a_life()], ids=["empty", "a life"])
def test_a_state_survives(state: State) -> None:
    again, last_ns = decode(encode(state, 2**62))
    assert same(again, state)
    assert last_ns == 2**62
    assert encode(again, last_ns) == encode(state, 2**62)


def test_a_fold_goes_on_from_a_snapshot_as_from_the_state() -> None:
    state = a_life()
    again, _ = decode(encode(state, 8))
    rest = [HostMoved(9, "z1-r0-h0", HostMove.CORDON), JobEnded(10, "runs", JobState.FAILED)]
    assert same(replay(rest, again), replay(rest, state))


def test_a_set_of_many_hosts_survives() -> None:
    """More decimal digits than Python turns into a number."""
    held = (1 << 100_000) - 1
    assert decode(encode(State(index=Index(held=held)), 0))[0].index.held == held


def test_pauses_come_often() -> None:
    pauses = []
    submitted = [JobSubmitted(1, f"u{n}", spec(f"j{n}")) for n in range(1_000)]
    state = replay([FabricLoaded(0, fabric_spec()), *submitted])
    body = encode(state, 0, lambda: pauses.append("encode"))
    decode(body, lambda: pauses.append("decode"))
    assert (pauses.count("encode"), pauses.count("decode")) == (11, 10)


def changed(old: bytes, new: bytes) -> bytes:
    text = zlib.decompress(encode(a_life(), 0))
    assert old in text
    return zlib.compress(text.replace(old, new))


def test_what_is_no_snapshot_is_refused() -> None:
    for body, message in [
        (b"junk", "incorrect header"),
        (encode(a_life(), 0)[:-1], "incomplete"),
        (changed(b"muster snap", b"hamster nap"), "is 'hamster napshot 1'"),
        (changed(b"queue\t", b"queer\t"), "unknown field 'queer'"),
        (changed(b'"attempt":1', b'"attempt":"1"'), "Expected `int`, got `str`"),
        (changed(b"gpus_per_host", b"gpus_per_toast"), "gpus_per_toast"),
        (changed(b"fabric\t\t", b"fabric\t\t" + b"[" * 100_000), "Expected `object | null`"),
        (zlib.compress(b""), "not enough values"),
    ]:
        with case(message=message), pytest.raises(BadSnapshot, match=message):
            decode(body)


def test_every_field_of_the_state_is_written() -> None:
    names = {
        line.split(b"\t")[0].decode() for line in zlib.decompress(encode(a_life(), 0)).split(b"\n")
    }
    assert names >= {field.name for kind in (State, Index) for field in fields(kind)} - {"index"}
    assert snapshots.TITLE in names


def test_a_snapshot_knows_of_which_fields_it_is() -> None:
    body = encode(a_life(), 0)
    assert not snapshots.is_older(body)
    assert snapshots.is_older(older(body))
    assert snapshots.is_older(changed(b'fields\t\t"', b'fields\t\t"f'))
    assert not snapshots.is_older(b"junk")


NEEDED = {"fabric", "version", "jobs", "index"}  # no state without these


def test_a_field_that_was_not_there_yet_has_its_default() -> None:
    body = encode(a_life(), 9)
    for name in [f.name for f in fields(State) if f.name not in NEEDED]:
        with case(name=name):
            again, _ = decode(older(body, name.encode()))
            assert getattr(again, name) == getattr(State.empty(), name)
    for name in [f.name for f in fields(Index)]:
        with case(name=name):
            again, _ = decode(older(body, name.encode()))
            assert getattr(again.index, name) == getattr(Index(), name)


def test_what_a_job_did_not_have_yet_has_its_default() -> None:
    assert a_life().jobs["runs"].failed_attempts == 1
    older_life, _ = decode(changed(b'"failed_attempts":1', b'"unheard":1'))
    assert older_life.jobs["runs"].failed_attempts == 0


# --- what releases wrote ---------------------------------------------------------


def test_a_snapshot_is_read() -> None:
    state, last_ns = decode(zlib.compress((STORED / "snapshot.txt").read_bytes()))
    assert last_ns == 9
    for name in ("version", "seen_ns", "jobs", "index", "ended", "hosts", "windows", "links"):
        assert getattr(state, name) == getattr(a_life(), name), name


def test_stores_are_sound_and_the_newest_has_every_event(tmp_path: Path) -> None:
    events = [_read(tmp_path / stored.name, stored) for stored in STORES]
    assert {type(event) for event in events[-1]} == set(get_args(Event)), WRITE


def test_the_store_of_0_1_0_leads_to_the_state_that_it_had(tmp_path: Path) -> None:
    state = replay(_read(tmp_path / "old.db", STORED / "store-0.1.0.sql.gz"))
    assert {name: job.state for name, job in state.jobs.items()} == {
        "a": JobState.RUNNING,
        "c": JobState.RUNNING,
        "later": JobState.QUEUED,
    }
    assert (state.jobs["a"].hosts, state.loaded_fabric.host_count) == ((9, 10), 12)


def _read(path: Path, stored: Path) -> list[Event]:
    """Return the events of a stored store, which a server opens at `path` and finds sound."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(gzip.decompress(stored.read_bytes()).decode())
    with closing(open_store(f"sqlite:///{path}")) as opened:
        found, events = verify(opened), [event for _, event in opened.read()]
    assert (found.problems, found.last_version) == ((), len(events))
    assert found.state == replay(events)
    return events


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
