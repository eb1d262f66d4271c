"""Long answers, such as a list of all hosts: made in threads of their own, one of each caller at
a time.

The answer to a change is short, and made in the loop's own threads: it does not stand behind the
lists that somebody else asks for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from scheduler.identity import ANYBODY, Caller, caller

THREADS: Final = 3  # beside which the event loop still has its turns

Answer = TypeVar("Answer")


class BulkReads:
    """Makes long answers in threads, a few at a time. Use it on the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "muster-read")
        self._turns: dict[Caller, asyncio.Semaphore] = {}
        self._pending: Counter[Caller] = Counter()

    async def make(self, compute: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return the result of `compute`, run in a thread for this task's caller. Raises: what
        `compute` raises."""
        who, loop = caller(), asyncio.get_running_loop()
        most = THREADS if who is ANYBODY else 1  # nobody knows how many these are
        turns = self._turns.setdefault(who, asyncio.Semaphore(most))
        self._pending[who] += 1
        try:
            await turns.acquire()
        except asyncio.CancelledError:
            self._forget_call(who)
            raise
        work = self._threads.submit(copy_context().run, compute, *arguments)

        def ended() -> None:
            turns.release()
            self._forget_call(who)

        # The turn ends with the thread's work, although a call that is cancelled ends before.
        work.add_done_callback(lambda _: _soon(loop, ended))
        return await asyncio.wrap_future(work)

    def _forget_call(self, who: Caller) -> None:
        self._pending[who] -= 1
        if not self._pending[who]:
            del self._pending[who], self._turns[who]

    def close(self) -> None:
        """Drop what waits; let what is under way end by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits for a turn any more
        loop.call_soon_threadsafe(call)
