"""Changes, handed to everyone who watches, in order and without a gap.

The newest changes of each kind are kept once, in a ring; a watch is a place in it. So a watch
that resumes not far back costs nothing but its messages, and a reader that is slow costs no memory.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from itertools import count
from typing import Any, Generic, TypeVar

from muster.structs import struct
from scheduler.core.fold.effects import (
    EventEffect,
    HostsChange,
    JobChange,
)

Change = TypeVar("Change", JobChange, HostsChange)

RING = 20_000  # changes of each kind that are kept
AT_A_TIME = 16  # watches to which a change is on its way
RESUMING_AT_A_TIME = 2  # of those that have not caught up yet, which always have more to send
RESUMING_MOST = 50  # changes of one turn of those, 35 KB: what is on its way keeps calls waiting
_LONGEST_S = 0.05  # for which one that is not taken keeps the others waiting
_LOOK_S = 0.005  # how often turns that are held up begin all the same
# For which changes gather before a watch in batches is sent more, times the streams that are open:
# some 0.2 ms of each are a message's, so that all of them together cost a fifth of a processor.
_GATHER_S, _MOST_GATHER_S = 0.001, 0.5


class FellBehind(Exception):
    """The watcher did not keep up and must resume from the last version it saw."""


class Closed(Exception):
    """The server stops; resume when it is back."""


class Turns:
    """Limits how many watches are sent a change at a time; they take turns in the order in which
    they asked.

    gRPC takes up one call after the other, each behind all that is under way by then. With changes
    on their way to 200 watches those are some 80 calls a second. A watch whose reader does not read
    gives up its turn after a moment.
    """

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._at_a_time = at_a_time
        self._turns = count()
        self._since_s: dict[int, float] = {}  # the turns of now, the first first
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._holds = 0  # how many ask that none begin

    async def take(self) -> int:
        """Wait for a turn, which is given back by `done`."""
        loop = asyncio.get_running_loop()
        if len(self._since_s) < self._at_a_time and not self._waiting and not self._holds:
            return self._begun(loop.time())
        turn: asyncio.Future[int] = loop.create_future()
        if not self._waiting:
            loop.call_later(_LOOK_S, self._look)
        self._waiting.append(turn)
        return await turn

    @asynccontextmanager
    async def hold_turn(self) -> AsyncIterator[None]:
        """Return a context that lasts as long as one turn."""
        turn = await self.take()
        try:
            yield
        finally:
            self.done(turn)

    def done(self, turn: int) -> None:
        self._since_s.pop(turn, None)
        self._next()

    @contextmanager
    def slow_turns(self) -> Iterator[None]:
        """Let few turns begin while the block lasts, each after some milliseconds."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._next()

    def _begun(self, now_s: float) -> int:
        turn = next(self._turns)
        self._since_s[turn] = now_s
        return turn

    def _next(self, *, although_held: bool = False) -> None:
        if self._holds and not although_held:
            return
        while self._waiting and len(self._since_s) < self._at_a_time:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else who waited is gone
                waiting.set_result(self._begun(waiting.get_loop().time()))
                if self._holds:  # one at each look, for several would keep a call waiting
                    return

    def _look(self) -> None:
        """While any wait: end the turns that have lasted too long, and begin some although others
        ask that none do."""
        if self._waiting:
            loop = asyncio.get_running_loop()
            until_s = loop.time() - _LONGEST_S
            for turn in [t for t, since_s in self._since_s.items() if since_s <= until_s]:
                del self._since_s[turn]
            self._next(although_held=True)
            if self._waiting:
                loop.call_later(_LOOK_S, self._look)


@struct(frozen=True, slots=True)
class Bookmark:
    """Says that a watch has had all changes up to this version."""

    version: int


