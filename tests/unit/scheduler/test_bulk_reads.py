"""Long answers wait for each other, not for long ones of somebody else."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest

from scheduler.identity import Caller, Role, act_for, caller
from scheduler.service.bulk_reads import THREADS, BulkReads


async def test_the_lists_of_one_caller_leave_threads_to_others() -> None:
    reads, gate = BulkReads(), Event()
    began = list[int]()

    def slow(number: int) -> int:
        began.append(number)
        assert gate.wait(10)
        return number

    async def of(name: str, number: int) -> int:
        act_for(Caller(name, Role.VIEWER, "bots"))
        return await reads.make(slow, number)

    async def hers() -> str:
        act_for(Caller("ada", Role.VIEWER, "ads"))
        return await reads.make(lambda: caller().name)

    his = [asyncio.create_task(of("bob", number)) for number in range(20)]
    try:
        assert await asyncio.wait_for(asyncio.create_task(hers()), 5) == "ada"
        assert began == [0]
        gate.set()
        assert await asyncio.gather(*his) == list(range(20))
        assert not reads._turns
    finally:
        gate.set()
        reads.close()


async def test_what_goes_wrong_comes_out_and_frees_the_turn() -> None:
    reads = BulkReads()

    def wrong() -> None:
        raise KeyError("x")

    try:
        for _ in range(THREADS + 1):
            with pytest.raises(KeyError):
                await reads.make(wrong)
        assert not reads._turns
    finally:
        reads.close()
