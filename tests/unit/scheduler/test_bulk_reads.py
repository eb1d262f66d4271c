"""Long answers wait for each other, not for long ones of somebody else."""

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
        assert gate.wait(60)
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
        await asyncio.sleep(0.05)
        assert not reads._turns
    finally:
        gate.set()
        reads.close()


async def test_a_call_that_is_cancelled_has_its_turn_until_its_thread_is_free() -> None:
    """Else a caller that begins and cancels has all threads."""
    reads, gate, began = BulkReads(), Event(), list[int]()

    def slow(number: int) -> None:
        began.append(number)
        assert gate.wait(60)

    async def of(number: int) -> None:
        act_for(Caller("bob", Role.VIEWER, "bots"))
        await reads.make(slow, number)

    try:
        for number in range(4):
            task = asyncio.create_task(of(number))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert began == [0]
        last = asyncio.create_task(of(9))
        gate.set()
        await asyncio.wait_for(last, 5)
        assert began == [0, 9]
        await asyncio.sleep(0.05)
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
        await asyncio.sleep(0.05)
        assert not reads._turns
    finally:
        reads.close()