class Ring(Generic[Change]):
    """The newest changes of one kind, at most `most` of them. Each has a number, 0 for the first
    one ever; `first` is that of the oldest kept, `end` that of the next to come.

    `complete_after`: nothing that changed after this version is lacking.
    """

    def __init__(self, most: int) -> None:
        self.first = 0
        self.end = 0
        self.complete_after = 0
        self._most = most
        self._changes: list[Change] = []  # number n at n modulo `most`

    def add(self, change: Change) -> None:
        at = self.end % self._most
        if self.end - self.first == self._most:
            self.complete_after = self._changes[at].version
            self.first += 1
        self._changes[at : at + 1] = [change]
        self.end += 1

    def restart(self, version: int) -> None:
        """Drop all changes; later ones come after `version`."""
        self.first = self.end = -(-self.end // self._most) * self._most  # slot 0 is next
        self.complete_after = version
        self._changes.clear()

    def changes_from(self, number: int, most: int) -> list[Change]:
        """Return the changes from this number on, at most so many. Raises: IndexError for one that
        is no longer kept."""
        if not self.first <= number < self.end:
            raise IndexError(number)
        numbers = range(number, min(number + most, self.end))
        return [self._changes[each % self._most] for each in numbers]

    def after(self, version: int) -> int:
        """Return the number of the first change after a version."""
        kept = range(self.first, self.end)
        return self.first + bisect_right(
            kept, version, key=lambda number: self._changes[number % self._most].version
        )


class Subscription(Generic[Change]):
    """Changes of one kind after a version, for one reader, kept as its place in the ring.

    They go in turns, which leaves room for calls. A reader that has caught up once may lag by
    `depth` changes. From half of that on its changes go as fast as they can, and calls come more
    slowly; beyond it is cut off. One that resumes may be as far behind as the ring goes back, and
    has turns of another kind, `resuming`. `most`: changes that it takes at a time; where that is
    more than one, `gather_s` says for how long it takes none once it has caught up.
    """

    def __init__(
        self,
        ring: Ring[Change],
        after_version: int,
        depth: int,
        turns: Turns,
        resuming: Turns,
        idle_s: float | None,
        most: int,
        gather_s: Callable[[], float],
    ) -> None:
        self._idle_s = idle_s
        self._most = most
        self._gather_s = gather_s
        self._ring: Ring[Change] = ring
        self._after_version = after_version
        self._next = ring.after(after_version)
        self._has_caught_up = self._next == ring.end
        self._depth = depth
        self._turns = turns
        self._resuming = resuming
        self._wake = asyncio.Event()
        self._end: Exception | None = None
        self._until: int | None = None  # what is published after the end is not read

    @property
    def pending(self) -> int:
        """Changes that the reader has yet to read."""
        end = self._ring.end if self._until is None else self._until
        return max(0, end - self._next)

    @property
    def lag(self) -> int:
        """Return how many changes a caught-up reader has not read, else 0."""
        return self.pending if self._has_caught_up else 0

    def published(self) -> None:
        """Note that the ring has one more change. A reader that is too far behind is cut off, and
        what it has not read is dropped: it resumes from the last change that it has."""
        if self._end is None and self._is_too_far():
            self.end(FellBehind())
            self._until = self._next
        self._wake.set()

    def end(self, why: Exception) -> None:
        """Raise `why` at the reader once it has read what is published."""
        if self._end is None:
            self._end, self._until = why, self._ring.end
        self._wake.set()

    def _choose_turn(self) -> AbstractAsyncContextManager[None]:
        if not self._has_caught_up:
            return self._resuming.hold_turn()
        return nullcontext() if self.lag > self._depth // 2 else self._turns.hold_turn()

    def _is_too_far(self) -> bool:
        return self._next < self._ring.first or self.lag > self._depth

    def _take(self) -> list[Change]:
        """Return the next changes. Raises: FellBehind when they are no longer kept."""
        most = self._most if self._has_caught_up else min(self._most, RESUMING_MOST)
        try:
            changes = self._ring.changes_from(self._next, min(most, self.pending))
        except IndexError:
            raise FellBehind from None
        self._next += len(changes)
        self._has_caught_up |= self._next == self._ring.end
        # What a page out of the log had is known.
        return [change for change in changes if change.version > self._after_version]

    async def __aiter__(self) -> AsyncIterator[Sequence[Change]]:
        """Yield the next changes, at least one; none whenever all there is has been read and
        nothing came for `idle_s`."""
        while True:
            while self.pending:
                async with self._choose_turn():
                    # It may be cut off while it waits.
                    if self.pending and (changes := self._take()):
                        yield changes
                if self._most > 1 and not self.pending:
                    await asyncio.sleep(self._gather_s())
            if self._end is not None:
                raise self._end
            self._wake.clear()
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._wake.wait()
            except TimeoutError:
                if not self.pending and self._end is None:
                    yield ()


class Feed:
    """The newest changes of each kind, and the readers that subscribe to them. All of it runs on
    the event loop's thread.

    `depth`: changes by which a watch may lag. `kept`: changes of each kind for watches that resume.
    """

    def __init__(self, depth: int, kept: int = RING) -> None:
        self._depth = depth
        self._turns = Turns()
        self.resuming = Turns(RESUMING_AT_A_TIME)
        kinds = (JobChange, HostsChange)
        self._rings: dict[type, Ring[Any]] = {kind: Ring(max(kept, depth)) for kind in kinds}
        self._subscriptions: dict[type, set[Subscription[Any]]] = {kind: set() for kind in kinds}
        self._is_closed = False

    def has(self, kind: type[Change], after_version: int) -> bool:
        """Return whether all changes of this kind after a version are kept."""
        return after_version >= self._rings[kind].complete_after

    def subscribe(
        self, kind: type[Change], after_version: int, idle_s: float | None = None, most: int = 1
    ) -> Subscription[Change]:
        """Subscribe to changes of jobs or hosts, so many at a time at most. Raises:
        FellBehind unless it `has` them."""
        if not self.has(kind, after_version):
            raise FellBehind
        ring, turns = self._rings[kind], (self._turns, self.resuming)
        subscription = Subscription(
            ring, after_version, self._depth, *turns, idle_s, most, self._gather_time_s
        )
        if self._is_closed:
            subscription.end(Closed())
        self._subscriptions[kind].add(subscription)
        return subscription

    @property
    def streams(self) -> int:
        """Return the number of open subscriptions. This and `lag` may be asked from any thread."""
        return sum(map(len, self._subscriptions.values()))

    @property
    def lag(self) -> int:
        """Return how many changes the slowest reader that has caught up once has yet to read."""
        return max((each.lag for each in self._all()), default=0)

    def _gather_time_s(self) -> float:
        return min(_MOST_GATHER_S, _GATHER_S * self.streams)

    def unsubscribe(self, subscription: Subscription[Any]) -> None:
        for subscriptions in self._subscriptions.values():
            subscriptions.discard(subscription)

    def publish(self, effect: EventEffect) -> None:
        """Keep a change, and wake the watches of its kind."""
        if isinstance(effect, JobChange | HostsChange):
            self._rings[type(effect)].add(effect)
            for subscription in self._subscriptions[type(effect)]:
                subscription.published()

    def restart(self, version: int) -> None:
        """End every subscription, for changes up to this version can no longer be read and would be
        missed."""
        for ring in self._rings.values():
            ring.restart(version)
        for subscription in self._all():
            subscription.end(FellBehind())

    def close(self) -> None:
        """End every subscription, now and from now on."""
        self._is_closed = True
        for subscription in self._all():
            subscription.end(Closed())

    def _all(self) -> list[Subscription[Any]]:
        return [each for some in tuple(self._subscriptions.values()) for each in tuple(some)]
