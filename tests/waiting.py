"""Waits of tests for what other tasks and processes do.

A wait ends as soon as its condition holds, so patience costs a passing test nothing; a busy
machine takes several times as long as an idle one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar

#: By how much each limit of a wait is stretched: limits are what an idle machine needs.
PATIENCE = 5
LOOK_S = 0.01  # between two looks at a condition

Found = TypeVar("Found")


async def until(
    ask: Callable[[], Awaitable[Found] | Found],
    holds: Callable[[Found], object] = bool,
    within_s: float = 10,
) -> Found:
    """Return what `ask` answers, or what awaiting that gives, as soon as `holds` is true of it.

    Raises: AssertionError with the last answer after `within_s`, stretched.
    """
    found: Found | None = None
    try:
        async with asyncio.timeout(PATIENCE * within_s):
            while True:
                answer: Any = ask()
                found = await answer if isawaitable(answer) else answer
                if holds(found):
                    return found
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not so within {PATIENCE * within_s:g} s: {found}") from None


def wait_until(holds: Callable[[], Found], within_s: float = 10) -> Found:
    """Return what `holds` answers once it is true; as `until`, where no loop runs."""
    end_s = time.monotonic() + PATIENCE * within_s
    while not (found := holds()):
        if time.monotonic() > end_s:
            raise AssertionError(f"not so within {PATIENCE * within_s:g} s: {found}")
        time.sleep(LOOK_S)
    return found
