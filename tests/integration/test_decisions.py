"""The decision that an attempt began with, read back from the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.fabric import hostset
from scheduler.core import Job, SchedulingOptions, State, replay
from scheduler.core.decide import decide
from scheduler.core.explain.decision import DecisionKind, decision
from scheduler.core.model.events import Event, FabricLoaded, GangResized, JobStarted
from scheduler.eventlog import snapshots
from scheduler.eventlog.decisions import decision_of
from scheduler.eventlog.store import Compacted
from scheduler.eventlog.store.sqlite import SqliteStore, open_sqlite
from tests.build import admitted, cancel, committed, fabric_spec, loaded, run, settled, submit

LIMITS = SchedulingOptions()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """`b` and `gone` run when `a` starts; `gone` has left when `later` starts."""
    opened = open_sqlite(f"sqlite:///{tmp_path}/log.db")
    events: list[Event] = [FabricLoaded(0, fabric_spec())]
    state, now_ns = replay(events), 0
    happens = submit("b"), submit("gone"), submit("a", 3), cancel("gone"), submit("later")
    for command in happens:
        now_ns += 1_000
        asked = admitted(state, command, now_ns)
        state = replay(asked, state)
        made = committed(state, decide(state, now_ns, LIMITS), now_ns)
        state = replay(made, state)
        events += (*asked, *made)
    opened.append(0, events)
    yield opened
    opened.close()


def folded(store: SqliteStore, version: int | None = None) -> State:
    return replay([event for _, event in store.read()][:version])


def start_of(store: SqliteStore, name: str) -> int:
    """The version of its start."""
    return next(
        version
        for version, event in store.read()
        if isinstance(event, JobStarted) and event.name == name
    )


def a_of(store: SqliteStore) -> Job:
    return folded(store).jobs["a"]


def saved(store: SqliteStore, version: int) -> None:
    store.save_snapshot(version, snapshots.encode(folded(store, version), 0))


@pytest.mark.parametrize("snapshot", [None, -1, 0, 1])
def test_free_hosts_are_those_right_before_the_start(
    store: SqliteStore, snapshot: int | None
) -> None:
    """With snapshots right before it, at it and after it as well."""
    start, before = start_of(store, "a"), folded(store, start_of(store, "a") - 1)
    if snapshot is not None:
        saved(store, start + snapshot)
    made = decision_of(store, a_of(store), LIMITS)
    assert (made.kind, made.version) == (DecisionKind.START, start)
    assert made.job.hosts == a_of(store).hosts
    taken = hostset.of(before.jobs["b"].hosts + before.jobs["gone"].hosts)
    assert made.free == hostset.full(8) & ~taken


def test_a_log_that_begins_after_the_start_says_so(store: SqliteStore) -> None:
    start = start_of(store, "a")
    saved(store, start)
    store.compact(start)
    with pytest.raises(Compacted):
        decision_of(store, a_of(store), LIMITS)


def test_a_gang_that_drops_replicas_has_those_that_it_keeps() -> None:
    state = settled(run(loaded(), submit("b"), submit("a", 4, min_dp=2)))
    names, job = state.loaded_fabric.names, state.jobs["a"]
    assert (job.dp, len(job.hosts)) == (4, 4)
    event = GangResized(5, "a", 2, 2, names(job.hosts[:2]), (), job.present.cuts)
    made = decision(state, event, LIMITS)
    assert (made.kind, made.job.attempt) == (DecisionKind.RESIZE, 2)
    assert made.job.request.parallelism.dp == 2
    assert made.free == state.free | hostset.of(job.hosts[:2])
