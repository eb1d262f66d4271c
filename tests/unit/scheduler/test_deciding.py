"""The loop that decides: it ends when it is told to, and not of an error in a plan."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler.core import Plan, SchedulingOptions, State
from scheduler.core.model.job import SECOND_NS
from scheduler.engine.planning.executor import PlanExecutor
from scheduler.engine.planning.loop import PlanningLoop
from scheduler.engine.proposal import Answer
from scheduler.observe.instruments import Instruments


async def carry_out(stage: object, check: Callable[[State, int], Answer]) -> Any:
    raise AssertionError("an empty plan is not carried out")


@contextmanager
def planning(decided: Callable[[State, int], Plan]) -> Iterator[PlanningLoop]:
    """A loop that plans for an empty state."""
    executor = PlanExecutor(decided, SchedulingOptions(), lambda spans: None)
    options, instruments = SchedulingOptions(), Instruments()
    deciding = PlanningLoop(
        executor, options, instruments, State.empty, lambda: 0, carry_out, lambda: False
    )
    yield deciding
    executor.close()
    deciding.close()


@pytest.mark.parametrize("rounds", range(5))
async def test_a_cancel_is_not_lost_as_the_state_moves(rounds: int) -> None:
    """After so many rounds of the event loop: which one hits the end of the wait depends on
    the interpreter."""

    def decided(state: State, now_ns: int) -> Plan:
        return Plan(state.version, (), next_decision_ns=3_600 * SECOND_NS)

    with planning(decided) as deciding:
        loop = asyncio.create_task(deciding.run())
        await asyncio.sleep(0.05)
        deciding.note_written(())
        for _ in range(rounds):
            await asyncio.sleep(0)
        loop.cancel()
        done, _ = await asyncio.wait({loop}, timeout=2)
        assert done


async def test_an_error_of_a_restart_while_the_planner_rests_ends_no_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang is struck in the pause between two decisions, and its restart raises."""
    is_resting, decided_at = asyncio.Event(), list[int]()

    def decided(state: State, now_ns: int) -> Plan:
        decided_at.append(now_ns)
        return Plan(state.version, ())

    def broken(state: State, now_ns: int, options: SchedulingOptions) -> Plan:
        raise ZeroDivisionError

    async def rest(self: PlanExecutor, is_busy: bool) -> None:
        is_resting.set()
        await asyncio.sleep(0.02)

    monkeypatch.setattr("scheduler.engine.planning.loop.decide_restarts", broken)
    monkeypatch.setattr(PlanExecutor, "pace_decisions", rest)
    with planning(decided) as deciding:
        loop = asyncio.create_task(deciding.run())
        await is_resting.wait()
        deciding._struck.set()
        await asyncio.sleep(0.2)
        assert not loop.done()
        assert decided_at
        loop.cancel()
        await asyncio.wait({loop})
