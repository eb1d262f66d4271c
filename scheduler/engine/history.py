"""Changes out of the log, for watches that resume further back than the feed keeps.

The log has events, and a change shows its job as it was then, so somebody must fold all events
since the last snapshot before it. Watches that resume at nearly the same place share that: a pass
goes along the log once, keeps what it read last, and goes on when the first of its readers needs
more. Passes take turns in one thread of their own, a page at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import islice

from scheduler.core import State
from scheduler.core.fold.apply import apply, effects
from scheduler.core.fold.effects import (
    EventEffect,
    HostsChange,
    JobChange,
)
from scheduler.core.model.events import Event
from scheduler.engine.feed import Closed, FellBehind
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store
from scheduler.identity import caller

AnyChange = JobChange | HostsChange

PAGE = 250  # events read at once, some 15 ms
KEPT = 20_000  # changes that a pass keeps for those of its readers who are behind the first
AHEAD = 5_000  # versions that a pass would have to read on for one more reader
PASSES, PASSES_PER_CALLER = 8, 4


class TooManyPasses(Exception):
    """The log is already read at as many places as are allowed; the message says by whom."""


class Pass:
    """One reading of the log from a snapshot on, to the end that it had then."""

    def __init__(self, store: Store, thread: ThreadPoolExecutor, name: str) -> None:
        """`name`: the caller for whom it is made."""
        self.name = name
        self.readers = 0
        self.complete_after = 0  # of what is kept nothing after this version is lacking
        self.version = 0  # read so far
        self._store = store
        self._thread = thread
        self._changes: list[AnyChange] = []
        self._first = 0  # the number of the oldest that is kept
        self._states: Iterator[tuple[int, tuple[EventEffect, ...]]] = iter(())
        self._reading: asyncio.Future[None] | None = None
        self._opened_for = 0  # it reads on to there in any case
        self._is_over = False
        self._is_closed = False

    async def open(self, after_version: int) -> None:
        """Begin at the last snapshot before. Raises: Compacted, StoreError."""
        self._opened_for = after_version
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open, after_version)

    def covers(self, after_version: int) -> bool:
        """Return whether a reader that wants what is after a version can read along."""
        ahead = max(self.version, self._opened_for) + AHEAD
        to_version = self.version - 1 if self._is_over else ahead
        return self.complete_after <= after_version <= to_version

    async def changes(
        self, after_version: int, to_version: int, most: int = 1
    ) -> AsyncGenerator[list[AnyChange], None]:
        """Yield the changes after one version, up to another or to the end of the pass, of those
        read already up to `most` at a time.

        Raises: FellBehind for a reader too far behind the first, Closed, StoreError.
        """
        while self.version <= after_version and not self._is_over:
            await self._read_on()
        if self.complete_after > after_version:
            raise FellBehind
        skipped = (at for at, change in enumerate(self._changes) if change.version > after_version)
        number = self._first + next(skipped, len(self._changes))
        while some := await self._changes_from(number, most):
            due = [change for change in some if change.version <= to_version]
            if due:
                yield due
            if len(due) < len(some):
                return
            number += len(due)

    def end(self) -> None:
        """End readers with Closed."""
        self._is_closed = True

    async def _changes_from(self, number: int, most: int) -> list[AnyChange]:
        """Return the changes from this number on that are read, one at least; none after the
        last."""
        while number >= self._first + len(self._changes) and not self._is_over:
            await self._read_on()
        if self._is_closed:
            raise Closed
        if number < self._first:
            raise FellBehind
        at = number - self._first
        return self._changes[at : at + most]

    async def _read_on(self) -> None:
        """Read one more page, for all who wait for it."""
        if self._is_closed:
            raise Closed
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._has_read)
        reading = self._reading
        await asyncio.wait({reading})
        if self._is_closed:
            raise Closed
        reading.result()

    def _has_read(self, reading: asyncio.Future[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # who waits for it has it

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        page = await loop.run_in_executor(self._thread, self._page)
        for version, events in page:
            self.version = version
            self._changes += (each for each in events if isinstance(each, AnyChange))
        if (surplus := len(self._changes) - KEPT) > 0:
            self.complete_after = self._changes[surplus - 1].version
            self._first += surplus
            del self._changes[:surplus]
        self._is_over = not page

    def _open(self, after_version: int) -> None:
        if after_version + 1 < (first := self._store.first_version()):
            raise Compacted(first)
        base = newest_snapshot(self._store, after_version).state
        self.complete_after = self.version = base.version
        self._states = history(base, self._store.read(base.version))

    def _page(self) -> list[tuple[int, tuple[EventEffect, ...]]]:
        return list(islice(self._states, PAGE))


class History:
    """The passes over the log that are under way. `most_per_caller`: passes that one caller makes
    necessary."""

    def __init__(
        self, store: Store, most: int = PASSES, most_per_caller: int = PASSES_PER_CALLER
    ) -> None:
        self._store = store
        self._most = most
        self._most_per_caller = most_per_caller
        self._thread = ThreadPoolExecutor(1, "muster-history")
        self._passes: list[Pass] = []
        self._opening = asyncio.Lock()  # of who comes meanwhile, most can read along
        self._is_closed = False

    @property
    def passes(self) -> int:
        return len(self._passes)

    @asynccontextmanager
    async def reading(self, after_version: int) -> AsyncIterator[Pass]:
        """Return a context with a pass that has all changes after a version, perhaps shared with
        others.

        Raises: Compacted when they are no longer kept, TooManyPasses, Closed, StoreError.
        """
        shared = await self._join(after_version)
        try:
            yield shared
        finally:
            shared.readers -= 1
            if not shared.readers:
                self._passes.remove(shared)

    def close(self) -> None:
        """End readers with Closed."""
        self._is_closed = True
        for each in self._passes:
            each.end()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _join(self, after_version: int) -> Pass:
        async with self._opening:
            if self._is_closed:
                raise Closed
            shared = next((each for each in self._passes if each.covers(after_version)), None)
            if shared is None:
                shared = Pass(self._store, self._thread, self._admitted())
                try:
                    await shared.open(after_version)
                except asyncio.CancelledError:
                    if self._is_closed:  # the thread takes nothing more
                        raise Closed from None
                    raise
                self._passes.append(shared)
            shared.readers += 1
            return shared

    def _admitted(self) -> str:
        """The caller of this task. Raises: TooManyPasses."""
        name = caller().name
        if len(self._passes) >= self._most:
            raise TooManyPasses(
                f"watches resume at {self._most} places of the log; try again later"
            )
        if Counter(each.name for each in self._passes)[name] >= self._most_per_caller:
            most = self._most_per_caller
            raise TooManyPasses(
                f"{name} resumes watches at {most} places of the log; try again later"
            )
        return name


def history(
    state: State, events: Iterable[tuple[int, Event]]
) -> Iterator[tuple[int, tuple[EventEffect, ...]]]:
    """Yield the version and the effects of each event after `state`.

    Cost: some 50 us an event.
    """
    for _, event in events:
        after = apply(state, event)
        yield after.version, effects(state, event, after)
        state = after
