"""Calls whose results are wanted one after the other, some of them made ahead on a second core.

Where the result of a call decides whether the next one is made at all, one that was made ahead may
be for nothing; but what is returned is the same on one core and on two. Inner loops and the
solvers of OR-Tools let go of Python's lock, and three quarters of a long solve are spent there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

R = TypeVar("R")


@cache
def _second_core() -> ThreadPoolExecutor | None:
    """A thread for it, kept, for it takes as long to begin one as a short call does; None where
    there is no second core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ThreadPoolExecutor(1, "muster-ahead") if (cores or 1) > 1 else None


def run_ahead(calls: Sequence[Callable[[], R]], *, are_long: bool = True) -> Iterator[R]:
    """Make calls, some of them ahead on a second core, and yield their results in order. No call
    changes what another one uses. `are_long`: whether they take longer than to ask a second core.

    Closing the iterator cancels calls not yet started. An error of a call is raised, though not
    always in its turn.
    """
    second = _second_core() if are_long and len(calls) > 1 else None
    if second is None:
        yield from (call() for call in calls)
        return
    waiting = {k: second.submit(call) for k, call in enumerate(calls) if k}
    try:
        made = {0: calls[0]()}
        for k in range(len(calls)):
            while k not in made and not waiting[k].done():
                mine = _taken_back(waiting)
                if mine is None:
                    break
                made[mine] = calls[mine]()
            yield made.pop(k) if k in made else waiting[k].result()
    finally:
        for future in waiting.values():
            future.cancel()


def _taken_back(waiting: Mapping[int, Future[R]]) -> int | None:
    """The first call that nobody has begun; the second core will not make it now."""
    return next((k for k, f in waiting.items() if not f.cancelled() and f.cancel()), None)
