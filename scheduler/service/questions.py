"""Calls that compute for long and change nothing: dry runs, what-ifs, slots, explanations.

They have threads of their own, few, for Python runs one at a time: more of them would answer none
sooner and every change later. Who comes meanwhile waits, up to a number in all and of one caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from scheduler.identity import caller
from scheduler.service.errors import exhausted

THREADS = 2  # a short question need not wait for a long one
MOST, MOST_PER_CALLER = 64, 16

Answer = TypeVar("Answer")


class Questions:
    """`most`: questions that may be under way or wait, `most_per_caller`: of one caller."""

    def __init__(self, most: int = MOST, most_per_caller: int = MOST_PER_CALLER) -> None:
        self._most = most
        self._most_per_caller = most_per_caller
        self._pending: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(THREADS, "muster-question")

    async def ask(self, compute: Callable[..., Answer], *arguments: Any) -> Answer:
        """What `compute` returns, computed for this task's caller. Raises: ApiError when too many
        wait; what `compute` raises."""
        name = caller().name
        if self._pending.total() >= self._most:
            raise exhausted(f"{self._most} dry runs, what-ifs and the like wait; try again later")
        if self._pending[name] >= self._most_per_caller:
            most = self._most_per_caller
            raise exhausted(f"{name} has {most} dry runs, what-ifs and the like under way")
        self._pending[name] += 1
        try:
            loop, inside = asyncio.get_running_loop(), copy_context().run
            return await loop.run_in_executor(self._threads, inside, _computed, compute, *arguments)
        finally:
            self._pending[name] -= 1
            self._pending += Counter()  # forgets who has none

    def close(self) -> None:
        """Who waits is turned away; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _computed(compute: Callable[..., Answer], *arguments: Any) -> Answer:
    """What `compute` returns. A StopIteration that it lets out could not be passed on, and whoever
    waits would wait for ever."""
    try:
        return compute(*arguments)
    except StopIteration as error:
        raise RuntimeError("a question ended without an answer") from error
