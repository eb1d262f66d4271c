"""Long answers wait for each other, not for long ones of somebody else."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event

import pytest

from scheduler.identity import Caller, Role, act_for, caller
from scheduler.service.bulk_reads import THREADS, BulkReads
from tests.waiting import until


class GatedReads(BulkReads):
    """Reads of which some end once a gate opens. `began`: which have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.began = Event(), list[int]()

    async def wait_of(self, name: str, number: int) -> int:
        """A read of a caller of this name that waits for the gate."""
        act_for(Caller(name, Role.VIEWER, "bots"))
        return await self.make(self._wait, number)

    def _wait(self, number: int) -> int:
        self.began.append(number)
        assert self.gate.wait(60)
        return number


@pytest.fixture
async def reads() -> AsyncIterator[GatedReads]:
    """At the end the gate is opened, and all give back their turns."""
    made = GatedReads()
    yield made
    made.gate.set()
    await until(lambda: not any(turns.locked() for turns in made._turns.values()))
    made.close()


async def test_the_lists_of_one_caller_leave_threads_to_others(reads: GatedReads) -> None:
    async def hers() -> str:
        act_for(Caller("ada", Role.VIEWER, "ads"))
        return await reads.make(lambda: caller().name)

    his = [asyncio.create_task(reads.wait_of("bob", number)) for number in range(20)]
    assert await asyncio.wait_for(asyncio.create_task(hers()), 5) == "ada"
    assert reads.began == [0]
    reads.gate.set()
    assert await asyncio.gather(*his) == list(range(20))


async def test_a_call_that_is_cancelled_has_its_turn_until_its_thread_is_free(
    reads: GatedReads,
) -> None:
    """Else a caller that begins and cancels has all threads."""
    for number in range(4):
        task = asyncio.create_task(reads.wait_of("bob", number))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert reads.began == [0]
    last = asyncio.create_task(reads.wait_of("bob", 9))
    reads.gate.set()
    await asyncio.wait_for(last, 5)
    assert reads.began == [0, 9]


async def test_what_goes_wrong_comes_out_and_frees_the_turn(reads: GatedReads) -> None:
    def wrong() -> None:
        raise KeyError("x")

    for _ in range(THREADS + 1):
        with pytest.raises(KeyError):
            await reads.make(wrong)
