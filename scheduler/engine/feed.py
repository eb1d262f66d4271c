"""Changes, handed to everyone who watches, in order and without a gap."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import count
from typing import Any, Generic, TypeVar

from scheduler.core.fold.effects import EventEffect, HostsChange, JobChange, WindowChange

Change = TypeVar("Change", JobChange, HostsChange, WindowChange)

AT_A_TIME = 16  # watches to which a change is on its way
_LONGEST_S = 0.05  # for which one that is not taken keeps the others waiting


class FellBehind(Exception):
    """The watcher did not keep up and must resume from the last version it saw."""


class Closed(Exception):
    """The server stops; resume when it is back."""


class Turns:
    """Which watches are sent a change: so many at a time, in the order in which they asked.

    gRPC takes up one call after the other, each behind all that is under way by then. With
    changes on their way to 200 watches those are some 80 calls a second. A watch whose
    reader does not read gives up its turn after a moment.
    """

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._at_a_time = at_a_time
        self._turns = count()
        self._since_s: dict[int, float] = {}  # the turns of now, the first first
        self._waiting: deque[asyncio.Future[int]] = deque()

    async def take(self) -> int:
        """A turn, to be given back with `done`."""
        loop = asyncio.get_running_loop()
        if len(self._since_s) < self._at_a_time and not self._waiting:
            return self._begun(loop.time())
        turn: asyncio.Future[int] = loop.create_future()
        if not self._waiting:
            loop.call_later(_LONGEST_S, self._look)
        self._waiting.append(turn)
        return await turn

    def done(self, turn: int) -> None:
        self._since_s.pop(turn, None)
        self._next()

    def _begun(self, now_s: float) -> int:
        turn = next(self._turns)
        self._since_s[turn] = now_s
        return turn

    def _next(self) -> None:
        while self._waiting and len(self._since_s) < self._at_a_time:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else who waited is gone
                waiting.set_result(self._begun(waiting.get_loop().time()))

    def _look(self) -> None:
        """While any wait: end the turns that have lasted too long."""
        if self._waiting:
            loop = asyncio.get_running_loop()
            until_s = loop.time() - _LONGEST_S
            for turn in [t for t, since_s in self._since_s.items() if since_s <= until_s]:
                del self._since_s[turn]
            self._next()
            if self._waiting:
                loop.call_later(_LONGEST_S, self._look)


class Subscription(Generic[Change]):
    """Changes of one kind published since this was made, for one reader.

    They go in turns, which leaves room for calls, until half of what may be pending is. Then
    they go as fast as they can, and calls come more slowly.
    """

    def __init__(self, kind: type[Change], depth: int, turns: Turns) -> None:
        self.kind: type[Change] = kind
        self._depth = depth
        self._turns = turns
        self._pending: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._end: Exception | None = None

    @property
    def pending(self) -> int:
        """Changes that the reader has yet to read."""
        return len(self._pending)

    def offer(self, change: Change) -> None:
        """Queue one change; a reader that is too far behind is cut off. What it has not
        read is dropped, for it may never read: it resumes from the last that it has."""
        if len(self._pending) >= self._depth:
            self.end(FellBehind())
            self._pending.clear()
        if self._end is None:
            self._pending.append(change)
            self._wake.set()

    def end(self, why: Exception) -> None:
        """Raise `why` at the reader once it has read what is queued."""
        self._end = self._end or why
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            while self._pending:
                if len(self._pending) > self._depth // 2:
                    yield self._pending.popleft()
                    continue
                turn = await self._turns.take()
                try:
                    if self._pending:  # it is not cut off meanwhile
                        yield self._pending.popleft()
                finally:
                    self._turns.done(turn)
            if self._end is not None:
                raise self._end
            self._wake.clear()
            await self._wake.wait()


class Feed:
    """The subscriptions. All of it runs on the event loop's thread."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._turns = Turns()
        self._subscriptions: set[Subscription[Any]] = set()
        self._is_closed = False

    def subscribe(self, kind: type[Change]) -> Subscription[Change]:
        """Changes of jobs, of hosts, or of windows."""
        subscription = Subscription(kind, self._depth, self._turns)
        if self._is_closed:
            subscription.end(Closed())
        self._subscriptions.add(subscription)
        return subscription

    @property
    def streams(self) -> int:
        """Subscriptions that are open. This and `lag` may be asked from any thread."""
        return len(self._subscriptions)

    @property
    def lag(self) -> int:
        """Changes that the slowest reader has yet to read."""
        return max((one.pending for one in tuple(self._subscriptions)), default=0)

    def unsubscribe(self, subscription: Subscription[Any]) -> None:
        self._subscriptions.discard(subscription)

    def publish(self, effect: EventEffect) -> None:
        """Offer it to those who watch effects of its kind."""
        for subscription in self._subscriptions:
            if isinstance(effect, subscription.kind):
                subscription.offer(effect)

    def cut_off(self) -> None:
        """End every subscription of now: they would miss changes."""
        for subscription in self._subscriptions:
            subscription.end(FellBehind())

    def close(self) -> None:
        """End every subscription, now and from now on."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.end(Closed())
