"""How old a server of several says that its answers are."""

import asyncio
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from scheduler.engine.replica import LeaderCandidate, Replica
from scheduler.engine.writer import Writer
from scheduler.eventlog.recovery import Recovered
from scheduler.eventlog.store import POLL_EVENTS, SharedStore, Unreachable
from scheduler.observe.instruments import Instruments
from scheduler.service.errors import ApiError
from scheduler.service.read_consistency import ReadConsistency

POLL_S = 3.0  # what one page of the log takes here


class Clock:
    """The clock of the event loop, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s)
        monkeypatch.setattr("scheduler.engine.replica.RETRY_S", 0.0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class PagedStore:
    """A store of `events` that takes its time for every page. `confirmed`: what its reader
    knew meanwhile."""

    def __init__(self, clock: Clock, events: int) -> None:
        self.events, self.clock = events, clock
        self.confirmed: list[float] = []
        self.replica: Replica | None = None
        self.heals = Event()  # until then nobody hears where the log ends

    def poll(self, after_version: int, _wait_s: float) -> list[tuple[int, Any]]:
        self.clock.now_s += POLL_S
        self.confirmed.append(self.replica.confirmed_s)
        last = min(self.events, after_version + POLL_EVENTS)
        return [(version, None) for version in range(after_version + 1, last + 1)]

    def cut(self) -> None:
        pass

    def last_version(self) -> int:
        assert self.heals.wait(60)
        return self.events


class CountingWriter:
    """A writer that has the events' number for a state."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(version=0)
        self.instruments = Instruments()

    def follow(self, polled: Sequence[tuple[int, Any]]) -> None:
        self.state.version = polled[-1][0]


class ReplicaWithoutThreads(Replica):
    async def _timed(self, call: Any, *arguments: Any) -> Any:
        return call(*arguments)


def follower(store: PagedStore) -> Replica:
    candidate = LeaderCandidate("here", 5.0, lambda: 0, None, None)
    writer = cast(Writer, CountingWriter())
    store.replica = ReplicaWithoutThreads(cast(SharedStore, store), writer, candidate)
    return store.replica


async def test_pages_of_a_long_log_make_nothing_younger_before_the_last_is_read(
    clock: Clock,
) -> None:
    store = PagedStore(clock, 2 * POLL_EVENTS + 1)
    replica = follower(store)
    await replica._catch_up()
    assert store.confirmed == [1_000.0] * 3
    assert replica.confirmed_s == 1_000.0 + 2 * POLL_S == clock.now_s - POLL_S


async def test_a_log_that_grows_with_every_look_is_followed_to_its_end_all_the_same(
    clock: Clock,
) -> None:
    store = PagedStore(clock, 0)
    replica = follower(store)
    for more in (1, POLL_EVENTS - 1):
        store.events += more
        await replica._catch_up(0.2)
        assert replica._writer.state.version == store.events
        assert replica.confirmed_s == clock.now_s - POLL_S
    assert len(store.confirmed) == 2


async def test_a_new_leader_counts_from_when_it_looked_for_the_end_of_the_log(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = follower(PagedStore(clock, POLL_EVENTS))
    said = list[float]()

    async def renew(_term: int, _writing: object) -> None:
        said.append(clock.now_s - replica.confirmed_s)

    async def lead(_term: int) -> None:
        pass

    monkeypatch.setattr(replica, "_settle", lambda _term: Recovered(replica._writer.state, 0))
    monkeypatch.setattr(replica, "_renew_lease", renew)
    for name, value in {"lead": lead, "give_up": lambda: None}.items():
        setattr(replica._writer, name, value)
    await replica._lead(1)
    assert said == [POLL_S]


async def test_a_server_that_lost_the_store_refuses_at_once_to_say_what_is_newest(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that wait for the store end when the server gives it up, and others do not begin to:
    their clients go to another server, which leads by then."""
    store = PagedStore(clock, 7)
    replica = follower(store)
    monkeypatch.setattr(store, "resign", lambda: None, raising=False)
    try:
        waiting = asyncio.create_task(replica.newest_version())
        await asyncio.sleep(0)
        await replica._stop_leading(Unreachable("cut off"))
        for refused in (waiting, asyncio.create_task(replica.newest_version())):
            with pytest.raises(Unreachable, match="does not reach the store"):
                await asyncio.wait_for(refused, 30)
    finally:
        store.heals.set()
    await replica._catch_up()
    assert await replica.newest_version() == 7


async def test_a_server_that_lost_the_store_says_so_and_not_that_it_is_behind() -> None:
    async def newest_version() -> int:
        raise Unreachable("cut off")

    consistency = ReadConsistency("muster")
    consistency.attach(
        cast(Writer, SimpleNamespace(state=SimpleNamespace(version=7))),
        cast(Replica, SimpleNamespace(newest_version=newest_version)),
    )
    with pytest.raises(ApiError, match="at version 7, and the store does not say") as refused:
        await consistency._wait({"muster-read": "latest", "muster-min-version": "7"})
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE


async def test_an_answer_is_as_old_as_the_state_with_which_the_call_began(clock: Clock) -> None:
    replica = SimpleNamespace(confirmed_s=998.5)
    consistency = ReadConsistency("muster")
    consistency.attach(
        cast(Writer, SimpleNamespace(state=SimpleNamespace(version=7), is_leading=False)),
        cast(Replica, replica),
    )
    trailers = list[dict[str, str]]()

    async def reading(_request: object, _context: object) -> str:
        clock.now_s += 2.0
        replica.confirmed_s = clock.now_s  # another call has seen the end of the log meanwhile
        return "of the old state"

    context = SimpleNamespace(
        invocation_metadata=tuple,
        set_trailing_metadata=lambda trailer: trailers.append(dict(trailer)),
    )
    assert await consistency._unary(reading)(None, context) == "of the old state"
    assert trailers == [{"muster-version": "7", "muster-role": "follower", "muster-age-ms": "3500"}]
