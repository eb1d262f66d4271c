"""Changes out of the log: one pass for watches that resume near each other, and bounds."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.fabric import hostset
from scheduler.core import SchedulingOptions, State, replay
from scheduler.core.decide import decide
from scheduler.core.explain.decision import DecisionKind, decision
from scheduler.core.model.events import Event, FabricLoaded, GangResized, JobStarted
from scheduler.engine import history as module
from scheduler.engine.feed import Closed, FellBehind
from scheduler.engine.history import History, TooManyPasses
from scheduler.eventlog import snapshots
from scheduler.eventlog.attempts import decision_of
from scheduler.eventlog.store import Compacted
from scheduler.eventlog.store.sqlite import SqliteStore, open_sqlite
from tests.build import admitted, cancel, committed, fabric_spec, loaded, run, settled, submit

LAST = 41  # version: a fabric, then 20 jobs that are submitted and cancelled


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = open_sqlite(f"sqlite:///{tmp_path}/log.db")
    opened.append(0, _life())
    yield opened
    opened.close()


def _life() -> list[Event]:
    events: list[Event] = [FabricLoaded(0, fabric_spec())]
    state = replay(events)
    for number in range(20):
        for command in (submit(f"j{number}", 8), cancel(f"j{number}")):
            new = admitted(state, command)
            events += new
            state = replay(new, state)
    assert state.version == len(events) == LAST
    return events


@pytest.fixture
def history(store: SqliteStore) -> Iterator[History]:
    made = History(store)
    yield made
    made.close()


def folded(store: SqliteStore, version: int | None = None) -> State:
    return replay([event for _, event in store.read()][:version])


def saved(store: SqliteStore, version: int) -> None:
    """A snapshot of that version."""
    store.save_snapshot(version, snapshots.encode(folded(store, version), 0))


@pytest.fixture
def opened(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which versions the log was read."""
    seen: list[int] = []
    read = SqliteStore.read

    def counted(self: SqliteStore, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        seen.append(after_version)
        return read(self, after_version)

    monkeypatch.setattr(SqliteStore, "read", counted)
    return seen


async def _versions(history: History, after: int, to: int = LAST) -> list[int]:
    async with history.reading(after) as shared:
        batches = shared.changes(after, to, 3)
        return [change.version async for changes in batches for change in changes]


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 10)
    monkeypatch.setattr(module, "PAGE", 5)


@pytest.mark.parametrize(
    ("ahead", "places"),
    [
        pytest.param(module.AHEAD, [20, 3, 11, 40, 3, 25, 1, 0], id="near its snapshot"),
        pytest.param(2, [30] * 9, id="far from its snapshot"),
    ],
)
async def test_watches_that_resume_near_each_other_share_one_pass(
    history: History,
    opened: list[int],
    ahead: int,
    places: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AHEAD", ahead)
    found = await asyncio.gather(*(_versions(history, after) for after in places))
    assert found == [list(range(max(2, after + 1), LAST + 1)) for after in places]
    assert opened == [0]
    assert history.passes == 0


async def test_a_pass_begins_at_the_last_snapshot_before_and_is_not_for_those_further_back(
    store: SqliteStore, history: History, opened: list[int]
) -> None:
    saved(store, 30)
    opened.clear()
    near, far = await asyncio.gather(_versions(history, 35), _versions(history, 20))
    assert (near, far) == (list(range(36, LAST + 1)), list(range(21, LAST + 1)))
    assert opened == [30, 0]


async def test_a_change_out_of_a_shared_pass_shows_its_job_as_it_was(
    store: SqliteStore, history: History
) -> None:
    async with history.reading(3) as shared:
        changes = [change async for each in shared.changes(3, 5) for change in each]
    assert [change.version for change in changes] == [4, 5]
    for change in changes:
        assert isinstance(change, module.JobChange)
        assert change.job == folded(store, change.version).find(change.job.name)


async def test_a_reader_too_far_behind_the_first_is_cut_off(
    history: History, few_kept: None
) -> None:
    async with history.reading(0) as shared:
        slow = aiter(shared.changes(0, LAST))
        assert [change.version for change in await anext(slow)] == [2]
        assert await _versions(history, 0) == list(range(2, LAST + 1))
        with pytest.raises(FellBehind):
            await anext(slow)
        assert await _versions(history, 34) == list(range(35, LAST + 1))


async def test_far_more_changes_than_a_pass_keeps_may_lie_before_those_wanted(
    history: History, opened: list[int], few_kept: None
) -> None:
    async with history.reading(33):
        assert await _versions(history, 33) == list(range(34, LAST + 1))
        assert opened == [0]
        assert await _versions(history, 0) == list(range(2, LAST + 1))
        assert opened == [0, 0]  # what the first no longer keeps takes another one


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((1, 9), "watches resume at 1 places of the log; try again later"),
        ((9, 1), "anonymous resumes watches at 1 places of the log; try again later"),
    ],
)
async def test_the_log_is_read_at_so_many_places_and_no_more(
    store: SqliteStore, limits: tuple[int, int], message: str
) -> None:
    saved(store, 30)
    history = History(store, *limits)
    async with history.reading(35):
        with pytest.raises(TooManyPasses, match=message):
            await _versions(history, 2)
        assert await _versions(history, 33) == list(range(34, LAST + 1))
    assert await _versions(history, 2) == list(range(3, LAST + 1))
    history.close()


