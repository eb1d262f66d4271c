"""One of several servers that share a store: it follows, leads when nobody does, follows again.

    follow:  poll the log -> apply -> answer reads; ask for the lead five times a second
    lead:    raise the term -> catch up -> write, and be heard of four times a lease
    lost:    drop every connection -> wait -> follow on, from the state that is there

Whatever the database does not answer within a lease is cut off, so that no thread waits
for ever. A server that loses the lead loses nothing else: its state is a prefix of the
log, its watchers stay, and an append of which it does not know comes back with the poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from muster.structs import struct
from scheduler.core import Tenants
from scheduler.engine.writer import STORE_SILENT_S, Writer
from scheduler.eventlog.recovery import Recovered, replayed, settle
from scheduler.eventlog.store import POLL_EVENTS, Compacted, Deposed, SharedStore, Unreachable

POLL_S = 0.2  # how long a follower waits for news, and between asking for the lead
RETRY_S = 0.5  # after the database was not to be reached

log = logging.getLogger("muster.replica")

Found = TypeVar("Found")


@struct(frozen=True, slots=True)
class LeaderCandidate:
    """Settings of a server that may take the lead. `address`: where others find it. `lease_s`: a
    leader that is not heard of for so long is replaced. `fabric_spec`, `tenants` and `has_callers`
    as for recovery.settle."""

    address: str
    lease_s: float
    clock: Callable[[], int]
    fabric_spec: Mapping[str, Any] | None
    tenants: Tenants | None
    has_callers: bool = False


class Replica:
    """Keeps `writer` in step with the store. `is_ready`: whether it has read a log that is not
    empty to its end, and knows who leads. `confirmed_s`: the time, on the event loop's clock, up to
    which it knows that its state is complete; on a leader, when the store last confirmed its
    lead."""

    def __init__(self, store: SharedStore, writer: Writer, candidate: LeaderCandidate) -> None:
        self.is_ready = asyncio.Event()
        self._store = store
        self._writer = writer
        self._candidate = candidate
        self._stop = asyncio.Event()
        self._lets_go = ""  # why another server should lead
        self._thread = ThreadPoolExecutor(1, "muster-session")
        self._asker = ThreadPoolExecutor(1, "muster-newest")
        self._polled_s = float("-inf")
        self.confirmed_s = asyncio.get_running_loop().time()
        self._next_answer: asyncio.Task[int] | None = None
        self._cut_off: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Follow and lead until `stop`. Raises: StoreError when the log is no use."""
        try:
            while not self._stop.is_set():
                try:
                    await self._poll_log()
                except (Unreachable, Deposed) as error:
                    await self._stop_leading(error)
        finally:
            await self._timed(self._store.resign)
            self._writer.close()
            self._thread.shutdown()
            self._asker.shutdown()

    def stop(self) -> None:
        """Finish what waits, free the lead, and return from `run`."""
        self._stop.set()
        self._writer.stop()

    def offer_lead(self, reason: str) -> None:
        """Let another server lead, if one asks for the lead within half a second."""
        self._lets_go = reason

    async def newest_version(self) -> int:
        """Return the end of the log, read after this call began, so that it includes all that was
        acknowledged by then. Raises: StoreError, at once while the store is known to be out of
        reach."""
        if self._next_answer is None or self._next_answer.done():
            self._next_answer = asyncio.create_task(self._ask_soon())
            self._next_answer.add_done_callback(_note_outcome)
        answer, cut_off = self._next_answer, self._cut_off
        either: set[asyncio.Future[Any]] = {answer, cut_off}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Unreachable("this server does not reach the store")
        return answer.result()

    async def _ask_soon(self) -> int:
        """One question for all who come before it is put."""
        await asyncio.sleep(0)
        self._next_answer = None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._asker, self._store.last_version)

    async def _poll_log(self) -> None:
        """One look at the log, and at the lead if it is time."""
        await self._catch_up(POLL_S if self.is_ready.is_set() else 0.0)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._polled_s < POLL_S or self._stop.is_set():
            return
        self._polled_s = now_s
        candidate = self._candidate
        term = await self._timed(self._store.try_lead, candidate.address, candidate.lease_s)
        if term is not None:
            return await self._lead(term)
        self._writer.leader = (await self._timed(self._store.leader)).address
        if self._writer.state.version:
            self.is_ready.set()
        return None

    async def _catch_up(self, wait_s: float = 0.0) -> None:
        """Apply what others wrote, up to the end of the log as it was when the last page was asked
        for: by that time goes the age of the state, for nothing written later need be in it."""
        while True:
            began_s = asyncio.get_running_loop().time()
            version = self._writer.state.version
            try:
                polled = await self._timed(self._store.poll, version, wait_s)
            except Compacted:
                self._writer.restart_from(await self._timed(self._replay))
                continue
            self._writer.instruments.beats.beat("store", STORE_SILENT_S)
            if self._cut_off.done():
                self._cut_off = asyncio.get_running_loop().create_future()
            if polled:
                self._writer.follow(polled)
            if len(polled) < POLL_EVENTS:
                self.confirmed_s = began_s
                return
            wait_s = 0.0

    def _replay(self) -> Recovered:
        return replayed(self._store)

    async def _lead(self, term: int) -> None:
        """Lead until the lead is lost or the server stops."""
        await self._catch_up()
        await self._timed(self._settle, term)
        await self._catch_up()
        self.is_ready.set()
        version = self._writer.state.version
        log.warning("leads in term %d, from version %d on", term, version)
        self._writer.leader = ""
        writing = asyncio.create_task(self._writer.lead(term))
        try:
            await self._renew_lease(term, writing)
        finally:
            self._writer.give_up()
            if not writing.done():
                self._store.cut()
            await asyncio.wait({writing})
            error = writing.exception()
        if error is not None:
            raise error

    async def _renew_lease(self, term: int, writing: asyncio.Task[None]) -> None:
        self._lets_go = ""  # what was said of an earlier term
        while not writing.done():
            await asyncio.wait({writing}, timeout=self._candidate.lease_s / 4)
            reason, self._lets_go = self._lets_go, ""
            if reason:
                raise Unreachable(reason)
            if not writing.done():
                began_s = asyncio.get_running_loop().time()
                await self._timed(self._store.keep_lead, term)
                self.confirmed_s = began_s

    def _settle(self, term: int) -> None:
        at_end = Recovered(self._writer.state, self._writer.now_ns())
        candidate = self._candidate
        now_ns = self._writer.now_ns()
        settle(
            self._store,
            at_end,
            candidate.fabric_spec,
            now_ns,
            candidate.tenants,
            term,
            has_callers=candidate.has_callers,
        )

    async def _stop_leading(self, error: Exception) -> None:
        log.warning("%s; follows again", error)
        if not self._cut_off.done():
            self._cut_off.set_result(None)
        self._store.cut()
        await self._timed(self._store.resign)
        self._polled_s = float("-inf")
        if not isinstance(error, Deposed):
            await _either(self._stop, RETRY_S)

    async def _timed(self, call: Callable[..., Found], *arguments: Any) -> Found:
        """`call` in the session's thread; cut off after a lease."""
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, call, *arguments)
        done, _ = await asyncio.wait({running}, timeout=self._candidate.lease_s + POLL_S)
        if not done:
            self._store.cut()
        return await running


def _note_outcome(answer: asyncio.Task[int]) -> None:
    """Take an error that nobody waits for any longer, so that it is not logged."""
    if not answer.cancelled():
        answer.exception()


async def _either(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for `event`, but not for longer."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting}, timeout=timeout_s)
    waiting.cancel()
