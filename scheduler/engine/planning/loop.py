"""The loop that decides, beside the one that writes.

Whenever the state has moved, or a plan asked for it, it takes the newest state, decides, and
enters the plan like any command. What happened meanwhile is found by commit, on the newest
state; if nothing of the plan still holds, it decides again.

A gang that a failure stops does not wait: how it goes on is decided at once by itself, in
milliseconds, while a decision on the whole queue is under way, or rests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from scheduler.core import Conflict, Plan, SchedulingOptions, State, commit
from scheduler.core.decide import decide_restarts
from scheduler.core.fold.effects import JobChange, JobChangeKind
from scheduler.core.model.job import SECOND_NS
from scheduler.engine.planning.executor import PlanExecutor
from scheduler.engine.proposal import Answer, NotLeading, WriterStopped
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.observe.instruments import AppliedEvent, Instruments, Stage

RETRY_NS = SECOND_NS  # after a decision that failed, when one was due anyway
BEAT_S = 2.0  # between two beats of a planner that waits
SILENT_S = 120.0  # for which a decision may keep the planner from its next beat

log = logging.getLogger("muster.writer")

Found = TypeVar("Found")
Enter = Callable[[Stage, Callable[[State, int], Answer]], Awaitable[tuple[Answer, State]]]


class PlanningLoop:
    """Decides for one writer. `state`: the newest durable one; `enter`: gives a plan to the writer,
    as commands are; `is_busy`: whether many commands come; `hold`: a context during which less
    urgent work waits."""

    def __init__(
        self,
        executor: PlanExecutor,
        options: SchedulingOptions,
        instruments: Instruments,
        state: Callable[[], State],
        now_ns: Callable[[], int],
        enter: Enter,
        is_busy: Callable[[], bool],
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._executor = executor
        self._options = options
        self._instruments = instruments
        self._state = state
        self._now_ns = now_ns
        self._enter = enter
        self._is_busy = is_busy
        self._hold = hold
        self._thread = ThreadPoolExecutor(1, "muster-restart")
        self._moved = asyncio.Event()
        self._struck = asyncio.Event()

    def note_written(self, steps: Sequence[AppliedEvent]) -> None:
        """Wake the loop, as the state has changed."""
        self._moved.set()
        stops = (
            isinstance(effect, JobChange) and effect.kind is JobChangeKind.INTERRUPTED
            for step in steps
            for effect in step.effects
        )
        if any(stops):
            self._struck.set()

    async def run(self) -> None:
        again_ns: int | None = None
        self._moved.set()  # what waited before is decided first
        while True:
            await self._wait_changed(again_ns)
            try:
                await self._run_with_restarts(self._executor.pace_decisions(self._is_busy()))
                self._moved.clear()
                again_ns = await self._decide(self._state())
            except NotWritten:
                again_ns = self._now_ns() + RETRY_NS
            except (WriterStopped, NotLeading, StoreError):
                return
            except Exception:  # a bug in placement; the next change tries again
                log.exception("no decision")
                again_ns = None if again_ns is None else self._now_ns() + RETRY_NS

    async def _wait_changed(self, again_ns: int | None) -> None:
        """Return when the state has moved, or at the time for which a plan asked."""
        now_s = asyncio.get_running_loop().time
        wait_s = float("inf") if again_ns is None else (again_ns - self._now_ns()) / 1e9
        until_s = now_s() + max(0.01, wait_s)
        while not self._moved.is_set() and (left_s := until_s - now_s()) > 0:
            self._instruments.beats.beat("planner", SILENT_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, BEAT_S)):  # wait_for may lose a cancel
                    await self._moved.wait()
        self._instruments.beats.beat("planner", SILENT_S)

    async def _decide(self, state: State) -> int | None:
        """Decide on `state`. The answer is when to look again, if nothing happens before."""
        with self._instruments.timed(Stage.DECIDE):
            plan = await self._run_with_restarts(self._executor.decide(state, self._now_ns()))
        await self._carry_out(plan)
        return plan.next_decision_ns

    async def _run_with_restarts(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Await `work`. Gangs that are stopped meanwhile, or were just before, go on."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done() or self._struck.is_set():
                await self._wait_interrupted(task)
                if self._struck.is_set():
                    self._struck.clear()
                    await self._restart_stopped()
            return task.result()
        finally:
            task.cancel()

    async def _wait_interrupted(self, task: asyncio.Task[Found]) -> None:
        """Return when a gang is stopped, or `task` is done."""
        struck = asyncio.ensure_future(self._struck.wait())
        try:
            await asyncio.wait({task, struck}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            struck.cancel()

    async def _restart_stopped(self) -> None:
        """Restart stopped gangs by themselves; leave them to the next decision where that fails."""
        try:
            await self._restart(self._state())
        except (NotWritten, WriterStopped, NotLeading, StoreError):
            raise
        except Exception:  # a bug in placement, which must not cost the queue its decision
            log.exception("no decision on the gangs that stand still")
            self._moved.set()

    async def _restart(self, state: State) -> None:
        """Say how the gangs go on that stand still."""
        loop, now_ns = asyncio.get_running_loop(), self._now_ns()
        with self._hold():
            with self._instruments.timed(Stage.DECIDE):
                plan = await loop.run_in_executor(
                    self._thread, decide_restarts, state, now_ns, self._options
                )
            await self._carry_out(plan)

    async def _carry_out(self, plan: Plan) -> None:
        if not plan.actions:
            return
        answer, after = await self._enter(
            Stage.COMMIT, lambda newest, now_ns: commit(newest, plan, now_ns)
        )
        if isinstance(answer, Conflict):
            self._conflicted(plan, answer)
        elif isinstance(answer, tuple) and plan.is_fixpoint:
            before = after.version - len(answer)
            if (
                plan.leaves_nothing(before, after.version)
                and self._state().version == after.version
            ):
                self._moved.clear()  # it was this plan that moved it, and nothing is left to do

    def _conflicted(self, plan: Plan, conflict: Conflict) -> None:
        self._instruments.count_conflict()
        log.info("plan on version %d was rejected: %s", plan.version, conflict)
        if self._state().version != plan.version:
            self._moved.set()
        else:  # the same state would fall again: do not spin
            log.error("a plan was rejected on its own version %d", plan.version)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
