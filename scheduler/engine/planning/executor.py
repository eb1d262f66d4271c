"""Where decisions are made: in a thread while they are short, else in a process of their own.

The process is a mirror (engine/mirror.py). It is started when a decision first takes long; until
it is up, and whenever it fails, the thread decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from time import perf_counter, perf_counter_ns, thread_time
from typing import Any

from muster.structs import struct
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core import Job, Plan, SchedulingOptions, State, decide
from scheduler.core.capacity.placer import make_placer
from scheduler.engine.mirror import Lacking, NoAnswer, StateMirror

LONG_S = 0.02
_MOST_REST_S = 2.0
# While many call, the next decision waits so many times as long as the last one took: after a
# short one in the thread longer, for that had Python's lock, without which no call is answered.
_REST_BUSY, _REST_BUSY_HERE = 3, 9


class PlanExecutor:
    """Makes the decisions of one writer, one at a time, in a thread or in another process, the
    `mirror`. `here` decides in the thread; `solved` is told when each placement elsewhere was
    looked for.

    `long_s`: the processor time from which on a decision counts as long and is made in a process;
    None: all are made in the thread.
    """

    def __init__(
        self,
        here: Callable[[State, int], Plan],
        options: SchedulingOptions,
        solved: Callable[[Spans], None],
        long_s: float | None = None,
    ) -> None:
        self.mirror = StateMirror("decisions")
        self._here = here
        self._options = options
        self._solved = solved
        self._long_s = long_s
        self._thread = ThreadPoolExecutor(1, "muster-decide")
        self._took_s = 0.0  # the last decision
        self._was_here = True

    def decide(self, state: State, now_ns: int) -> Coroutine[Any, Any, Plan]:
        """Return the answer of `here`, in whichever process it is computed. `state`: after all that
        the mirror followed until this call, whenever its answer is awaited."""
        return self._answer(state, now_ns, self.mirror.take() if self.mirror.is_up() else None)

    async def _answer(self, state: State, now_ns: int, lacking: Lacking | None) -> Plan:
        inside, loop = copy_context().run, asyncio.get_running_loop()
        plan = await loop.run_in_executor(
            self._thread, inside, self._decide, state, now_ns, lacking
        )
        if self._is_long():
            self.mirror.start()
        return plan

    async def pace_decisions(self, is_busy: bool) -> None:
        """Wait until it is time for the next decision, so that decisions on a long queue leave time
        to calls. `is_busy`: whether many calls come."""
        is_long = self._is_long()
        times = 1 if is_long else 0
        if is_busy:
            times = _REST_BUSY_HERE if self._was_here and not is_long else _REST_BUSY
        if times:
            await asyncio.sleep(min(times * self._took_s, _MOST_REST_S))

    def _is_long(self) -> bool:
        return self._long_s is not None and self._took_s > self._long_s

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.mirror.close()

    def _decide(self, state: State, now_ns: int, lacking: Lacking | None) -> Plan:
        if lacking is not None:
            began_s = perf_counter()
            with suppress(NoAnswer):
                response = self.mirror.ask(lacking, plan_response, state, now_ns, self._options)
                self._took_s, self._was_here = perf_counter() - began_s, False
                self._solved(response.solves)
                return response.plan
        began_s = thread_time()
        try:
            return self._here(state, now_ns)
        finally:
            self._took_s, self._was_here = thread_time() - began_s, True


Spans = list[tuple[int, int]]


@struct(frozen=True, slots=True)
class PlanResponse:
    """A plan, and when each placement was begun and ended, by perf_counter_ns, which all processes
    of a machine share."""

    plan: Plan
    solves: Spans


def plan_response(state: State, now_ns: int, options: SchedulingOptions) -> PlanResponse:
    """Make a decision, and note the time of every placement."""
    solves: Spans = []
    find = make_placer(state, options, now_ns=now_ns)

    def timed(job: Job, free: HostSet, most: int) -> Placement | None:
        began_ns = perf_counter_ns()
        try:
            return find(job, free, most)
        finally:
            solves.append((began_ns, perf_counter_ns()))

    return PlanResponse(decide(state, now_ns, options, timed), solves)
