"""Where decisions are made: in a thread while they are short, else in a process of their own.

Python runs one thread at a time, so a long decision in a thread slows down every call
meanwhile. The process (worker.py) folds the same events into the same state and is sent
what happened since it was last asked. It is started when a decision first takes long;
until it is up, and whenever it fails, the thread decides.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from multiprocessing import Pipe
from time import perf_counter, thread_time
from typing import Any

from scheduler.core import Plan, SchedulingOptions, State
from scheduler.core.model.events import Event
from scheduler.engine.planning.worker import PlanRequest, PlanResponse, Spans
from scheduler.eventlog import codec, snapshots

LONG_S = 0.02
_MOST_REST_S = 2.0
# While many call, the next decision waits so many times as long as the last one took: after a
# short one in the thread longer, for that had Python's lock, without which no call is answered.
_REST_BUSY, _REST_BUSY_HERE = 3, 9
MOST_EVENTS = 20_000  # beyond which a whole state is sent instead
_PIECE, _PAUSE_S = 100, 0.004  # events, a millisecond of work, and how long others go on then

log = logging.getLogger("muster.writer")


class PlanExecutor:
    """Decides for one writer, one decision at a time. `here` decides in the thread;
    `solved` is told when each placement elsewhere was looked for.

    `long_s`: from where on a decision is long, in processor time, for a busy machine makes each
    of them last; None: all are made in the thread.
    """

    def __init__(
        self,
        here: Callable[[State, int], Plan],
        limits: SchedulingOptions,
        solved: Callable[[Spans], None],
        long_s: float | None = None,
    ) -> None:
        self._here = here
        self._limits = limits
        self._solved = solved
        self._long_s = long_s
        self._thread = ThreadPoolExecutor(1, "muster-decide")
        self._other: Process | None = None
        self._took_s = 0.0  # the last decision
        self._was_here = True
        self._is_closed = False

    def follow(self, events: Iterable[Event]) -> None:
        """These are durable: the next state to decide on has them."""
        if self._other is not None:
            self._other.follow(events)

    def forget(self) -> None:
        """The next state does not follow from the one before."""
        if self._other is not None:
            self._other.forget()

    def decide(self, state: State, now_ns: int) -> Coroutine[Any, Any, Plan]:
        """What `here` answers, wherever it is found. `state`: after all that was followed until
        this call, whenever its answer is awaited."""
        worker = self._other if self._other is not None and self._other.is_up() else None
        return self._answer(worker, state, now_ns, worker.take() if worker else None)

    async def _answer(
        self, worker: Process | None, state: State, now_ns: int, events: tuple[Event, ...] | None
    ) -> Plan:
        inside, loop = copy_context().run, asyncio.get_running_loop()
        plan = await loop.run_in_executor(
            self._thread, inside, self._decide, worker, state, now_ns, events
        )
        if self._is_long():
            self._other = self._other or Process()
        return plan

    async def rest(self, is_busy: bool) -> None:
        """Wait until it is time for the next decision: one after the other on a long queue they
        leave the rest of the time to the calls. `is_busy`: many of those come."""
        is_long = self._is_long()
        times = 1 if is_long else 0
        if is_busy:
            times = _REST_BUSY_HERE if self._was_here and not is_long else _REST_BUSY
        if times:
            await asyncio.sleep(min(times * self._took_s, _MOST_REST_S))

    def _is_long(self) -> bool:
        return self._long_s is not None and self._took_s > self._long_s

    def close(self) -> None:
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._other is not None:
            self._other.kill()

    def _decide(
        self, worker: Process | None, state: State, now_ns: int, events: tuple[Event, ...] | None
    ) -> Plan:
        if worker is None:
            return self._decide_here(state, now_ns)
        began_s = perf_counter()
        try:
            response = worker.ask(state, now_ns, self._limits, events)
        except (EOFError, OSError) as error:
            if self._is_closed:
                raise
            log.warning("the planning process has ended (%r): a thread plans", error)
            worker.kill()
            self._other = None
            return self._decide_here(state, now_ns)
        self._took_s, self._was_here = perf_counter() - began_s, False
        self._solved(response.solves)
        return response.plan

    def _decide_here(self, state: State, now_ns: int) -> Plan:
        began_s = thread_time()
        try:
            return self._here(state, now_ns)
        finally:
            self._took_s, self._was_here = thread_time() - began_s, True


class Process:
    """A process that decides, and the events that it has not been sent."""

    def __init__(self) -> None:
        self._link, child_end = Pipe()
        # Not -m: what it sends must bear the name of its module, not of the program.
        program = "from scheduler.engine.planning.worker import main; main()"
        command = [sys.executable, "-c", program, str(child_end.fileno())]
        with child_end:
            self._process = subprocess.Popen(command, pass_fds=[child_end.fileno()])
        self._is_up = False
        self._events: list[Event] | None = None  # None: it needs a whole state

    def is_up(self) -> bool:
        """Whether it has started."""
        try:
            if not self._is_up and self._link.poll():
                self._is_up = bool(self._link.recv())
        except (EOFError, OSError):
            self._is_up = True  # asking it will find that it has ended
        return self._is_up

    def follow(self, events: Iterable[Event]) -> None:
        if self._events is not None:
            self._events += events
            if len(self._events) > MOST_EVENTS:
                self.forget()

    def forget(self) -> None:
        """It will need a whole state."""
        self._events = None

    def take(self) -> tuple[Event, ...] | None:
        """What it lacks; None: everything."""
        events, self._events = self._events, []
        return None if events is None else tuple(events)

    def ask(
        self, state: State, now_ns: int, limits: SchedulingOptions, events: tuple[Event, ...] | None
    ) -> PlanResponse:
        """Raises: EOFError, OSError when it has ended; what decide raised."""
        base = snapshots.encode(state, now_ns, _pause) if events is None else None
        self._link.send(PlanRequest(state.version, now_ns, limits, base, _rows(events or ())))
        answer = self._link.recv()
        if isinstance(answer, Exception):
            self.forget()  # whether it took the events is unknown
            raise answer
        assert isinstance(answer, PlanResponse)
        return answer

    def kill(self) -> None:
        """Whoever waits for an answer gets EOFError."""
        self._process.kill()
        self._process.wait()


def _rows(events: tuple[Event, ...]) -> tuple[tuple[str, str], ...]:
    """The events as the log has them, written in pieces: thousands at once would have Python's
    lock every other moment for a twentieth of a second, in which calls take twice as long."""
    rows: list[tuple[str, str]] = []
    for at in range(0, len(events), _PIECE):
        if at:
            _pause()
        rows += map(codec.encode, events[at : at + _PIECE])
    return tuple(rows)


def _pause() -> None:
    time.sleep(_PAUSE_S)
