"""Changes, handed to everyone who watches, in order and without a gap."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

from scheduler.changes import Change
from scheduler.hostchanges import HostsChange
from scheduler.windowchanges import WindowChange

Told = TypeVar("Told", Change, HostsChange, WindowChange)


class FellBehind(Exception):
    """The watcher did not keep up and must resume from the last version it saw."""


class Closed(Exception):
    """The server stops; resume when it is back."""


class Subscription(Generic[Told]):
    """Changes of one kind published since this was made, for one reader."""

    def __init__(self, kind: type[Told], depth: int) -> None:
        self.kind: type[Told] = kind
        self._depth = depth
        self._pending: deque[Told] = deque()
        self._wake = asyncio.Event()
        self._end: Exception | None = None

    @property
    def pending(self) -> int:
        """Changes that the reader has yet to read."""
        return len(self._pending)

    def offer(self, change: Told) -> None:
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

    async def __aiter__(self) -> AsyncIterator[Told]:
        while True:
            while self._pending:
                yield self._pending.popleft()
            if self._end is not None:
                raise self._end
            self._wake.clear()
            await self._wake.wait()


class Feed:
    """The subscriptions. All of it runs on the event loop's thread."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._subscriptions: set[Subscription[Any]] = set()
        self._is_closed = False

    def subscribe(self, kind: type[Told]) -> Subscription[Told]:
        """Changes of jobs, of hosts, or of windows."""
        subscription = Subscription(kind, self._depth)
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

    def publish(self, change: Change | HostsChange | WindowChange) -> None:
        for subscription in self._subscriptions:
            if isinstance(change, subscription.kind):
                subscription.offer(change)

    def cut_off(self) -> None:
        """End every subscription of now: they would miss changes."""
        for subscription in self._subscriptions:
            subscription.end(FellBehind())

    def close(self) -> None:
        """End every subscription, now and from now on."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.end(Closed())
