"""The single writer: everything that changes the state goes through here, in order.

Commands and finished plans wait in one queue. The writer takes what has gathered,
checks each entry on the state that those before it leave, appends all their events
in one transaction, and only then makes the new state visible, answers and publishes:

    append (durable) -> apply -> acknowledge -> publish

A second loop decides beside it (planning).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from time import perf_counter_ns

from scheduler.core import Plan, Rejected, SchedulingOptions, State, admit, decide
from scheduler.core.capacity.placer import make_placer
from scheduler.core.model.commands import Command, MoveHost, ReportHost
from scheduler.core.model.events import Event
from scheduler.engine.authorisation import unauthorised
from scheduler.engine.feed import RESUMING_MOST, Bookmark, Change, Feed
from scheduler.engine.history import History
from scheduler.engine.log_clock import LogClock
from scheduler.engine.mirror import StateMirror
from scheduler.engine.planning.executor import PlanExecutor
from scheduler.engine.planning.loop import PlanningLoop
from scheduler.engine.proposal import Answer, NotLeading, Proposal, WriterStopped, followed
from scheduler.engine.snapshotter import Retention, Snapshotter
from scheduler.eventlog.ended_jobs import EndedJobs, ended_by
from scheduler.eventlog.recovery import Recovered
from scheduler.eventlog.store import NotWritten, SharedStore, Store, StoreError
from scheduler.identity import actor, caller
from scheduler.observe.instruments import AppliedEvent, Instruments, Stage
from scheduler.observe.supervision import Tasks

BATCH = 256  # entries of one append at most
_GATHER_S = 0.015  # how long an append waits at most for those who are about to arrive
# Turns of the event loop that bring somebody: gRPC takes six for each call, and accepts one
# after the other.
_TURNS, _TURNS_BUSY = 2, 12
STORE_SILENT_S = 20.0  # without an answer, after which the store does not work
_STORE_BEAT_S = 5.0
_MANY = 4  # entries that arrived during one append

log = logging.getLogger("muster.writer")

Admit = Callable[[State, Command, int], tuple[Event, ...] | Rejected]


class Writer:
    """Owns the state, and the log while this server leads. A server alone leads from `run` to
    `stop`; one of several follows what others write until it has to `lead`.

    `leader`: where the server listens that leads instead, "" when that is not known. `ended`: jobs
    that ended, also jobs that the state has no more. `admission` checks commands: the core's own
    rule, or one that is stricter. `clock`, `measure`: as for LogClock.
    """

    def __init__(
        self,
        store: Store,
        recovered: Recovered,
        clock: Callable[[], int],
        options: SchedulingOptions,
        feed: Feed,
        retention: Retention,
        instruments: Instruments | None = None,
        long_decision_s: float | None = None,
        admission: Admit = admit,
        history: History | None = None,
        measure: Callable[[], int] | None = None,
    ) -> None:
        self.options = options
        self.feed = feed
        self.instruments = instruments or Instruments()
        feed.restart(recovered.state.version)
        self.history = history or History(store)
        self.ended = EndedJobs(store)
        self._admit = admission
        self._store = store
        self._shared = store if isinstance(store, SharedStore) else None
        self._state = recovered.state
        self._time = LogClock(clock, measure, recovered.last_ns)
        self._last_ns = recovered.last_ns
        _ = self._state.arrivals  # as in `_advance`
        self._queue: deque[Proposal] = deque()
        self._arrived = asyncio.Event()
        self._advanced = asyncio.Event()
        self._term: int | None = None  # while it leads
        self._lead_moved = asyncio.Event()
        self._is_stopping = False
        self.leader = ""
        self._gathered = 0  # entries of the last batch
        self._is_urgent = False  # whether any waits that nothing should hold up
        self._disk = ThreadPoolExecutor(1, "muster-disk")
        self._executor = PlanExecutor(self._plan, options, self.instruments.solved, long_decision_s)
        self._mirrors: list[StateMirror] = []
        self.add_mirror(self._executor.mirror)
        self._planning = PlanningLoop(
            self._executor,
            options,
            self.instruments,
            lambda: self._state,
            self.now_ns,
            self._enter,
            lambda: self.is_busy,
            feed.resuming.slow_turns,
        )
        self._snapshotter = Snapshotter(store, self._disk, retention, recovered.saved)

    def add_mirror(self, mirror: StateMirror) -> None:
        """Give a mirror the present state and all later ones, as soon as they are durable."""
        mirror.forget(self._state)
        self._mirrors.append(mirror)

    @property
    def store(self) -> Store:
        """The log, to be read in another thread."""
        return self._store

    @property
    def state(self) -> State:
        """The newest durable state."""
        return self._state

    @property
    def is_leading(self) -> bool:
        """Whether this server leads, and takes commands."""
        return self._term is not None

    def check_leading(self) -> None:
        """Raises: NotLeading where another server leads."""
        if not self.is_leading:
            raise NotLeading(self.leader)

    @property
    def term(self) -> int | None:
        """The term in which this server leads, or None on a follower."""
        return self._term

    async def lead_change(self, term: int | None) -> None:
        """Return once this server leads in another term than this, or no longer leads."""
        while self._term == term:
            await self._lead_moved.wait()

    def _set_term(self, term: int | None) -> None:
        self._term = term
        self._lead_moved.set()
        self._lead_moved = asyncio.Event()

    @property
    def last_ns(self) -> int:
        """The time of the log's last event."""
        return self._last_ns

    @property
    def waiting(self) -> int:
        """Commands and plans that wait for the writer."""
        return len(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether many commands come at once."""
        return self._gathered > _MANY

    def now_ns(self) -> int:
        """Return the time of the next event, in ns since 1970."""
        return self._time.now_ns()

    async def submit(self, command: Command) -> State | Rejected:
        """Check a command, and that the caller of this task may give it; make it durable, and
        return the state right after it.

        Raises: WriterStopped when the server is stopping, NotLeading, StoreError when the disk
        refuses.
        """
        self._is_urgent |= isinstance(command, ReportHost | MoveHost)
        who = caller()

        def check(state: State, now_ns: int) -> tuple[Event, ...] | Rejected:
            refusal = unauthorised(state, command, who)
            return self._admit(state, command, now_ns) if refusal is None else refusal

        answer, after = await self._enter(Stage.ADMIT, check)
        return answer if isinstance(answer, Rejected) else after

    async def carry_out(self, check: Callable[[State, int], Answer]) -> Answer:
        """Make the events durable that `check` returns on the newest state. Raises: as `submit`."""
        answer, _ = await self._enter(Stage.COMMIT, check)
        return answer

    async def watch(
        self, kind: type[Change], after_version: int, idle_s: float | None = None
    ) -> AsyncGenerator[Change | Bookmark, None]:
        """Yield every change of jobs, hosts or windows after `after_version`, without end, and a
        bookmark when there was none for `idle_s`. Raises: as `watch_batches`."""
        async with aclosing(self.watch_batches(kind, after_version, 1, idle_s)) as batches:
            async for batch in batches:
                yield batch if isinstance(batch, Bookmark) else batch[0]

    async def watch_batches(
        self, kind: type[Change], after_version: int, most: int, idle_s: float | None = None
    ) -> AsyncGenerator[Sequence[Change] | Bookmark, None]:
        """Yield as `watch` does, up to `most` changes at a time where several have gathered.

        Changes that the feed no longer keeps come out of the log first.

        Raises: Compacted when they are no longer kept; FellBehind, Closed (see feed); TooManyPasses
        (see history).
        """
        some = min(most, RESUMING_MOST)
        while not self.feed.has(kind, after_version):
            to_version = self._state.version
            async with (
                self.history.reading(after_version) as shared,
                aclosing(shared.changes(after_version, to_version, some)) as recorded,
            ):
                async for changes in recorded:
                    if of_kind := [change for change in changes if isinstance(change, kind)]:
                        async with self.feed.resuming.hold_turn():
                            yield of_kind
                after_version = min(shared.version, to_version)
        subscription = self.feed.subscribe(kind, after_version, idle_s, most)
        try:
            async for batch in subscription:
                # A state is published in the moment in which it becomes the newest.
                yield batch or Bookmark(self._state.version)
        finally:
            self.feed.unsubscribe(subscription)

    async def run(self) -> None:
        """Lead until `stop`, alone. Raises: StoreError when the disk refuses."""
        try:
            await self._write_and_decide(0)
        finally:
            self.close()

    async def lead(self, term: int) -> None:
        """Lead until `stop` or `give_up`, among others.

        Raises: StoreError when the store refuses; Deposed when others lead by now.
        """
        try:
            await self._write_and_decide(term)
        finally:
            self._refuse_waiting()

    def give_up(self) -> None:
        """Stop leading; `lead` returns without writing what waits."""
        self._set_term(None)
        self._arrived.set()

    def follow(self, recorded: Sequence[tuple[int, Event]]) -> None:
        """Take over events that the leader wrote.

        Cost: some 50 us an event, on the event loop's thread.
        """
        steps = followed(self._state, tuple(event for _, event in recorded), "")
        self._advance(steps[-1].after, max(self._last_ns, steps[-1].event.time_ns))
        self._notify(steps)
        self.instruments.record_events(steps)
        self._publish(steps)

    def restart_from(self, recovered: Recovered) -> None:
        """Jump to a later state, where the events between are no longer kept. Watchers
        must resume, for they would miss some."""
        self.feed.restart(recovered.state.version)
        for mirror in self._mirrors:
            mirror.forget(recovered.state)
        self._advance(recovered.state, recovered.last_ns)

    async def wait_for_version(self, version: int) -> None:
        """Return once the state has this version."""
        while self._state.version < version:
            await self._advanced.wait()

    def close(self) -> None:
        """Refuse all commands, for good."""
        self._is_stopping = True
        self._refuse_waiting()
        self.feed.close()
        self.history.close()
        self._snapshotter.close()
        self._disk.shutdown()
        self._executor.close()
        self._planning.close()

    async def _write_and_decide(self, term: int) -> None:
        self._set_term(term)
        tasks = Tasks(self.instruments.beats)
        tasks.keep("planner", self._planning.run)
        tasks.keep("store", self._watch_store)
        try:
            while self.is_leading and not (self._is_stopping and not self._queue):
                await self._arrived.wait()
                self._arrived.clear()
                while self._queue and self.is_leading:
                    await self._gather()
                    await self._write(self._batch())
            if self.is_leading:
                await self._snapshotter.finish(self._state, self._last_ns)
        finally:
            self._set_term(None)
            await tasks.close()  # none of them may ask for threads that close() ends
            self.instruments.beats.rest("planner")
            self._snapshotter.abandon()

    async def _watch_store(self) -> None:
        """Ask the store something now and then, so that one that hangs is told of."""
        while True:
            with suppress(StoreError):
                await self._in_disk_thread(self._store.last_version)
            await asyncio.sleep(_STORE_BEAT_S)

    def _refuse_waiting(self) -> None:
        """Refuse what waits."""
        for entry in self._batch(len(self._queue)):
            entry.resolve(WriterStopped() if self._is_stopping else NotLeading(self.leader))

    def _advance(self, state: State, last_ns: int) -> None:
        _ = state.arrivals  # which later states keep, so that no list has to sort all jobs
        self._state, self._last_ns = state, last_ns
        self._time.advance(last_ns)
        self._advanced.set()
        self._advanced = asyncio.Event()

    def stop(self) -> None:
        """Accept nothing more; `run` returns once what waits is written."""
        self._is_stopping = True
        self._arrived.set()

    def _notify(self, steps: Sequence[AppliedEvent]) -> None:
        events = [step.event for step in steps]
        for mirror in self._mirrors:
            mirror.follow(events, steps[-1].after)

    async def _enter(
        self, stage: Stage, check: Callable[[State, int], Answer]
    ) -> tuple[Answer, State]:
        if self._is_stopping:
            raise WriterStopped
        self.check_leading()
        answer: asyncio.Future[tuple[Answer, State]] = asyncio.get_running_loop().create_future()
        arrived_ns = perf_counter_ns()
        self._is_urgent |= stage is Stage.COMMIT
        self._queue.append(Proposal(stage, check, answer, actor(), arrived_ns))
        self._arrived.set()
        with self.feed.resuming.slow_turns():
            return await answer

    async def _gather(self) -> None:
        """Let those come along who are about to arrive: some turns of the loop bring some while
        many ask, and nobody when one does. What concerns hosts or gangs does not wait."""
        loop, seen = asyncio.get_running_loop(), 0
        until_s = loop.time() + _GATHER_S
        turns = _TURNS_BUSY if self.is_busy else _TURNS
        while seen < len(self._queue) < BATCH and loop.time() < until_s:
            seen = len(self._queue)
            for _ in range(turns):
                if self._is_urgent:
                    return
                await asyncio.sleep(0)

    def _batch(self, most: int = BATCH) -> list[Proposal]:
        self._is_urgent = False
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    async def _write(self, batch: list[Proposal]) -> None:
        """Check entries one after the other, append at once, then answer."""
        state, now_ns = self._state, self.now_ns()
        self._gathered = len(batch)
        steps: list[AppliedEvent] = []
        answers: list[tuple[Answer | Exception, State]] = []
        for entry in batch:
            answer, done = self._checked(entry, state, now_ns)
            if done:
                steps += done
                state = done[-1].after
            answers.append((answer, state))
        if steps:
            try:
                await self._append(batch, steps)
            except NotWritten as error:
                self.instruments.beats.tell("store", str(error))
                log.error("no command is accepted until the store can be written: %s", error)
                return
            self._advance(state, now_ns)
            self._notify(steps)
            self.instruments.record_written(steps)
            self._planning.note_written(steps)
            self._snapshotter.offer(state, now_ns)
        elif any(entry.stage is Stage.ADMIT for entry in batch):
            await self._confirm_lead(batch)
        for entry, result in zip(batch, answers, strict=True):
            entry.resolve(*result)
        self._publish(steps)

    def _publish(self, steps: Sequence[AppliedEvent]) -> None:
        for step in steps:
            for effect in step.effects:
                self.feed.publish(effect)

    def _checked(
        self, entry: Proposal, state: State, now_ns: int
    ) -> tuple[Answer | Exception, list[AppliedEvent]]:
        """The answer to one entry, and what it changes."""
        self.instruments.record_stage(Stage.QUEUE, entry.arrived_ns)
        try:
            with self.instruments.timed(entry.stage):
                answer = entry.check(state, now_ns)
            return answer, followed(state, answer, entry.actor, entry.arrived_ns)
        except Exception as error:  # a bug in one command must not take down the rest
            log.exception("a command failed")
            return error, []

    async def _append(self, batch: list[Proposal], steps: list[AppliedEvent]) -> None:
        events, actors = [step.event for step in steps], [step.actor for step in steps]
        version, term = self._state.version, self._term or 0

        def append() -> None:
            over = (ended_by(step.before, step.event, step.after) for step in steps)
            ended = [job for job in over if job is not None]
            self._store.append(version, events, term, actors, ended)

        with self.instruments.timed(Stage.APPEND):
            await self._on_disk(batch, append)
        self.instruments.beats.tell("store", "")

    async def _confirm_lead(self, batch: list[Proposal]) -> None:
        """Answers that no append confirms, such as refusals, hold only if nobody else has written
        meanwhile: a leader that stood still would refuse what another has made possible."""
        shared, term = self._shared, self._term
        if shared is not None and term:
            await self._on_disk(batch, lambda: shared.keep_lead(term))

    async def _on_disk(self, batch: list[Proposal], call: Callable[[], None]) -> None:
        try:
            await self._in_disk_thread(call)
        except Exception as error:
            # Unless it is NotWritten, only a replay can tell what the disk has.
            for entry in batch:
                entry.resolve(error)
            raise

    async def _in_disk_thread(self, call: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk, call)
        self.instruments.beats.beat("store", STORE_SILENT_S)

    def _plan(self, state: State, now_ns: int) -> Plan:
        find = self.instruments.finding(make_placer(state, self.options, now_ns=now_ns))
        return decide(state, now_ns, self.options, find)
