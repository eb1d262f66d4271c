"""Calls that compute for long and change nothing: dry runs, what-ifs, slots, explanations.

Python runs one thread at a time, so what computes here holds up every change. Hence few threads,
for more of them would answer nobody sooner; who comes meanwhile waits, up to a number in all and of
one caller. Where questions keep coming, a process of their own answers them (engine/mirror.py):
it is started after some time of computing and ended when nobody has asked for a while. Until
it is up, and whenever it fails, the threads answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import Any, TypeVar, TypeVarTuple

from scheduler.core import State
from scheduler.engine.mirror import NoAnswer, StateMirror
from scheduler.identity import caller
from scheduler.service.errors import exhausted

THREADS = 2  # a short question need not wait for a long one
MOST, MOST_PER_CALLER = 64, 16
START_S = 0.2  # of computing in threads, after which there is a process
SHARE = 0.02  # of the time, which they may compute for ever without one
PATIENCE_S = 0.25  # while one question keeps the process, the next one waits; then a thread answers
IDLE_S = 600.0  # without questions, after which the process ends
_LOADS = "scheduler.service.rpc.jobs.jobs"  # what most questions are of

Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")


class Questions:
    """Answers questions that take long to compute, in threads or in a process. `most`: questions
    that may be under way or wait, `most_per_caller`: of one caller. `has_process`: whether there
    may be one; `start_s`, `idle_s`: as START_S and IDLE_S."""

    def __init__(
        self,
        most: int = MOST,
        most_per_caller: int = MOST_PER_CALLER,
        *,
        has_process: bool = False,
        start_s: float = START_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._most = most
        self._most_per_caller = most_per_caller
        self._has_process = has_process
        self._start_s = start_s
        self._idle_s = idle_s
        self._pending: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(THREADS, "muster-question")
        self.mirror = StateMirror("questions", _LOADS)
        self._turn = Lock()  # of the question that the mirror answers
        self._since_s = 0.0  # when the last turn began
        self._spent_s = 0.0  # computing in threads, less what they may at any rate
        self._asked_s = time.monotonic()

    async def ask(self, compute: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return the result of `compute`, run in a thread for this task's caller. Raises: ApiError
        when too many wait; what `compute` raises."""
        return await self._counted(_computed, compute, *arguments)

    async def ask_on(
        self, state: State, compute: Callable[[State, *Given], Answer], *arguments: *Given
    ) -> Answer:
        """Return the result of a function of a module, which needs only a state and arguments that
        can be pickled, from the process if there is one. `state`: the newest."""
        self._review()
        is_known = state is self.mirror.newest
        return await self._counted(self._answered, is_known, compute, state, *arguments)

    def close(self) -> None:
        """Turn waiting callers away; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.mirror.close()

    async def _counted(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        name = caller().name
        if self._pending.total() >= self._most:
            raise exhausted(f"{self._most} dry runs, what-ifs and the like wait; try again later")
        if self._pending[name] >= self._most_per_caller:
            most = self._most_per_caller
            raise exhausted(f"{name} has {most} dry runs, what-ifs and the like under way")
        self._pending[name] += 1
        try:
            loop, inside = asyncio.get_running_loop(), copy_context().run
            return await loop.run_in_executor(self._threads, inside, work, *arguments)
        finally:
            self._pending[name] -= 1
            self._pending += Counter()  # forgets who has none

    def _review(self) -> None:
        """Start the process when the threads compute for too long."""
        now_s = time.monotonic()
        self._spent_s = max(0.0, self._spent_s - SHARE * (now_s - self._asked_s))
        self._asked_s = now_s
        if self._has_process and self._spent_s >= self._start_s and self.mirror.process is None:
            self.mirror.start()
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        """End the process if nobody has asked for a while, and look again if somebody has."""
        if self.mirror.process is None:
            return
        left_s = self._asked_s + self._idle_s - time.monotonic()
        if left_s > 0 or self._pending:
            asyncio.get_running_loop().call_later(max(left_s, 1.0), self._end_if_idle)
        else:
            self.mirror.end()
            self._spent_s = 0.0

    def _answered(
        self, is_known: bool, compute: Callable[..., Answer], state: State, *arguments: Any
    ) -> Answer:
        if not is_known or self.mirror.process is None:
            return self._here(compute, state, *arguments)
        left_s = self._since_s + PATIENCE_S - time.monotonic()
        if not self._turn.acquire(timeout=max(0.0, left_s)):
            return self._here(compute, state, *arguments, rests=True)
        self._since_s = time.monotonic()
        try:
            if not self.mirror.is_up():  # until then one thread computes at a time
                return self._here(compute, state, *arguments, rests=True)
            ask: Callable[..., Answer] = self.mirror.ask
            return _computed(ask, self.mirror.take(), compute, state, *arguments)
        except NoAnswer:
            self._spent_s = 0.0
        finally:
            self._turn.release()
        return self._here(compute, state, *arguments)

    def _here(self, compute: Callable[..., Answer], *arguments: Any, rests: bool = False) -> Answer:
        """Compute in this thread. `rests`: and leave as much time to the calls, for many ask."""
        began_s = time.thread_time()
        try:
            return _computed(compute, *arguments)
        finally:
            spent_s = time.thread_time() - began_s
            self._spent_s += spent_s
            if rests:
                time.sleep(min(spent_s, PATIENCE_S))


def _computed(compute: Callable[..., Answer], *arguments: Any) -> Answer:
    """Return the result of `compute`. A StopIteration could not be passed on, and whoever waits
    would wait for ever."""
    try:
        return compute(*arguments)
    except StopIteration as error:
        raise RuntimeError("a question ended without an answer") from error
