"""Snapshots beside the writer, and the end of old events.

A state is a value, so a thread can write it down while the writer goes on with later
ones; it pauses often, for Python runs one thread at a time. Events are dropped only up
to a snapshot that was read back and is the state it was made from.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from muster.structs import struct
from scheduler.core import State
from scheduler.core.model.job import SECOND_NS
from scheduler.eventlog import snapshots
from scheduler.eventlog.recovery import replayed
from scheduler.eventlog.store import Store, StoreError
from scheduler.files.defaults import ENDED_DAYS

DAY_S = 24 * 3600
_PAUSE_S = 0.01  # after a millisecond or two of work: calls hardly notice a snapshot

log = logging.getLogger("muster.store")


@struct(frozen=True, slots=True)
class Retention:
    """When snapshots are saved, and how long old events and ended jobs are kept. A snapshot is
    saved after so many events, or after as many as the state has entries, where those are more.
    `log_s`: events older than this may be dropped; `ended_s`: jobs that ended longer ago may be.
    None keeps all."""

    snapshot_events: int = 10_000
    log_s: int | None = None
    ended_s: int | None = ENDED_DAYS * DAY_S


class Snapshotter:
    """Saves a snapshot when enough has happened. `saved`: version of the newest one."""

    def __init__(self, store: Store, disk: Executor, retention: Retention, saved: int) -> None:
        self._store = store
        self._disk = disk
        self._thread = ThreadPoolExecutor(1, "muster-snapshot")
        self._retention = retention
        self._saved = saved
        self._running: asyncio.Task[None] | None = None
        self._is_ending = False

    def offer(self, state: State, last_ns: int) -> None:
        """Begin a snapshot of `state` if one is due and none is under way."""
        self._is_ending = False  # of several servers, one may lead again
        if self._is_due(state) and (self._running is None or self._running.done()):
            self._running = asyncio.create_task(self._keep(state, last_ns))

    def _is_due(self, state: State) -> bool:
        """As often as its entries: else a long queue would be written down again and again,
        for little that is new. Cost: a start, which reads an event in the time of two entries,
        takes three times as long at most."""
        since = state.version - self._saved
        return since >= self._retention.snapshot_events and since >= snapshots.entries(state)

    async def finish(self, state: State, last_ns: int) -> None:
        """Wait for what is under way, then save the last state, so that a start is quick."""
        self._is_ending = True
        if self._running is not None:
            await self._running
        if state.version > self._saved:
            await self._keep(state, last_ns)

    def abandon(self) -> None:
        """Cancel the snapshot under way."""
        self._is_ending = True
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _rest(self) -> None:
        if not self._is_ending:
            time.sleep(_PAUSE_S)

    async def _keep(self, state: State, last_ns: int) -> None:
        """Save `state`, then drop what is old. A store that refuses costs no service: the
        log alone is the truth, and the writer meets the same disk."""
        try:
            body = await _in(self._thread, snapshots.encode, state, last_ns, self._rest)
            await _in(self._disk, self._store.save_snapshot, state.version, body)
            self._saved = state.version
            await self._compact(last_ns)
            await self._drop_ended(last_ns)
        except StoreError as error:
            log.warning("no snapshot of version %d: %s", state.version, error)
        except Exception:  # a bug in snapshots costs no service either
            log.exception("no snapshot of version %d", state.version)

    async def _compact(self, now_ns: int) -> None:
        if self._retention.log_s is None:
            return
        oldest_ns = now_ns - self._retention.log_s * SECOND_NS
        to_version = await _in(self._thread, droppable, self._store, oldest_ns, self._rest)
        if to_version:
            dropped = await _in(self._disk, self._store.compact, to_version)
            log.info("dropped %d events, up to version %d", dropped, to_version)

    async def _drop_ended(self, now_ns: int) -> None:
        if self._retention.ended_s is None:
            return
        oldest_ns = now_ns - self._retention.ended_s * SECOND_NS
        if dropped := await _in(self._disk, self._store.drop_ended, oldest_ns):
            log.info("dropped %d jobs that ended long ago", dropped)


async def _in(thread: Executor, call: Any, *arguments: Any) -> Any:
    """Return the result of `call`, run in `thread`, the only one that writes to the store."""
    return await asyncio.get_running_loop().run_in_executor(thread, call, *arguments)


def droppable(store: Store, oldest_ns: int, pause: snapshots.Pause = lambda: None) -> int:
    """Return the newest sound snapshot whose events are all before `oldest_ns`; 0 when there is
    none.

    Raises: StoreError.
    """
    before = store.version_at(oldest_ns) - 1
    for version, body in store.snapshots(before):
        if version < store.first_version():
            return 0
        if is_sound(version, body, pause):
            return version
    return 0


def is_sound(version: int, body: bytes, pause: snapshots.Pause = lambda: None) -> bool:
    """Return whether a server can start from this snapshot."""
    try:
        state, last_ns = snapshots.decode(body, pause)
    except snapshots.BadSnapshot:
        return False
    return state.version == version and snapshots.encode(state, last_ns, pause) == body


def compacted(store: Store, oldest_ns: int) -> int:
    """Drop old events on a store that no server writes to, and return how many were dropped.

    Raises: StoreError.
    """
    recovered = replayed(store)
    if recovered.state.version > recovered.saved:
        store.save_snapshot(
            recovered.state.version, snapshots.encode(recovered.state, recovered.last_ns)
        )
    to_version = droppable(store, oldest_ns)
    return store.compact(to_version) if to_version else 0
