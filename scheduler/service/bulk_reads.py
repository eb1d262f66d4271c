"""Long answers, such as a list of all hosts: made in threads of their own, one of each caller at
a time.

The answer to a change is short, and made in the loop's own threads: it does not stand behind the
lists that somebody else asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from scheduler.identity import ANYBODY, Caller, caller

THREADS: Final = 3  # beside which the event loop still has its turns

Answer = TypeVar("Answer")


class BulkReads:
    """Makes long answers in threads, a few at a time. Use it on the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "muster-read")
        self._turns = WeakValueDictionary[Caller, asyncio.Semaphore]()  # while somebody waits

    async def make(self, compute: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return the result of `compute`, run in a thread for this task's caller. Raises: what
        `compute` raises."""
        who, loop = caller(), asyncio.get_running_loop()
        most = THREADS if who is ANYBODY else 1  # nobody knows how many these are
        turns = self._turns.setdefault(who, asyncio.Semaphore(most))
        await turns.acquire()
        work = loop.run_in_executor(self._threads, copy_context().run, compute, *arguments)

        def end_turn(done: asyncio.Future[Answer]) -> None:
            turns.release()
            if not done.cancelled():
                done.exception()  # who waits has it too

        # The turn ends with the thread's work, although a call that is cancelled ends before.
        work.add_done_callback(end_turn)
        return await asyncio.shield(work)

    def close(self) -> None:
        """Drop what waits; let what is under way end by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