async def test_a_server_that_stops_ends_those_who_read(store: SqliteStore) -> None:
    history = History(store)
    async with history.reading(0) as shared:
        changes = aiter(shared.changes(0, LAST))
        await anext(changes)
        history.close()
        with pytest.raises(Closed):
            await anext(changes)
    with pytest.raises(Closed):
        await _versions(history, 0)


# --- the decision that an attempt began with, read back from the log -----------------

LIMITS = SchedulingOptions()


@pytest.fixture
def taken_store(tmp_path: Path) -> Iterator[SqliteStore]:
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


def start_of_a(taken_store: SqliteStore) -> int:
    """The version of its start."""
    starts = ((v, event) for v, event in taken_store.read() if isinstance(event, JobStarted))
    return next(version for version, event in starts if event.name == "a")


@pytest.mark.parametrize("snapshot", [None, -1, 0, 1])
def test_free_hosts_are_those_right_before_the_start(
    taken_store: SqliteStore, snapshot: int | None
) -> None:
    """With snapshots right before it, at it and after it as well."""
    start = start_of_a(taken_store)
    before, job = folded(taken_store, start - 1), folded(taken_store).jobs["a"]
    if snapshot is not None:
        saved(taken_store, start + snapshot)
    made = decision_of(taken_store, job, LIMITS)
    assert (made.kind, made.version) == (DecisionKind.START, start)
    assert made.job.hosts == job.hosts
    taken = hostset.of(before.jobs["b"].hosts + before.jobs["gone"].hosts)
    assert made.free == hostset.full(8) & ~taken


def test_a_log_that_begins_after_the_start_says_so(taken_store: SqliteStore) -> None:
    start = start_of_a(taken_store)
    saved(taken_store, start)
    taken_store.compact(start)
    with pytest.raises(Compacted):
        decision_of(taken_store, folded(taken_store).jobs["a"], LIMITS)


def test_a_gang_that_drops_replicas_has_those_that_it_keeps() -> None:
    state = settled(run(loaded(), submit("b"), submit("a", 4, min_dp=2)))
    names, job = state.loaded_fabric.names, state.jobs["a"]
    assert (job.dp, len(job.hosts)) == (4, 4)
    event = GangResized(5, "a", 2, 2, names(job.hosts[:2]), (), job.present.cuts)
    made = decision(state, event, LIMITS)
    assert (made.kind, made.job.attempt) == (DecisionKind.RESIZE, 2)
    assert made.job.request.parallelism.dp == 2
    assert made.free == state.free | hostset.of(job.hosts[:2])
