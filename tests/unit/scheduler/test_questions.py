"""Questions have threads of their own."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.service.questions import Questions


async def test_a_computation_that_runs_dry_fails_and_keeps_nobody_waiting() -> None:
    questions = Questions()
    try:
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="without an answer"):
                await questions.ask(next, iter(()))
    finally:
        questions.close()
